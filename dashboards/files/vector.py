"""Figures as SVG, PNG and PDF: our Plotly figures, drawn by matplotlib, offline and without a browser.

It knows what our figures are made of: scatter traces (lines, marks, bands, error bars, steps, words), bars (standing,
lying, grouped, stacked, cells), axes of numbers, logarithms, dates and names with their places, annotations, straight
shapes (`vector_parts.py`). Another kind of trace is a `FigureError`, never a picture that lacks something. Text is
drawn letter by letter: no mathematics, no markup.

matplotlib takes time and memory the first time, so nothing imports it before a figure is asked for; its
drawing is not made for several threads, so one figure is drawn at a time.
"""

import io
from collections.abc import Mapping
from itertools import pairwise
from threading import Lock
from typing import Any, Literal
from warnings import catch_warnings, simplefilter

from dashboards.figures.base import Figure
from dashboards.files.vector_parts import (
    DASHES,
    DPI,
    HATCHES,
    POINTS,
    SYMBOLS,
    AxisScale,
    Bars,
    colour,
    first_value,
    letters,
    scatter,
)
from dashboards.palette import THEMES, ThemeName
from orchestrator.errors import ConflictError

VectorFormat = Literal["svg", "png", "pdf"]
MEDIA_TYPES: dict[VectorFormat, str] = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}
PNG_SCALE = 2.0
WIDTH_PIXELS, HEIGHT_PIXELS = 760, 430
"""Of a figure that does not say."""
TRACES = ("scatter", "bar")
MOST_COLUMNS = 5
"""Of names above a figure, or fewer where they are long."""
MARGIN_SHARE = 0.015
"""Of a sheet's width: beside its title."""
TITLE_SIZES = (11, 9.5, 8)
TITLE_BOTTOM = 0.93
"""Share of a sheet's height below its title."""
SLANT = 30
"""Degrees by which names above a plot are turned where they would meet each other."""
NAMES_APART = 4
"""Pixels between two names above a plot, at the least."""
_DRAWING = Lock()


class FigureError(ConflictError):
    """This figure cannot be drawn as a file."""


def vector(figure: Figure, form: VectorFormat, *, title: str = "", theme: ThemeName = "light") -> bytes:
    """The figure as a file; the same figure gives the same bytes. Raises `FigureError` for an unknown kind of trace."""
    height = figure["layout"].get("height") or HEIGHT_PIXELS
    with _DRAWING, catch_warnings():
        simplefilter("ignore")  # a letter that the font lacks is a box, and no reason to fail
        import matplotlib  # time and memory: loaded with the first file
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Drawn

        settings: dict[Any, Any] = {
            "svg.fonttype": "path", "svg.hashsalt": "adapm-bench", "font.family": ["DejaVu Sans"], "font.size": 9,
            "text.parse_math": False, "text.usetex": False, "axes.unicode_minus": True, "pdf.fonttype": 42,
            "hatch.linewidth": 0.7, "timezone": "UTC",
        }  # fmt: skip
        with matplotlib.rc_context(settings):
            drawn = Drawn(figsize=(WIDTH_PIXELS / DPI, height / DPI), dpi=DPI)
            FigureCanvasAgg(drawn)
            drawn.set_facecolor(THEMES[theme].surface)
            Sheet(drawn, figure, theme, title).draw()
            out = io.BytesIO()
            # No date and no version of the program: equal figures are equal files.
            nothing: dict[str, Any] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
            nothing["pdf"] = {"CreationDate": None, "Creator": None, "Producer": None}
            drawn.savefig(out, format=form, dpi=DPI * (PNG_SCALE if form == "png" else 1), metadata=nothing[form])
    return out.getvalue()


