"""The figure of a finding: every measured value with its interval, and the paper's beside it. Pure."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from dashboards.figures.base import Figure, add_axes, add_legend, figure, layout_of, plain, trace, whiskers
from dashboards.palette import HUES, THEMES, ThemeName
from dashboards.text import formats
from orchestrator.studies.claims import Finding, Measure

ROW_PIXELS, LINE_PIXELS = 26, 14
"""Of a row, and of each further line of its name."""
AXIS_LETTERS = 30
"""Of a line of the axis's title: on a phone a longer one would be cut."""
NAME_LETTERS = 34
"""Of a line of a row's name: longer ones would leave no room for the figure on a phone."""
UNITS = (
    ("times fewer", "times"), ("speed-up", "times"), ("optimizer state by", "ratio of bytes"),
    ("optimizer state per parameter", "bytes"), ("loss", "nats"),
)  # fmt: skip
"""What a measure's name says that it is of → its unit."""


def study_figure(finding: Finding | None, axis: str, theme: ThemeName) -> Figure:
    """One row a measure, the first one on top; a filled mark is ours, an open one the paper's. Measures of one unit
    share an axis, below which stands what their names have in common."""
    groups: dict[str, list[Measure]] = {}
    for each in finding.measures if finding else ():
        if each.value is not None:
            groups.setdefault(_unit(each.name), []).append(each)
    layout = layout_of(theme, x_title="", y_title="")
    add_legend(layout)
    layout["margin"] |= {"l": 24, "t": 34, "b": 8}
    named = [_names(measures, axis, unit, one_of=len(groups)) for unit, measures in groups.items()]
    heights = [_heights(names, title) for names, title in named]
    total = sum(map(sum, heights)) or ROW_PIXELS
    layout["height"] = 42 + total
    data, top = [], 1.0
    for index, (measures, (names, title), (rows, below)) in enumerate(
        zip(groups.values(), named, heights, strict=True), start=1
    ):
        low = top - rows / total
        on = add_axes(layout, theme, index, (0.0, 1.0), (max(low, 0.0), top), title)
        layout[f"yaxis{on['yaxis'][1:]}"] |= {"autorange": "reversed", "type": "category", "ticks": "", "nticks": 0}
        layout[f"xaxis{on['xaxis'][1:]}"] |= {"zeroline": True, "zerolinecolor": THEMES[theme].muted}
        data += [each | on for each in _marks(measures, names, theme, is_named=index == 1)]
        top = low - below / total
    layout["showlegend"] = any(each.claimed is not None for measures in groups.values() for each in measures)
    return figure(data, layout, theme, empty="Measured values will appear here.")


def _heights(names: Sequence[str], title: str) -> tuple[int, int]:
    """Pixels of the rows, and of what stands below them."""
    rows = ROW_PIXELS * len(names) + LINE_PIXELS * sum(name.count("<br>") for name in names)
    return rows + 8, 44 + 16 * title.count("<br>")


def _marks(measures: Sequence[Measure], names: Sequence[str], theme: ThemeName, *, is_named: bool) -> list[Any]:
    """The measured values with their intervals, and the paper's; `is_named`: they stand in the legend."""
    blue, vermillion = (HUES[name][int(theme == "dark")] for name in ("blue", "vermillion"))
    values = [each.value or 0.0 for each in measures]
    claims = [(each.claimed, name) for each, name in zip(measures, names, strict=True) if each.claimed is not None]
    return [
        trace(
            "markers", values, names, name="measured", showlegend=is_named, legendgroup="measured",
            marker={"size": 9, "color": blue}, error_x=whiskers(values, _drawn_ends(measures), blue),
            hovertemplate="%{y}: %{x:.4~g}<extra>measured</extra>",
        ),
        trace(
            "markers", [value for value, _ in claims], [name for _, name in claims], name="the paper's",
            showlegend=is_named, legendgroup="paper", hovertemplate="%{y}: %{x:.4~g}<extra>the paper's</extra>",
            marker={"size": 10, "symbol": "diamond-open", "line": {"width": 2}, "color": vermillion},
        ),
    ]  # fmt: skip


def _drawn_ends(measures: Sequence[Measure]) -> list[tuple[float | None, float | None]]:
    """The ends of the intervals; where one is unknown, as far as anything is drawn."""
    shown = [end for each in measures for end in (each.value, each.low, each.high, each.claimed) if end is not None]
    return [
        (None, None)
        if each.low is None and each.high is None
        else (min(shown) if each.low is None else each.low, max(shown) if each.high is None else each.high)
        for each in measures
    ]


def _names(measures: Sequence[Measure], axis: str, unit: str, *, one_of: int) -> tuple[list[str], str]:
    """The rows' names by what tells them apart, and their axis's title with the rest: the study's own where there is
    one axis, else the unit."""
    parts = [each.name.split(", ") for each in measures]
    shared = [part for part in parts[0] if all(part in each for each in parts)] if len(parts) > 1 else []
    own = [[part for part in each if part not in shared] for each in parts]
    if not all(own) or len({*map(tuple, own)}) < len({*map(tuple, parts)}):
        shared, own = [], parts
    words = [", ".join(shared)] if shared else []
    if one_of > 1:
        title = ", ".join([*words, unit] if unit else words) or axis
    else:
        title = ": ".join([axis, *words])
        title += f", {unit}" if unit and unit not in title else ""
    return [_lines(formats.page_sentence(", ".join(each)), NAME_LETTERS) for each in own], _lines(title, AXIS_LETTERS)


def _unit(name: str) -> str:
    """Empty where the name does not tell: it is the axis's then."""
    return next((unit for words, unit in UNITS if words in name), "")


def _lines(text: str, letters: int) -> str:
    return "<br>".join(map(plain, wrap(text, letters)))
