"""The traces of figures as files: lines, marks with their whiskers and words, bars, cells of heat maps.

Bars stand beside each other (`barmode: group`), on each other (`stack`), or each for itself; with a `base` and colours
that are numbers they are cells, which is how our heat maps are made.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.files.vector_axes import DASHES, HATCHES, POINTS, SYMBOLS, Scale, as_list, colour, letters, numbers
from dashboards.palette import Theme

BAR_WIDTH = 0.7
"""Of the room between two names, where a figure does not say."""


def scatter(axes: Any, trace: Mapping[str, Any], before: Mapping[str, Any], x: Scale, y: Scale, theme: Theme) -> None:
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

    def draw(self, axes: Any, trace: Mapping[str, Any], x: Scale, y: Scale, theme: Theme) -> None:
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
            _at_the_ends(axes, trace, places, values, theme, sideways=sideways)


def _at_the_ends(
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
    from matplotlib.collections import PolyCollection

    half = trace.get("width", 1) / 2
    corners = [
        ((x - half, low), (x + half, low), (x + half, low + height), (x - half, low + height))
        for x, low, height in zip(places, numbers(trace["base"]), heights, strict=True)
    ]
    colours = trace["marker"]["color"]
    cells = PolyCollection(corners, linewidths=0, antialiaseds=False)
    if isinstance(colours, list) and all(isinstance(each, int | float) for each in colours):
        cells.set_array(numbers(colours))
        cells.set_cmap(str(trace["marker"].get("colorscale", "Viridis")).lower())
    else:
        cells.set_facecolor([colour(each) for each in as_list(colours, len(places))])
    axes.add_collection(cells)
    axes.autoscale_view()
