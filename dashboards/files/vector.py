"""Figures as SVG, PNG and PDF: our Plotly figures, drawn by matplotlib, offline and without a browser.

    axes ─ a scale (linear, logarithmic, of names) for each ─ traces (`scatter`, lying bars, cells) ─ words

It knows the features that our figures have, and no others; another kind of trace is a `FigureError`, never a picture
that lacks something. Text is drawn letter by letter: no mathematics, no markup. matplotlib takes half a second to load,
so this is imported with the first file; it is not made for several threads, so one figure is drawn at a time.
"""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from textwrap import shorten
from threading import Lock
from typing import Any
from warnings import catch_warnings, simplefilter

import matplotlib
from matplotlib import ticker
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure as Drawn
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from dashboards.figures.base import Figure
from dashboards.files.traces import FigureError, VectorFormat, as_list, first_value, letters
from dashboards.palette import THEMES, Theme, ThemeName

PNG_SCALE = 2.0
WIDTH_PIXELS, HEIGHT_PIXELS = 760, 430
DPI = 96.0
"""CSS pixels an inch: sizes in figures are CSS pixels."""
POINTS = 72.0 / DPI
"""Points in a CSS pixel."""
TITLE_LETTERS, TITLE_BOTTOM = 96, 0.93
"""The letters of a title that fit on a sheet; below them remains this share of its height."""
MOST_COLUMNS = 5
"""The most columns of names above a figure, or fewer if they are long."""
DASHES = {"solid": "-", "dash": (0, (5, 3)), "dot": (0, (1.2, 2)), "dashdot": (0, (5, 2, 1.2, 2))}
SYMBOLS = {
    "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P", "pentagon": "p", "star": "*",
    "hexagon": "h", "x": "X", "triangle-down": "v",
}  # fmt: skip
HATCHES = {"/": "///", ".": "...", "x": "xx"}
_DRAWING = Lock()


def vector(figure: Figure, form: VectorFormat, *, title: str = "", theme: ThemeName = "light") -> bytes:
    """Return the figure as a file; the same figure gives the same bytes. Raises `FigureError` for an unknown kind of
    trace."""
    with _DRAWING, catch_warnings():
        simplefilter("ignore")  # a letter that the font lacks is a box, and no reason to fail
        settings: dict[Any, Any] = {
            "svg.fonttype": "path", "svg.hashsalt": "adapm-bench", "font.family": ["DejaVu Sans"], "font.size": 9,
            "text.parse_math": False, "text.usetex": False, "axes.unicode_minus": True, "pdf.fonttype": 42,
            "hatch.linewidth": 0.7,
        }  # fmt: skip
        with matplotlib.rc_context(settings):
            drawn = Drawn(figsize=(WIDTH_PIXELS / DPI, HEIGHT_PIXELS / DPI), dpi=DPI)
            FigureCanvasAgg(drawn)
            drawn.set_facecolor(THEMES[theme].surface)
            Sheet(drawn, figure, theme, title).draw()
            buffer = io.BytesIO()
            # No date and no version of the program: equal figures are equal files.
            nothing: dict[str, Any] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
            nothing["pdf"] = {"CreationDate": None, "Creator": None, "Producer": None}
            drawn.savefig(buffer, format=form, dpi=DPI * (PNG_SCALE if form == "png" else 1), metadata=nothing[form])
    return buffer.getvalue()


