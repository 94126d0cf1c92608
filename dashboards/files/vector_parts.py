"""What figures as files are made of: axes, lines, marks with their whiskers and words, bars, cells of heat maps.

A scale is linear, logarithmic, of dates (Plotly's milliseconds, matplotlib's days) or of names, which stand one after
another as they first appear. Bars stand beside each other (`barmode: group`), on each other (`stack`), or each for
itself; with a `base` and colours that are numbers they are cells, which is how our heat maps are made.
"""

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dashboards.palette import Theme

DPI = 96.0
"""CSS pixels an inch: sizes in figures are CSS pixels."""
POINTS = 72.0 / DPI
"""Points in a CSS pixel."""
DASHES = {"solid": "-", "dash": (0, (5, 3)), "dot": (0, (1.2, 2)), "dashdot": (0, (5, 2, 1.2, 2))}
SYMBOLS = {
    "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P", "pentagon": "p", "star": "*",
    "hexagon": "h", "x": "X", "triangle-down": "v",
}  # fmt: skip
HATCHES = {"/": "///", ".": "...", "x": "xx"}
RGBA = re.compile(r"rgba\((\d+),\s*(\d+),\s*(\d+),\s*([\d.]+)\)")

Colour = Any
"""What matplotlib takes: `#rrggbb`, or red, green, blue and alpha between 0 and 1."""


def letters(text: str) -> str:
    """What Plotly's pseudo-HTML shows, letter by letter; line breaks stay."""
    return html.unescape(re.sub(r"<[^>]*>", "", text.replace("<br>", "\n")))


def numbers(values: Iterable[Any]) -> list[float]:
    """Gaps are not-a-number."""
    return [math.nan if value is None else float(value) for value in values]


def colour(text: Any) -> Colour:
    """A colour as matplotlib takes it; "none" where there is none."""
    found = RGBA.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return text or "none"
    red, green, blue, alpha = found.groups()
    return int(red) / 255, int(green) / 255, int(blue) / 255, float(alpha)


def as_list(value: Any, count: int) -> list[Any]:
    """One value for each of `count` marks, where a figure gives one for all of them."""
    return list(value) if isinstance(value, list | tuple) else [value] * count


def first_value(value: Any) -> Any:
    """The value of the first mark."""
    return (value[0] if value else None) if isinstance(value, list | tuple) else value


DAY_MILLISECONDS = 86_400_000.0


class AxisScale:
    """One axis: its layout, and the values that stand on it."""

    def __init__(self, layout: Mapping[str, Any], values: Iterable[Any]) -> None:
        """`values`: of every trace on this axis, in the order of drawing."""
        self.layout = layout
        self.names = list(dict.fromkeys(value for value in values if isinstance(value, str)))
        """Empty where the values are numbers."""
        self.is_log = layout.get("type") == "log"
        self.is_date = layout.get("type") == "date"

    def places(self, values: Sequence[Any]) -> list[float]:
        """Where the values stand, in matplotlib's numbers."""
        if self.names:
            return [float(self.names.index(value)) for value in values]
        if self.is_date:
            return [value / DAY_MILLISECONDS for value in numbers(values)]
        return numbers(values)

    def has_words(self) -> bool:
        """Whether words stand at its ticks, which may be long."""
        return bool(self.names or self.layout.get("ticktext"))

    def stands_above(self) -> bool:
        """Whether words stand above the plot, at each tick one."""
        return self.has_words() and self.layout.get("side") == "top"

    def dress(self, axis: Any, theme: Theme) -> None:
        """Give a matplotlib axis its ends, ticks, grid and title."""
        self._scale(axis)
        self._ticks(axis)
        if self.layout.get("zeroline"):
            line = axis.axes.axvline if axis.axis_name == "x" else axis.axes.axhline
            line(0, color=colour(self.layout.get("zerolinecolor", theme.line)), linewidth=0.8, zorder=1)
        if self.layout.get("showgrid", True):
            axis.grid(visible=True, color=theme.line, linewidth=0.6)
            axis.axes.set_axisbelow(True)
        if text := letters(self.layout.get("title", {}).get("text", "")):
            axis.set_label_text(text, color=theme.muted, size=8.5)
        if self.layout.get("side") == "top":
            axis.tick_top()
        if self.layout.get("visible") is False:
            axis.set_visible(False)
            axis.axes.spines[{"x": "bottom", "y": "left"}[axis.axis_name]].set_visible(False)

    def _scale(self, axis: Any) -> None:
        limit = axis.axes.set_xlim if axis.axis_name == "x" else axis.axes.set_ylim
        if self.is_log:
            (axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale)("log")
        if self.layout.get("range"):
            limit(*((10**end if self.is_log else end) for end in self.layout["range"]))
        elif self.names:
            ends = (-0.6, len(self.names) - 0.4)
            limit(*(reversed(ends) if self.layout.get("autorange") == "reversed" else ends))

    def _ticks(self, axis: Any) -> None:
        from matplotlib import dates, ticker  # takes half a second: loaded with the first file

        form = str(self.layout.get("tickformat", ""))
        if self.names:
            axis.set_ticks(range(len(self.names)), [letters(name) for name in self.names])
        elif self.layout.get("tickvals") is not None:
            values = self.layout["tickvals"]
            texts = self.layout.get("ticktext") or [f"{value:g}" for value in values]
            axis.set_major_locator(ticker.FixedLocator(values))
            axis.set_major_formatter(ticker.FixedFormatter([letters(text) for text in texts]))
            axis.set_minor_locator(ticker.NullLocator())
        elif self.is_date:
            locator = dates.AutoDateLocator(maxticks=7)  # type: ignore[no-untyped-call]  # matplotlib's
            axis.set_major_locator(locator)
            axis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]  # as above
        elif form.endswith("%"):
            axis.set_major_formatter(ticker.PercentFormatter(1.0, decimals=0))
        elif self.is_log:  # plain numbers: matplotlib's own are formulas
            low, high = axis.get_view_interval()
            whole_decades = low > 0 and high / low >= DECADE
            axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)) if whole_decades else ticker.MaxNLocator(5))
            axis.set_major_formatter(ticker.FuncFormatter(lambda value, _place: f"{value:g}"))
            axis.set_minor_formatter(ticker.NullFormatter())
        if self.layout.get("dtick") and not self.is_log:
            step, first = self.layout["dtick"], self.layout.get("tick0", 0)
            axis.set_major_locator(ticker.MultipleLocator(step, offset=first % step))
        elif self.layout.get("nticks") and not self.is_log and not self.names:
            axis.set_major_locator(ticker.MaxNLocator(self.layout["nticks"]))


