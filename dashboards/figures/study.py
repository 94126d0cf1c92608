"""The figure of a finding: every measured value with its interval, and the paper's beside it. Pure."""

from textwrap import wrap

from dashboards.figures.base import Figure, add_legend, figure, layout_of, plain, trace, whiskers
from dashboards.palette import HUES, THEMES, ThemeName
from dashboards.text import formats
from orchestrator.studies.findings import Finding, Measure

ROW_PIXELS = 26
AXIS_LETTERS = 30
"""Of a line of the axis's title: on a phone a longer one would be cut."""
LONGEST_NAME = 34
"""Characters of a row's name: longer ones would leave no room for the figure on a phone."""


def study_figure(finding: Finding | None, axis: str, theme: ThemeName) -> Figure:
    """One row a measure, the first one on top; a filled mark is ours, an open one the paper's."""
    measures = [each for each in (finding.measures if finding else ()) if each.value is not None]
    blue, vermillion = (HUES[name][int(theme == "dark")] for name in ("blue", "vermillion"))
    values, names = [each.value or 0.0 for each in measures], list(map(_name, measures))
    claims = [(each.claimed, _name(each)) for each in measures if each.claimed is not None]
    data = [
        trace(
            "markers", values, names, name="measured", showlegend=True, marker={"size": 9, "color": blue},
            error_x=whiskers(values, [(each.low, each.high) for each in measures], blue),
            hovertemplate="%{y}: %{x:.4~g}<extra>measured</extra>",
        ),
        trace(
            "markers", [value for value, _ in claims], [name for _, name in claims], name="the paper's",
            showlegend=True, hovertemplate="%{y}: %{x:.4~g}<extra>the paper's</extra>",
            marker={"size": 10, "symbol": "diamond-open", "line": {"width": 2}, "color": vermillion},
        ),
    ]  # fmt: skip
    layout = layout_of(theme, x_title="<br>".join(map(plain, wrap(axis, AXIS_LETTERS))), y_title="")
    layout["yaxis"] |= {"autorange": "reversed", "type": "category", "ticks": ""}
    layout["xaxis"] |= {"zeroline": True, "zerolinecolor": THEMES[theme].muted}
    add_legend(layout)
    layout["showlegend"] = bool(claims)
    layout["margin"] |= {"l": 24, "t": 34}
    layout["height"] = 110 + ROW_PIXELS * len(measures)
    return figure(data, layout, theme, empty="Measured values will appear here.")


def _name(measure: Measure) -> str:
    name = formats.page_sentence(measure.name)
    return plain(name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…")
