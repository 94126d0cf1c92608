"""The shared parts of all figures: axes and layouts in the page's neutral colours, lines, text that Plotly cannot
misread.

Every name that a person chose passes `plain()`: Plotly reads text as pseudo-HTML.
"""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np

from dashboards.data.reader import Reader, Snapshot
from dashboards.data.series import numbers
from dashboards.palette import THEMES, ThemeName
from dashboards.text import formats
from dashboards.text.formats import LOSS_IN_NATS
from dashboards.view_state import ViewState
from orchestrator.columns import Array
from orchestrator.records import Comparison

Figure = dict[str, Any]
"""`{"data": [...], "layout": {...}}`, as Plotly.react takes it."""

FONT = 'Inter, -apple-system, BlinkMacSystemFont, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial'
LINE_LETTERS = 36
"""The letters in a line of an empty figure's sentence: Plotly cuts a line that is wider than a phone."""

MARGIN = {"l": 60, "r": 16, "t": 18, "b": 46}
"""The margin for titles and numbers of four digits: if Plotly finds too little room, it draws the whole figure
again."""
HEADROOM = 1.05
"""Loss axes end this far above the untrained loss: a diverging run leaves the figure instead of flattening it."""
LINE_SHARE = 0.07
"""The share of a figure's height that a line above the plot takes."""
MOST_BYTE_TICKS = 5
BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
CIVIDIS = ("#00224e", "#1a386f", "#434e6c", "#61656f", "#7d7c78", "#9b9476", "#bcae6c", "#dec958", "#fee838")
"""Nuñez, Anderton and Renslow (2018), doi:10.1371/journal.pone.0199239, at equal steps: all eyes see the same order."""


@dataclass(frozen=True, kw_only=True)
class ExperimentView:
    """The source of an experiment's figure, or of a figure of one cell."""

    reader: Reader
    """Reads series and attempts, for the figures that need more than the snapshot."""
    snapshot: Snapshot
    state: ViewState
    theme: ThemeName
    narrow: bool = False
    candidate: str = ""
    """The candidate of a sweep whose hyperparameters are drawn; empty: the best one."""
    panel: str = ""
    """The panel that is asked for, as an address says it."""


def bytes_axis(high: float, low: float = 0.0) -> dict[str, Any]:
    """Return ticks of a linear axis of bytes from `low` to `high`, written as tables write sizes: Plotly's own say
    `500MB`."""
    step = round_step(max(high - low, 1.0) / MOST_BYTE_TICKS)
    ticks = [step * index for index in range(math.ceil(low / step), math.ceil(high / step) + 1)]
    units = [formats.size(tick).partition(" ")[2] for tick in ticks]
    names = [f"{tick / BYTES[unit]:g} {unit}" if tick else "0" for tick, unit in zip(ticks, units, strict=True)]
    return {"tickvals": ticks, "ticktext": names}


def percent_ticks(step: float) -> dict[str, Any]:
    """Return ticks of an axis of shares of one, written as tables write them: Plotly's own say `20%`."""
    ticks = [step * index for index in range(round(1 / step) + 1)]
    return {"tickvals": ticks, "ticktext": [f"{100 * tick:.0f} %" for tick in ticks]}


def round_step(bound: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is at least `bound`."""
    base = 10.0 ** math.floor(math.log10(bound))
    return next(base * digit for digit in (1, 2, 5, 10) if base * digit >= bound)


def plain(text: str) -> str:
    """Return text that Plotly shows literally, without markup."""
    return html.escape(text, quote=False)


def layout_of(theme: ThemeName, *, x_title: str, y_title: str) -> dict[str, Any]:
    """Return the layout with one pair of axes; `yaxis2` is an invisible scale from 0 to 1 for marks that belong to no
    loss."""
    colours = THEMES[theme]
    return {
        "font": {"family": FONT, "size": 12, "color": colours.ink},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": dict(MARGIN),
        "xaxis": axis(theme, x_title),
        "yaxis": axis(theme, y_title),
        "yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": colours.surface, "bordercolor": colours.line, "namelength": -1,
            "font": {"family": FONT, "size": 12, "color": colours.ink},
        },
        "annotations": [],
        "showlegend": False,
        "dragmode": "zoom",
    }  # fmt: skip


def axis(theme: ThemeName, title: str) -> dict[str, Any]:
    """Return a quiet axis."""
    colours = THEMES[theme]
    return {
        "title": {"text": title, "font": {"size": 12, "color": colours.muted}, "standoff": 8},
        "gridcolor": colours.line,
        "linecolor": colours.line,
        "zeroline": False,
        "tickfont": {"size": 11, "color": colours.muted},
        "automargin": True,
    }


def final_loss_title(comparison: Comparison) -> str:
    """Return the title of an axis of final losses, with its unit: `final validation loss, nats per token`."""
    return f"final {comparison.loss_name}{LOSS_IN_NATS.removeprefix('loss') if comparison.loss_unit else ''}"


def trace(mode: str, x: Sequence[Any], y: Sequence[Any], **more: Any) -> dict[str, Any]:
    """Return lines (`lines`), marks (`markers`) or both; the page's legend names them unless `more` says otherwise."""
    return {"type": "scatter", "mode": mode, "x": x, "y": y, "showlegend": False} | more


def line(x: Array, y: Array, name: str, colour: str, width: float = 1.4, **more: Any) -> dict[str, Any]:
    """Return a line through the columns x and y, both of shape (n,)."""
    look = {"width": width, "color": colour}
    return trace("lines", numbers(x), numbers(y), name=name, line=look, hovertemplate="%{y:.4~g}") | more


def band(x: Sequence[Any], low: Sequence[Any], high: Sequence[Any], colour: str, alpha: float) -> list[dict[str, Any]]:
    """Return the two edges of an interval along x, filled between; it shows nothing on hover."""
    edge = {"hoverinfo": "skip", "line": {"width": 0, "color": colour}}
    filled = {"fill": "tonexty", "fillcolor": f"{colour}{round(255 * alpha):02x}"}
    return [trace("lines", x, low, **edge), trace("lines", x, high, **edge, **filled)]


def whiskers(values: Sequence[float], ends: Sequence[tuple[float | None, float | None]], colour: str) -> dict[str, Any]:
    """Return error bars from the (low, high) ends of intervals, which may be asymmetric."""
    pairs = list(zip(values, ends, strict=True))
    return {
        "type": "data",
        "symmetric": False,
        "array": [0.0 if high is None else max(high - value, 0.0) for value, (_, high) in pairs],
        "arrayminus": [0.0 if low is None else max(value - low, 0.0) for value, (low, _) in pairs],
        "color": colour,
        "thickness": 1.2,
        "width": 4,
    }


def horizontal_bars(rows: Sequence[str], values: Sequence[float], colours: Any, **more: Any) -> dict[str, Any]:
    """Return a bar to the right for each named row, the last one on top; thinner where there are few, lest one bar
    fills the figure."""
    width = 0.55 * min(1.0, (1 + len(rows)) / 5)
    bars = {"type": "bar", "orientation": "h", "x": values, "y": rows, "width": width}
    return bars | {"marker": {"color": colours}} | more


def add_legend(layout: dict[str, Any], **more: Any) -> None:
    """Name the traces in a row above the plot."""
    layout["showlegend"] = True
    layout["legend"] = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 11}} | more
    layout["margin"] |= {"t": 40}