DECADE = 10.0
BAR_WIDTH = 0.7
"""Of the room between two names, where a figure does not say."""


def scatter(
    axes: Any, trace: Mapping[str, Any], before: Mapping[str, Any], x: AxisScale, y: AxisScale, theme: Theme
) -> None:
    """A line, marks, or both, with the band down to the trace `before` where it is filled."""
    xs, ys = x.places(trace["x"]), y.places(trace["y"])
    line, mode, alpha = trace.get("line", {}), trace["mode"], trace.get("opacity")
    if trace.get("fill") == "tonexty":
        axes.fill_between(xs, y.places(before["y"]), ys, color=colour(trace["fillcolor"]), linewidth=0)
    width = line.get("width", 1.4) * POINTS
    if "lines" in mode and width:
        steps = {"hv": "steps-post"}.get(line.get("shape", ""), "default")
        dash = DASHES.get(line.get("dash", "solid"), "-")
        axes.plot(
            xs, ys, color=colour(line.get("color")), linewidth=width, linestyle=dash, alpha=alpha, drawstyle=steps,
            solid_capstyle="butt",
        )  # fmt: skip
    if "markers" in mode:
        _marks(axes, xs, ys, trace, alpha)
    for name in ("x", "y"):
        if error := trace.get(f"error_{name}"):
            spread = [numbers(error.get("arrayminus", error["array"])), numbers(error["array"])]
            axes.errorbar(
                xs, ys, **{f"{name}err": spread}, fmt="none", ecolor=colour(error.get("color")), capsize=3,
                elinewidth=error.get("thickness", 1.2) * POINTS,
            )  # fmt: skip
    if "text" in mode:
        _words(axes, xs, ys, trace, theme)


def _marks(axes: Any, xs: Sequence[float], ys: Sequence[float], trace: Mapping[str, Any], alpha: float | None) -> None:
    """Marks of one symbol at a time: matplotlib draws no others."""
    marker = trace.get("marker", {})
    edge, count = marker.get("line", {}), len(xs)
    found = edge.get("color") or marker.get("color") or trace.get("line", {}).get("color")
    colours = [colour(each) for each in as_list(found, count)]
    symbols = [str(each) for each in as_list(marker.get("symbol", "circle"), count)]
    look: dict[str, Any] = {"s": (marker.get("size", 6) * POINTS) ** 2, "alpha": alpha, "zorder": 3, "clip_on": False}
    for symbol in dict.fromkeys(symbols):
        mine = [place for place in range(count) if symbols[place] == symbol]
        at = [xs[place] for place in mine], [ys[place] for place in mine]
        own = [colours[place] for place in mine]
        name, hollow = symbol.removesuffix("-open"), symbol.endswith("-open")
        width = edge.get("width", 1.2 if hollow else 0) * POINTS
        if name.endswith("-thin"):
            axes.scatter(*at, marker="x", c=own, linewidths=width or 1.2, **look)
        else:
            faces = "none" if hollow else own
            shape = SYMBOLS.get(name, "o")
            axes.scatter(*at, marker=shape, facecolors=faces, edgecolors=own, linewidths=width, **look)