class Sheet:
    """A figure on its way to matplotlib."""

    def __init__(self, drawn: Any, figure: Figure, theme: ThemeName, title: str) -> None:
        self._drawn, self._theme = drawn, THEMES[theme]
        self._title = shorten(title, TITLE_LETTERS, placeholder="…")
        self._data: list[dict[str, Any]] = figure["data"]
        self._layout: dict[str, Any] = figure["layout"]
        self._axes: dict[tuple[str, str], Any] = {}
        self._scales: dict[str, AxisScale] = {}
        self._top = TITLE_BOTTOM if title else 1.0
        self._box = (0.1, 0.14, 0.87, self._top - 0.18)
        """Left, bottom, width and height of the whole plot, as shares of the sheet."""

    def draw(self) -> None:
        """Draw every trace, then notes and legend on top."""
        self._drawn.text(0.015, 0.975, self._title, va="top", size=10, color=self._theme.ink, weight="bold")
        stacked: dict[float, float] = {}
        for lower_trace, trace in zip([{}, *self._data], self._data, strict=False):
            if trace["type"] not in ("scatter", "bar"):
                raise FigureError(f"figures with a {trace['type']!r} cannot be drawn as files; open their page instead")
            key = _key(trace)
            axes, x, y = self._axes_of(*key), self._scale(key[0]), self._scale(key[1])
            if trace["type"] == "scatter":
                _scatter(axes, trace, lower_trace, x, y)
            elif "base" in trace:
                _cells(axes, trace)
            else:
                _lying_bars(axes, trace, y, self._theme, stacked)
        main = self._axes_of("x", "y") if not self._data else next(iter(self._axes.values()))
        if all(self._scale(y).has_words for _, y in self._axes):
            self._make_room()
        for note in self._layout.get("annotations", []):
            self._note(main, note)
        self._legend(main)

    def _scale(self, name: str) -> "AxisScale":
        if name not in self._scales:
            layout = self._layout.get(f"{name[0]}axis{name[1:]}", {})
            values = (value for trace in self._data if name in _key(trace) for value in trace[name[0]])
            self._scales[name] = AxisScale(layout, values)
        return self._scales[name]

    def _axes_of(self, x: str, y: str) -> Any:
        """Return the axes that a trace is drawn on; `y2` laid over `y` has a scale of its own."""
        if (x, y) in self._axes:
            return self._axes[x, y]
        spec_x, spec_y = self._scale(x).layout, self._scale(y).layout
        if spec_y.get("overlaying") and (x, spec_y["overlaying"]) in self._axes:
            axes = self._axes[x, spec_y["overlaying"]].twinx()
            axes.set_ylim(*spec_y.get("range", (0, 1)))
            axes.axis("off")
        else:
            left, bottom, width, height = self._box
            (x0, x1), (y0, y1) = spec_x.get("domain", (0, 1)), spec_y.get("domain", (0, 1))
            axes = self._drawn.add_axes(
                (left + x0 * width, bottom + y0 * height, (x1 - x0) * width, (y1 - y0) * height), facecolor="none"
            )
            axes.spines[["top", "right"]].set_visible(False)
            axes.spines[["left", "bottom"]].set_color(self._theme.line)
            axes.tick_params(colors=self._theme.muted, labelsize=8, length=3, color=self._theme.line)
            axes.tick_params(which="minor", length=0)
            self._scale(x).dress(axes.xaxis, self._theme)
            self._scale(y).dress(axes.yaxis, self._theme)
        self._axes[x, y] = axes
        return axes

    def _make_room(self) -> None:
        """Move the left edge so that the longest name fits, as Plotly's automargin does."""
        self._drawn.canvas.draw()
        labels = [label for axes in self._axes.values() for label in axes.get_yticklabels()]
        widest = max((label.get_window_extent().width for label in labels), default=0.0)
        for axes in self._axes.values():
            left, bottom, width, height = axes.get_position().bounds
            label_gap = 24 + 16 * bool(axes.get_ylabel())
            wanted = max(left, min(0.45, (widest + label_gap) / self._drawn.bbox.width))
            axes.set_position((wanted, bottom, left + width - wanted, height))

    def _note(self, axes: Any, note: Mapping[str, Any]) -> None:
        """Write words at a point of the sheet (`paper`) or of an axis."""
        left, bottom, width, height = self._box
        on_paper = note.get("xref") == "paper", note.get("yref") == "paper"
        x = note["x"] if on_paper[0] else self._scale("x").positions([note["x"]])[0]
        y = note["y"] if on_paper[1] else self._scale("y").positions([note["y"]])[0]
        coordinates = {
            (True, True): self._drawn.transFigure,
            (False, True): axes.get_xaxis_transform(),
            (False, False): axes.transData,
        }[on_paper]
        axes.annotate(
            letters(note["text"]), (left + x * width, bottom + y * height) if all(on_paper) else (x, y),
            xycoords=coordinates, color=note["font"]["color"], size=8.5, annotation_clip=False,
            xytext=(note.get("xshift", 0) * POINTS, 0), textcoords="offset points",
            ha=note.get("xanchor", "center"), va=note.get("yanchor", "center"),
        )  # fmt: skip

    def _legend(self, axes: Any) -> None:
        """Draw the legend, an entry for each name; a lone line has none unless the figure demands one."""
        entries: dict[str, Any] = {}
        for trace in self._data:
            name = letters(trace.get("name", ""))
            # Small plots have titles of their own.
            if name and trace.get("hoverinfo") != "skip" and _key(trace)[0] == _key(self._data[0])[0]:
                _add_entry(entries, name, trace)
        if len(entries) < (1 if self._layout.get("showlegend") else 2):
            return
        look: dict[str, Any] = {
            "fontsize": 8, "framealpha": 0.85, "handlelength": 1.8, "edgecolor": "none",
            "facecolor": self._theme.surface, "labelcolor": self._theme.ink,
        }  # fmt: skip
        if self._layout.get("legend", {}).get("orientation") != "h":
            axes.legend(entries.values(), entries.keys(), loc="best", **look)
            return
        look |= {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "columnspacing": 1.2, "frameon": False}
        for columns in range(min(len(entries), MOST_COLUMNS), 0, -1):
            legend = axes.legend(entries.values(), entries.keys(), ncols=columns, **look)
            if legend.get_window_extent().x1 <= self._drawn.bbox.width:
                break
        # Further rows of names take their height from the plot below.
        left, bottom, width, height = axes.get_position().bounds
        names = legend.get_window_extent().y1 / self._drawn.bbox.height - bottom - height  # with their distance
        axes.set_position((left, bottom, width, min(height, self._top - names - bottom)))


