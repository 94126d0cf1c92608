"""The figure of a finding: every measured value with its interval, and the paper's beside it. Pure."""

from dashboards.figures.base import Figure, figure, layout_of, plain
from dashboards.palette import HUES, THEMES, ThemeName
from orchestrator.studies.findings import Finding, Measure

ROW_PIXELS = 26
LONGEST_NAME = 34
"""Characters of a row's name: longer ones would leave no room for the figure on a phone."""


def study_figure(finding: Finding | None, axis: str, theme: ThemeName) -> Figure:
    """One row a measure, the first one on top; a filled mark is ours, an open one the paper's."""
    measures = [each for each in (finding.measures if finding else ()) if each.value is not None]
    dark = int(theme == "dark")
    data = [
        {
            "type": "scatter", "mode": "markers", "name": "measured",
            "x": [each.value for each in measures], "y": [_name(each) for each in measures],
            "error_x": _whiskers(measures, HUES["blue"][dark]),
            "marker": {"size": 9, "color": HUES["blue"][dark]},
            "hovertemplate": "%{y}: %{x:.4~g}<extra>measured</extra>",
        },
        {
            "type": "scatter", "mode": "markers", "name": "the paper's",
            "x": [each.claimed for each in measures if each.claimed is not None],
            "y": [_name(each) for each in measures if each.claimed is not None],
            "marker": {"size": 10, "symbol": "diamond-open", "line": {"width": 2}, "color": HUES["vermillion"][dark]},
            "hovertemplate": "%{y}: %{x:.4~g}<extra>the paper's</extra>",
        },
    ]  # fmt: skip
    layout = layout_of(theme, x_title=plain(axis), y_title="")
    layout["yaxis"] |= {"autorange": "reversed", "type": "category", "ticks": ""}
    layout["xaxis"] |= {"zeroline": True, "zerolinecolor": THEMES[theme].muted}
    layout["legend"] = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}
    layout["showlegend"] = any(each.claimed is not None for each in measures)
    layout["margin"] |= {"l": 24, "t": 34}
    layout["height"] = 110 + ROW_PIXELS * len(measures)
    return figure(data, layout, theme, empty="Measured values will appear here.")


def _name(measure: Measure) -> str:
    name = measure.name
    return plain(name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…")


def _whiskers(measures: list[Measure], colour: str) -> dict[str, object]:
    """Intervals need not lie evenly around their value."""
    above = [0.0 if one.high is None or one.value is None else max(one.high - one.value, 0.0) for one in measures]
    below = [0.0 if one.low is None or one.value is None else max(one.value - one.low, 0.0) for one in measures]
    style = {"color": colour, "thickness": 1.5, "width": 4}
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, **style}
