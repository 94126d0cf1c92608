"""The memory planner's bars as a figure, for files: what the page draws as part of its table."""

from typing import Any

from dashboards import formats
from dashboards.drawing import Figure, bytes_axis, figure, layout_of, names_margin, plain
from dashboards.palette import NEUTRALS, THEMES, ThemeName, style
from dashboards.planner import bars
from worker.footprint_records import Footprint

ROW_PIXELS = 27
"""Of an optimizer."""


def planner_figure(footprint: Footprint, theme: ThemeName) -> Figure:
    """A lying bar an optimizer, the least memory on top: parameters, gradients, and its state in its own colour."""
    rows = [bar for bar in bars(footprint) if bar.total_bytes is not None][::-1]
    names = [plain(bar.one.title) for bar in rows]
    parameters, gradients = (NEUTRALS[part][int(theme == "dark")] for part in ("parameters", "gradients"))
    own = [style(bar.one.optimizer).colour(theme) for bar in rows]
    kept: list[tuple[str, list[int], Any]] = [
        ("parameters", [footprint.parameter_bytes] * len(rows), parameters),
        ("gradients", [footprint.gradient_bytes] * len(rows), gradients),
        ("optimizer state, in its own colour", [bar.one.state_bytes or 0 for bar in rows], own),
    ]
    data = [
        {
            "type": "bar", "orientation": "h", "name": name, "x": values, "y": names, "width": 0.6,
            "marker": {"color": colour},
            "hovertemplate": f"{name}: %{{x:,}} bytes<extra>%{{y}}</extra>",
        }
        for name, values, colour in kept
    ]  # fmt: skip
    layout = layout_of(theme, x_title="bytes that training keeps, before activations", y_title="")
    layout |= {"barmode": "stack", "showlegend": True, "height": 120 + ROW_PIXELS * len(rows)}
    layout["legend"] = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 11}}
    layout["margin"] |= {"l": names_margin(bar.one.title for bar in rows), "t": 40}
    most = max((bar.total_bytes or 0 for bar in rows), default=1)
    layout["xaxis"] |= {"range": [0, 1.2 * most]} | bytes_axis(1.2 * most)
    layout["yaxis"] |= {"showgrid": False, "ticks": ""}
    layout["annotations"] = [
        {"x": bar.total_bytes, "y": plain(bar.one.title), "text": formats.size(bar.total_bytes), "showarrow": False,
         "xanchor": "left", "xshift": 6, "font": {"size": 11, "color": THEMES[theme].ink}}
        for bar in rows
    ]  # fmt: skip
    return figure(data if rows else [], layout, theme, empty="No optimizer could be counted for this model.")