class AxisScale:
    """An axis: its layout, and its values."""

    def __init__(self, layout: Mapping[str, Any], values: Iterable[Any]) -> None:
        """`values`: of every trace on this axis, in the order of drawing."""
        self.layout = layout
        self._names = list(dict.fromkeys(value for value in values if isinstance(value, str)))
        """Empty where the values are numbers."""
        self.has_words = bool(self._names or layout.get("ticktext"))
        """Whether words stand at its ticks, which may be long."""
        self._is_log = layout.get("type") == "log"

    def positions(self, values: Sequence[Any]) -> list[float]:
        """Return the positions of the values in matplotlib's numbers: names by their order."""
        if self._names:
            return [float(self._names.index(value)) for value in values]
        return _numbers(values)

    def dress(self, axis: Any, theme: Theme) -> None:
        """Give a matplotlib axis its ends, ticks, grid and title."""
        is_x = axis.axis_name == "x"
        limit = axis.axes.set_xlim if is_x else axis.axes.set_ylim
        if self._is_log:
            (axis.axes.set_xscale if is_x else axis.axes.set_yscale)("log")
        if self.layout.get("range"):
            limit(*((10**end if self._is_log else end) for end in self.layout["range"]))
        elif self._names:
            limit(-0.6, len(self._names) - 0.4)
        self._set_ticks(axis)
        if self.layout.get("zeroline"):
            line = axis.axes.axvline if is_x else axis.axes.axhline
            line(0, color=self.layout["zerolinecolor"], linewidth=0.8, zorder=1)
        if self.layout.get("showgrid", True):
            axis.grid(visible=True, color=theme.line, linewidth=0.6)
            axis.axes.set_axisbelow(True)
        if text := letters(self.layout.get("title", {}).get("text", "")):
            axis.set_label_text(text, color=theme.muted, size=8.5)
        if self.layout.get("visible") is False:
            axis.set_visible(False)
            axis.axes.spines["bottom" if is_x else "left"].set_visible(False)

    def _set_ticks(self, axis: Any) -> None:
        if self._names:
            axis.set_ticks(range(len(self._names)), [letters(name) for name in self._names])
        elif self.layout.get("tickvals") is not None:
            axis.set_major_locator(ticker.FixedLocator(self.layout["tickvals"]))
            axis.set_major_formatter(ticker.FixedFormatter([letters(text) for text in self.layout["ticktext"]]))
            axis.set_minor_locator(ticker.NullLocator())
        elif self._is_log:  # plain numbers: matplotlib's own are formulas
            low, high = axis.get_view_interval()
            whole_decades = low > 0 and high / low >= 10
            axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)) if whole_decades else ticker.MaxNLocator(5))
            axis.set_major_formatter(ticker.FuncFormatter(lambda value, _position: f"{value:g}"))
            axis.set_minor_formatter(ticker.NullFormatter())
        elif self.layout.get("nticks"):
            axis.set_major_locator(ticker.MaxNLocator(self.layout["nticks"]))