def _words(axes: Any, xs: Sequence[float], ys: Sequence[float], trace: Mapping[str, Any], theme: Theme) -> None:
    """What is written beside marks: `top right` is above and to the right of them."""
    vertical, _, horizontal = trace.get("textposition", "middle center").partition(" ")
    right = {"left": -6, "center": 0, "right": 6}[horizontal]
    up = {"top": 5, "middle": 0, "bottom": -5}[vertical]
    font = trace.get("textfont", {})
    for x, y, text in zip(xs, ys, as_list(trace["text"], len(xs)), strict=False):
        axes.annotate(
            letters(text).strip(), (x, y), xytext=(right, up), textcoords="offset points", annotation_clip=False,
            ha={"left": "right", "center": "center", "right": "left"}[horizontal],
            va={"top": "bottom", "middle": "center", "bottom": "top"}[vertical],
            size=font.get("size", 11) * POINTS, color=colour(font.get("color", theme.muted)),
        )  # fmt: skip


class Bars:
    """The bars of one pair of axes, which know of one another where they share places."""

    def __init__(self, traces: Sequence[Mapping[str, Any]], mode: str) -> None:
        """`traces`: all bars on these axes; `mode`: the layout's `barmode`."""
        self._count, self._mode = len(traces), mode
        self._ends: dict[float, float] = {}
        """Place → where the stack ends by now."""
        self._drawn = 0

    def draw(self, axes: Any, trace: Mapping[str, Any], x: AxisScale, y: AxisScale, theme: Theme) -> None:
        """One trace of them."""
        sideways = trace.get("orientation") == "h"
        values = numbers(trace["x"] if sideways else trace["y"])
        if "base" in trace:
            _cells(axes, trace, x.places(trace["x"]), values)
            return
        places = y.places(trace["y"]) if sideways else x.places(trace["x"])
        width = trace.get("width", BAR_WIDTH)
        if self._mode == "group":
            width /= self._count
            places = [place + width * (self._drawn - (self._count - 1) / 2) for place in places]
        starts = [self._ends.get(place, 0.0) if self._mode == "stack" else 0.0 for place in places]
        marker = trace["marker"]
        look: dict[str, Any] = {"color": [colour(each) for each in as_list(marker["color"], len(places))]}
        if hatch := HATCHES.get(marker.get("pattern", {}).get("shape", "")):
            look |= {"hatch": hatch, "edgecolor": marker["pattern"].get("fgcolor", theme.surface), "linewidth": 0}
        if sideways:
            axes.barh(places, values, width, left=starts, **look)
        else:
            axes.bar(places, values, width, bottom=starts, **look)
        self._ends |= {place: start + value for place, start, value in zip(places, starts, values, strict=True)}
        self._drawn += 1
        if trace.get("textposition") != "none":
            _end_labels(axes, trace, places, values, theme, sideways=sideways)


def _end_labels(
    axes: Any,
    trace: Mapping[str, Any],
    places: Sequence[float],
    values: Sequence[float],
    theme: Theme,
    *,
    sideways: bool,
) -> None:
    for place, value, text in zip(places, values, trace.get("text", []), strict=False):
        at = (value, place) if sideways else (place, value)
        axes.annotate(
            letters(text), at, xytext=(4, 0) if sideways else (0, 4), textcoords="offset points", size=8,
            va="center" if sideways else "bottom", ha="left" if sideways else "center", color=theme.ink,
        )  # fmt: skip


def _cells(axes: Any, trace: Mapping[str, Any], places: Sequence[float], heights: Sequence[float]) -> None:
    """Bars that hang in the air, as one object: thousands of single ones would take seconds."""
    from matplotlib.collections import PolyCollection  # takes half a second: loaded with the first file

    half = trace.get("width", 1) / 2
    corners = [
        ((x - half, low), (x + half, low), (x + half, low + height), (x - half, low + height))
        for x, low, height in zip(places, numbers(trace["base"]), heights, strict=True)
    ]
    cells = PolyCollection(corners, linewidths=0, antialiaseds=False)
    cells.set_facecolor([colour(each) for each in as_list(trace["marker"]["color"], len(places))])
    axes.add_collection(cells)
    axes.autoscale_view()
