"""The figure of a finding: every measured value with its interval, and the paper's beside it. Pure."""

from collections.abc import Sequence
from textwrap import wrap

from dashboards.figures.base import Figure, add_legend, figure, layout_of, plain, trace, whiskers
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
    """One row a measure, the first one on top; a filled mark is ours, an open one the paper's. What all rows have in
    common is said once, below the axis; where their units differ, each row names its own."""
    measures = [each for each in (finding.measures if finding else ()) if each.value is not None]
    blue, vermillion = (HUES[name][int(theme == "dark")] for name in ("blue", "vermillion"))
    names, title = _names(measures, axis)
    values = [each.value or 0.0 for each in measures]
    claims = [(each.claimed, name) for each, name in zip(measures, names, strict=True) if each.claimed is not None]
    data = [
        trace(
            "markers", values, names, name="measured", showlegend=True, marker={"size": 9, "color": blue},
            error_x=whiskers(values, _drawn_ends(measures), blue),
            hovertemplate="%{y}: %{x:.4~g}<extra>measured</extra>",
        ),
        trace(
            "markers", [value for value, _ in claims], [name for _, name in claims], name="the paper's",
            showlegend=True, hovertemplate="%{y}: %{x:.4~g}<extra>the paper's</extra>",
            marker={"size": 10, "symbol": "diamond-open", "line": {"width": 2}, "color": vermillion},
        ),
    ]  # fmt: skip
    layout = layout_of(theme, x_title=_lines(title, AXIS_LETTERS), y_title="")
    layout["yaxis"] |= {"autorange": "reversed", "type": "category", "ticks": ""}
    layout["xaxis"] |= {"zeroline": True, "zerolinecolor": THEMES[theme].muted}
    add_legend(layout)
    layout["showlegend"] = bool(claims)
    layout["margin"] |= {"l": 24, "t": 34}
    below = 22 + 16 * layout["xaxis"]["title"]["text"].count("<br>") + 16
    further = sum(name.count("<br>") for name in names)
    layout["height"] = 80 + below + ROW_PIXELS * len(measures) + LINE_PIXELS * further
    # A file keeps a share of its height below the axis, which is too little for the title of a low figure.
    layout["yaxis"]["domain"] = [max(0.0, below / layout["height"] - 0.14) / 0.75, 1]
    return figure(data, layout, theme, empty="Measured values will appear here.")


def _drawn_ends(measures: Sequence[Measure]) -> list[tuple[float | None, float | None]]:
    """The ends of the intervals; where one is unknown, as far as anything is drawn."""
    shown = [end for each in measures for end in (each.value, each.low, each.high, each.claimed) if end is not None]
    return [
        (None, None)
        if each.low is None and each.high is None
        else (min(shown) if each.low is None else each.low, max(shown) if each.high is None else each.high)
        for each in measures
    ]


def _names(measures: Sequence[Measure], axis: str) -> tuple[list[str], str]:
    """The rows' names by what tells them apart, and the axis's title with the rest."""
    parts = [each.name.split(", ") for each in measures]
    shared = [part for part in parts[0] if all(part in each for each in parts)] if len(parts) > 1 else []
    own = [[part for part in each if part not in shared] for each in parts]
    if not all(own) or len({*map(tuple, own)}) < len({*map(tuple, parts)}):
        shared, own = [], parts
    units = [_unit(each.name) for each in measures]
    title = f"{axis}: {', '.join(shared)}" if shared else axis
    if len({*units}) > 1:
        own = [[*each, unit] if unit else each for each, unit in zip(own, units, strict=True)]
        title += " (rows differ in unit)"
    elif any(units) and units[0] not in title:
        title += f", {units[0]}"
    return [_lines(formats.page_sentence(", ".join(each)), NAME_LETTERS) for each in own], title


def _unit(name: str) -> str:
    """Empty where the name does not tell: it is the axis's then."""
    return next((unit for words, unit in UNITS if words in name), "")


def _lines(text: str, letters: int) -> str:
    return "<br>".join(map(plain, wrap(text, letters)))