def _scatter(axes: Any, trace: Mapping[str, Any], lower_trace: Mapping[str, Any], x: AxisScale, y: AxisScale) -> None:
    """Draw a line, marks or both, with the band down to `lower_trace` if it is filled."""
    xs, ys = x.positions(trace["x"]), y.positions(trace["y"])
    line, mode, alpha = trace.get("line", {}), trace["mode"], trace.get("opacity")
    if trace.get("fill") == "tonexty":
        axes.fill_between(xs, y.positions(lower_trace["y"]), ys, color=_colour(trace["fillcolor"]), linewidth=0)
    width = line.get("width", 1.4) * POINTS
    if "lines" in mode and width:
        axes.plot(
            xs, ys, color=_colour(line.get("color")), linewidth=width, linestyle=DASHES[line.get("dash", "solid")],
            alpha=alpha, drawstyle="steps-post" if line.get("shape") == "hv" else "default", solid_capstyle="butt",
        )  # fmt: skip
    if "markers" in mode:
        _marks(axes, xs, ys, trace, alpha)
    if error := trace.get("error_y"):
        spread = [_numbers(error["arrayminus"]), _numbers(error["array"])]
        width = error["thickness"] * POINTS
        axes.errorbar(xs, ys, yerr=spread, fmt="none", ecolor=error["color"], capsize=3, elinewidth=width)


def _marks(axes: Any, xs: Sequence[float], ys: Sequence[float], trace: Mapping[str, Any], alpha: float | None) -> None:
    """Draw marks of one symbol at a time, as matplotlib requires."""
    marker = trace.get("marker", {})
    edge, count = marker.get("line", {}), len(xs)
    colours = [_colour(value) for value in as_list(_mark_colour(trace), count)]
    symbols = as_list(marker.get("symbol", "circle"), count)
    look: dict[str, Any] = {
        "s": (marker.get("size", 6) * POINTS) ** 2, "alpha": alpha, "zorder": 3,
        "clip_on": trace.get("cliponaxis", True),
    }  # fmt: skip
    for symbol in dict.fromkeys(symbols):
        rows = [row for row in range(count) if symbols[row] == symbol]
        spots = [xs[row] for row in rows], [ys[row] for row in rows]
        row_colours = [colours[row] for row in rows]
        name, hollow = symbol.removesuffix("-open"), symbol.endswith("-open")
        width = edge.get("width", 1.2 if hollow else 0) * POINTS
        if name.endswith("-thin"):
            axes.scatter(*spots, marker="x", c=row_colours, linewidths=width or 1.2, **look)
        else:
            faces = "none" if hollow else row_colours
            axes.scatter(
                *spots, marker=SYMBOLS[name], facecolors=faces, edgecolors=row_colours, linewidths=width, **look
            )


