"""The memory planner: what each optimizer keeps as rows of a table and as a figure, and the smallest device that holds
it. The page draws the bars as part of its table; the figure is for files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.figures.base import Figure, bytes_axis, figure, layout_of, names_margin, plain
from dashboards.palette import NEUTRALS, THEMES, ThemeName, style
from dashboards.text import formats
from worker.records.footprint import Footprint, OptimizerFootprint

DEVICES_GB = (8, 12, 16, 24, 32, 40, 48, 80, 96, 141, 192)
"""Memory of common GPUs, from small cards to H200 and B200, in 1e9 bytes."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One optimizer; widths are of 100, all rows on one scale."""

    one: OptimizerFootprint
    total_bytes: int | None
    share: float | None
    """State as a share of the baseline's."""
    parameters_width: float
    gradients_width: float
    state_width: float
    device_gb: int | None
    """The smallest of `DEVICES_GB` that holds it; None where none does."""


def bars(footprint: Footprint) -> tuple[Bar, ...]:
    """The least memory first; what could not be counted last."""
    kept = footprint.parameter_bytes + footprint.gradient_bytes
    most = max((kept + one.state_bytes for one in footprint.optimizers if one.state_bytes is not None), default=1)
    made = (_bar(footprint, one, kept, most) for one in footprint.optimizers)
    return tuple(sorted(made, key=lambda bar: (bar.total_bytes is None, bar.total_bytes or 0)))


def blocks(footprint: Footprint) -> tuple[tuple[str, tuple[int | None, ...]], ...]:
    """(kind of block, its state's bytes under each optimizer), for a table with a column an optimizer."""
    kinds = dict.fromkeys(kind for one in footprint.optimizers for kind in one.state_by_block)
    counted: Sequence[OptimizerFootprint] = [one for one in footprint.optimizers if one.state_by_block]
    return tuple((kind, tuple(one.state_by_block.get(kind) for one in counted)) for kind in kinds)


def _bar(footprint: Footprint, one: OptimizerFootprint, kept: int, most: int) -> Bar:
    total = None if one.state_bytes is None else kept + one.state_bytes
    known = one.state_bytes is not None and footprint.baseline_bytes
    return Bar(
        one=one,
        total_bytes=total,
        share=(one.state_bytes or 0) / (footprint.baseline_bytes or 1) if known else None,
        parameters_width=round(100 * footprint.parameter_bytes / most, 2),
        gradients_width=round(100 * footprint.gradient_bytes / most, 2),
        state_width=round(100 * (one.state_bytes or 0) / most, 2),
        device_gb=next((size for size in DEVICES_GB if total is not None and total <= size * 1e9), None),
    )


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
        ("optimizer state, in the optimizer's colour", [bar.one.state_bytes or 0 for bar in rows], own),
    ]
    data = [
        {
            "type": "bar", "orientation": "h", "name": name, "x": values, "y": names, "width": 0.6,
            "marker": {"color": colour},
            "hovertemplate": f"{name}: %{{x:,}} bytes<extra>%{{y}}</extra>",
        }
        for name, values, colour in kept
    ]  # fmt: skip
    layout = layout_of(theme, x_title="bytes during training, without activations", y_title="")
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