class Sheet:
    """One figure on its way to matplotlib."""

    def __init__(self, drawn: Any, figure: Figure, theme: ThemeName, title: str) -> None:
        self._drawn, self._theme, self._title = drawn, THEMES[theme], title
        self._data: list[dict[str, Any]] = figure["data"]
        self._layout: dict[str, Any] = figure["layout"]
        self._axes: dict[tuple[str, str], Any] = {}
        self._scales: dict[str, AxisScale] = {}
        self._box = (0.1, 0.14, 0.87, 0.75 if title else 0.83)
        """Left, bottom, width and height of the whole plot, as shares of the sheet."""

    def draw(self) -> None:
        """Every trace, then what lies on top of them."""
        if self._title:
            self._write_title()
        bars = {key: Bars(mine, self._layout.get("barmode", "group")) for key, mine in self._bars().items()}
        before: dict[str, Any] = {}
        for trace in self._data:
            if trace["type"] not in TRACES:
                raise FigureError(f"figures with a {trace['type']!r} cannot be drawn as files; open their page instead")
            key = _key(trace)
            axes, x, y = self._axes_of(*key), self._scale(key[0]), self._scale(key[1])
            if trace["type"] == "bar":
                bars[key].draw(axes, trace, x, y, self._theme)
            else:
                scatter(axes, trace, before, x, y, self._theme)
            before = trace
        main = self._axes_of("x", "y") if not self._data else next(iter(self._axes.values()))
        if len(self._axes) == 1 and self._scale("y").has_words():
            self._make_room(main)
        if len(self._axes) == 1 and self._scale("x").stands_above():
            self._slant(main)
        self._notes(main)
        self._legend(main)

    def _write_title(self) -> None:
        """In smaller letters where it is wider than the sheet, and without its end where these are, too."""
        title = self._drawn.text(
            MARGIN_SHARE, 0.975, self._title, va="top", ha="left", size=11, color=self._theme.ink, weight="bold"
        )
        widest, left = (1 - 2 * MARGIN_SHARE) * self._drawn.bbox.width, self._title
        for size in TITLE_SIZES:
            title.set_size(size)
            if title.get_window_extent().width <= widest:
                return
        while left and title.get_window_extent().width > widest:
            left = left[: min(len(left) - 1, int(len(left) * widest / title.get_window_extent().width))]
            title.set_text(left.rstrip() + "…")

    def _bars(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for trace in self._data:
            if trace["type"] == "bar":
                found.setdefault(_key(trace), []).append(trace)
        return found

    def _scale(self, name: str) -> AxisScale:
        if name not in self._scales:
            layout = self._layout.get(f"{name[0]}axis{name[1:]}", {})
            values = (value for trace in self._data if name in _key(trace) for value in trace[name[0]])
            self._scales[name] = AxisScale(layout, values)
        return self._scales[name]

    def _axes_of(self, x: str, y: str) -> Any:
        """The axes that a trace is drawn on; `y2` laid over `y` has a scale of its own."""
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
            self._dress(axes, x, y)
        self._axes[x, y] = axes
        return axes

    def _dress(self, axes: Any, x: str, y: str) -> None:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            axes.spines[side].set_color(self._theme.line)
        axes.tick_params(colors=self._theme.muted, labelsize=8, length=3, color=self._theme.line)
        axes.tick_params(which="minor", length=0)
        self._scale(x).dress(axes.xaxis, self._theme)
        self._scale(y).dress(axes.yaxis, self._theme)

    def _make_room(self, axes: Any) -> None:
        """Move the left edge so that the longest name fits, as Plotly's automargin does."""
        self._drawn.canvas.draw()
        widest = max((label.get_window_extent().width for label in axes.get_yticklabels()), default=0.0)
        left, bottom, width, height = axes.get_position().bounds
        beside = 24 + 16 * bool(axes.get_ylabel())
        wanted = max(left, min(0.45, (widest + beside) / self._drawn.bbox.width))
        axes.set_position((wanted, bottom, left + width - wanted, height))

    def _slant(self, axes: Any) -> None:
        """Turn names above the plot where they would meet, as Plotly does, and give them the room that they take."""
        self._drawn.canvas.draw()
        names = axes.get_xticklabels()
        extents = [name.get_window_extent() for name in names]
        if all(one.x1 + NAMES_APART < other.x0 for one, other in pairwise(extents)):
            return
        for name in names:
            name.set(rotation=SLANT, rotation_mode="anchor", ha="left", va="bottom")
        self._drawn.canvas.draw()
        extents = [name.get_window_extent() for name in names]
        left, bottom, width, height = axes.get_position().bounds
        sheet, top = self._drawn.bbox, TITLE_BOTTOM if self._title else 1.0
        above = max(one.y1 for one in extents) / sheet.height - bottom - height
        right = max(one.x1 for one in extents) / sheet.width - left - width
        axes.set_position((left, bottom, min(width, 0.99 - right - left), min(height, top - above - bottom)))

    def _notes(self, axes: Any) -> None:
        for shape in self._layout.get("shapes", []):
            line = shape.get("line", {})
            axes.axvline(shape["x0"], color=colour(line.get("color")), linestyle=DASHES.get(line.get("dash", ""), "-"),
                         linewidth=line.get("width", 1) * POINTS,
                         zorder=0.5 if shape.get("layer") == "below" else 2)  # fmt: skip
        for note in self._layout.get("annotations", []):
            self._note(axes, note)

    def _note(self, axes: Any, note: Mapping[str, Any]) -> None:
        left, bottom, width, height = self._box
        on_paper = note.get("xref") == "paper", note.get("yref") == "paper"
        x = note["x"] if on_paper[0] else self._scale("x").places([note["x"]])[0]
        y = note["y"] if on_paper[1] else self._scale("y").places([note["y"]])[0]
        where = {
            (True, True): self._drawn.transFigure,
            (False, True): axes.get_xaxis_transform(),
            (True, False): axes.get_yaxis_transform(),
            (False, False): axes.transData,
        }[on_paper]
        at = (left + x * width, bottom + y * height) if all(on_paper) else (x, y)
        font, ground = note.get("font", {}), note.get("bgcolor")
        axes.annotate(
            letters(note["text"]), at, xycoords=where, color=colour(font.get("color", self._theme.muted)), size=8.5,
            xytext=(note.get("xshift", 0) * POINTS, note.get("yshift", 0) * POINTS), textcoords="offset points",
            ha={"left": "left", "right": "right"}.get(note.get("xanchor", ""), "center"),
            va={"bottom": "bottom", "top": "top"}.get(note.get("yanchor", ""), "center"), annotation_clip=False,
            bbox={"facecolor": colour(ground), "linewidth": 0, "pad": 1} if ground else None,
        )  # fmt: skip

    def _legend(self, axes: Any) -> None:
        """One entry a name, but for what has its name beside it; a lone line needs none where nobody asks for one."""
        entries: dict[str, Any] = {}
        for trace in self._data:
            if _key(trace)[0] != _key(self._data[0])[0]:
                continue  # small plots have titles of their own
            name = letters(trace.get("name", ""))
            beside = letters(str(first_value(trace.get("text", "")))).strip()
            if not name or trace.get("hoverinfo") == "skip" or beside == name:
                continue
            if trace["type"] == "bar":
                entries.setdefault(name, _swatch(trace))
            else:
                _line(entries, name, trace)
        if len(entries) < (1 if self._layout.get("showlegend") else 2):
            return
        above = self._layout.get("legend", {}).get("orientation") == "h"
        look: dict[str, Any] = {
            "fontsize": 8, "frameon": not above, "framealpha": 0.85, "handlelength": 1.8, "edgecolor": "none",
            "facecolor": self._theme.surface, "labelcolor": self._theme.ink,
        }  # fmt: skip
        if not above:
            axes.legend(entries.values(), entries.keys(), loc="best", **look)
            return
        look |= {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "columnspacing": 1.2}
        for columns in range(min(len(entries), MOST_COLUMNS), 0, -1):
            legend = axes.legend(entries.values(), entries.keys(), ncols=columns, **look)
            if legend.get_window_extent().x1 <= self._drawn.bbox.width:
                break
        # Further rows of names take their height from the plot below.
        left, bottom, width, height = axes.get_position().bounds
        names = legend.get_window_extent().y1 / self._drawn.bbox.height - bottom - height  # with their distance
        axes.set_position((left, bottom, width, min(height, (TITLE_BOTTOM if self._title else 1.0) - names - bottom)))


def _key(trace: Mapping[str, Any]) -> tuple[str, str]:
    """The names of a trace's axes."""
    return trace.get("xaxis", "x"), trace.get("yaxis", "y")


def _swatch(trace: Mapping[str, Any]) -> Any:
    """What stands for bars in the legend."""
    from matplotlib.patches import Patch  # loaded with the first file

    marker = trace["marker"]
    pattern = marker.get("pattern", {})
    hatch = HATCHES.get(pattern.get("shape", ""))
    edge = pattern.get("fgcolor", "none") if hatch else "none"
    return Patch(facecolor=colour(first_value(marker["color"])), hatch=hatch, edgecolor=edge, linewidth=0)


def _line(entries: dict[str, Any], name: str, trace: Mapping[str, Any]) -> None:
    """What stands for lines and marks of that name, all traces of it together."""
    from matplotlib.lines import Line2D  # loaded with the first file

    line, marker = trace.get("line", {}), trace.get("marker", {})
    symbol = str(first_value(marker.get("symbol", "")))
    own = colour(
        first_value(marker.get("color")) or first_value(marker.get("line", {}).get("color")) or line.get("color")
    )
    drawn = entries.setdefault(name, Line2D([], [], linestyle="none", color=own))
    if "lines" in trace["mode"]:
        drawn.set_linestyle(DASHES.get(line.get("dash", "solid"), "-"))
        drawn.set_linewidth(1.5)
    if "markers" in trace["mode"] and drawn.get_marker() in ("None", None):
        drawn.set_marker(SYMBOLS.get(symbol.removesuffix("-open").removesuffix("-thin"), "o"))
        drawn.set_markersize(5)
        drawn.set_markerfacecolor("none" if symbol.endswith("-open") else own)