def _lying_bars(axes: Any, trace: Mapping[str, Any], y: AxisScale, theme: Theme, stacked: dict[float, float]) -> None:
    """Draw stacked horizontal bars, with their words at the end."""
    rows, lengths, marker = y.positions(trace["y"]), _numbers(trace["x"]), trace["marker"]
    look: dict[str, Any] = {"color": [_colour(value) for value in as_list(marker["color"], len(rows))]}
    if hatch := HATCHES.get(marker.get("pattern", {}).get("shape", "")):
        look |= {"hatch": hatch, "edgecolor": marker["pattern"]["fgcolor"], "linewidth": 0}
    axes.barh(rows, lengths, trace["width"], left=[stacked.get(row, 0.0) for row in rows], **look)
    for row, length, text in zip(rows, lengths, as_list(trace.get("text", ""), len(rows)), strict=True):
        stacked[row] = end = stacked.get(row, 0.0) + length
        look = {"xytext": (4, 0), "textcoords": "offset points", "size": 8, "va": "center", "color": theme.ink}
        axes.annotate(letters(text), (end, row), **look)


def _cells(axes: Any, trace: Mapping[str, Any]) -> None:
    """Draw floating bars as one object: thousands of single bars would take seconds."""
    half = trace["width"] / 2
    corners = [
        ((x - half, low), (x + half, low), (x + half, low + height), (x - half, low + height))
        for x, low, height in zip(trace["x"], trace["base"], trace["y"], strict=True)
    ]
    cells = PolyCollection(corners, linewidths=0, antialiaseds=False)
    cells.set_facecolor(trace["marker"]["color"])
    axes.add_collection(cells)


def _add_entry(entries: dict[str, Any], name: str, trace: Mapping[str, Any]) -> None:
    """Put into a legend what stands for a trace; traces of one name share an entry."""
    marker, line = trace.get("marker", {}), trace.get("line", {})
    colour = _colour(first_value(_mark_colour(trace)))
    if trace["type"] == "bar":
        pattern = marker.get("pattern", {})
        hatch = HATCHES.get(pattern.get("shape", ""))
        edge = pattern["fgcolor"] if hatch else "none"
        entries.setdefault(name, Patch(facecolor=colour, hatch=hatch, edgecolor=edge, linewidth=0))
        return
    entry = entries.setdefault(name, Line2D([], [], linestyle="none", color=colour))
    if "lines" in trace["mode"]:
        entry.set_linestyle(DASHES[line.get("dash", "solid")])
        entry.set_linewidth(1.5)
    if "markers" in trace["mode"] and entry.get_marker() in ("None", None):
        symbol = first_value(marker.get("symbol")) or "circle"
        entry.set_marker("X" if symbol.endswith("-thin") else SYMBOLS[symbol.removesuffix("-open")])
        entry.set_markersize(5)
        entry.set_markerfacecolor("none" if symbol.endswith("-open") else colour)


def _key(trace: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names of a trace's axes."""
    return trace.get("xaxis", "x"), trace.get("yaxis", "y")


def _mark_colour(trace: Mapping[str, Any]) -> Any:
    """Return the colour of a trace's marks, or one for each; its line's where they have none."""
    marker = trace.get("marker", {})
    return marker.get("color") or marker.get("line", {}).get("color") or trace.get("line", {}).get("color")


def _numbers(values: Iterable[Any]) -> list[float]:
    """Return the values as numbers; gaps become NaN."""
    return [math.nan if value is None else float(value) for value in values]


def _colour(text: str | None) -> str:
    """Return a colour, `#rrggbb` or `#rrggbbaa`; "none" where there is none."""
    return text or "none"