Span = tuple[float, float]
"""The bounds of a range, as shares of the figure."""


def add_axes(
    layout: dict[str, Any], theme: ThemeName, index: int, x_span: Span, y_span: Span, title: str = ""
) -> dict[str, str]:
    """Return a further pair of axes, and what puts a trace on it: x1 and y1 are called x and y."""
    number = "" if index == 1 else str(index)
    layout[f"xaxis{number}"] = axis(theme, title) | {"domain": list(x_span), "anchor": f"y{number}", "nticks": 4}
    layout[f"yaxis{number}"] = axis(theme, "") | {"domain": list(y_span), "anchor": f"x{number}", "nticks": 4}
    return {"xaxis": f"x{number}", "yaxis": f"y{number}"}


def open_ends(
    border: Sequence[float], intervals: Iterable[tuple[float, float | None, float | None, str]], *, log: bool = False
) -> list[dict[str, Any]]:
    """Return an arrow at the border wherever an interval (x, low, high, colour) goes on beyond it, with where it ends.
    `border` is the range of the vertical axis, in exponents where that is a `log` one."""
    low, high = (10.0**end if log else end for end in border)
    marks = []
    for x, bottom, top, colour in intervals:
        for end, edge, symbol in ((bottom, low, "triangle-down"), (top, high, "triangle-up")):
            if end is not None and (end < low if edge == low else end > high):
                look = {"size": 9, "symbol": symbol, "color": colour}
                hover = f"interval extends to {end:.4g}<extra></extra>"
                marks.append(trace("markers", [x], [edge], name="", marker=look, hovertemplate=hover, cliponaxis=False))
    return marks


def heading(text: str, x: float, y: float, theme: ThemeName) -> dict[str, Any]:
    """Return the title of a small plot: its lower left corner as shares of the figure."""
    return {
        "text": text, "xref": "paper", "yref": "paper", "x": x, "y": y, "xanchor": "left", "yanchor": "bottom",
        "align": "left", "showarrow": False, "font": {"size": 12, "color": THEMES[theme].muted},
    }  # fmt: skip


def say_above(layout: dict[str, Any], text: str, letters: int, theme: ThemeName) -> None:
    """Say above the plot what is drawn, in lines of so many letters; lines after the first take their height from it,
    since a file has a title above them."""
    lines = wrap(text, letters, break_long_words=False)
    top = 1 - LINE_SHARE * (len(lines) - 1)
    if len(lines) > 1:
        layout["yaxis"] |= {"domain": [0, top]}
        layout["yaxis2"] |= {"domain": [0, top]}
    layout["annotations"].append(heading("<br>".join(lines), 0.0, top + 0.01, theme))
    layout["margin"] |= {"t": 30}


def figure(data: list[Any], layout: dict[str, Any], theme: ThemeName, *, empty: str) -> Figure:
    """Return a figure, or the sentence that says when there will be one."""
    if any(len(trace["x"]) for trace in data):
        return {"data": data, "layout": layout}
    bare = {key: layout[key] for key in ("font", "paper_bgcolor", "plot_bgcolor", "margin")}
    text = "<br>".join(wrap(empty, LINE_LETTERS))
    note = {"text": text, "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5}
    hidden = {"visible": False, "fixedrange": True}
    muted = {"font": {"size": 13, "color": THEMES[theme].muted}}
    return {"data": [], "layout": bare | {"xaxis": hidden, "yaxis": hidden, "annotations": [note | muted]}}


def shades(values: Sequence[float] | Array, low: float, high: float) -> list[str]:
    """Return the colour of each value as `#rrggbb`, from dark at `low` to bright at `high`. Plotly would find them
    itself, and complain of every bar whose colour is a number."""
    stops = np.array([[int(colour[index : index + 2], 16) for index in (1, 3, 5)] for colour in CIVIDIS], dtype=float)
    shares = (np.asarray(values, dtype=float) - low) / ((high - low) or 1.0) * (len(stops) - 1)
    parts = [np.interp(shares, range(len(stops)), part).round().astype(int) for part in stops.T]
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in zip(*parts, strict=True)]
