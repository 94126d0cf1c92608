"""Figures as SVG, PNG and PDF: our Plotly figures, drawn by matplotlib, offline and without a browser.

It knows what our figures are made of: scatter traces (lines, marks, bands, error bars, steps), bars, linear and
logarithmic axes with their places, annotations, straight shapes. Another kind of trace is a `FigureError`, never a
picture that lacks something. Text is drawn letter by letter: no mathematics, no markup.

matplotlib takes half a second and some 40 MB the first time, so nothing imports it before a figure is asked for; its
drawing is not made for several threads, so one figure is drawn at a time.
"""

import html
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Literal
from warnings import catch_warnings, simplefilter

from dashboards.drawing import Figure
from dashboards.palette import THEMES, ThemeName
from orchestrator.errors import ConflictError

VectorFormat = Literal["svg", "png", "pdf"]
MEDIA_TYPES: dict[VectorFormat, str] = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}
DPI = 96.0
"""CSS pixels an inch: sizes in figures are CSS pixels."""
PNG_SCALE = 2.0
POINTS = 72.0 / DPI
"""Points in a CSS pixel."""
DASHES = {
    "solid": "-",
    "dash": (0, (5, 3)),
    "dot": (0, (1.2, 2)),
    "dashdot": (0, (5, 2, 1.2, 2)),
    "longdash": (0, (9, 3)),
}
SYMBOLS = {
    "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P", "pentagon": "p", "star": "*",
    "hexagon": "h", "x-thin": "x", "x": "X", "triangle-down": "v",
}  # fmt: skip
RGBA = re.compile(r"rgba\((\d+),\s*(\d+),\s*(\d+),\s*([\d.]+)\)")
_DRAWING = Lock()

Colour = Any
"""What matplotlib takes: `#rrggbb`, or red, green, blue and alpha between 0 and 1."""


class FigureError(ConflictError):
    """This figure cannot be drawn as a file."""


def vector(
    figure: Figure,
    form: VectorFormat,
    *,
    title: str = "",
    theme: ThemeName = "light",
    width_pixels: int = 760,
    height_pixels: int = 430,
) -> bytes:
    """The figure as a file; the same figure gives the same bytes. Raises `FigureError` for an unknown kind of trace."""
    with _DRAWING, catch_warnings():
        simplefilter("ignore")  # a letter that the font lacks is a box, and no reason to fail
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Drawn

        settings: dict[Any, Any] = {
            "svg.fonttype": "path", "svg.hashsalt": "adapm-bench", "font.family": ["DejaVu Sans"], "font.size": 9,
            "text.parse_math": False, "text.usetex": False, "axes.unicode_minus": True, "pdf.fonttype": 42,
        }  # fmt: skip
        with matplotlib.rc_context(settings):
            drawn = Drawn(figsize=(width_pixels / DPI, height_pixels / DPI), dpi=DPI)
            FigureCanvasAgg(drawn)
            drawn.set_facecolor(THEMES[theme].surface)
            _Sheet(drawn, figure, theme, title).draw()
            out = io.BytesIO()
            # No date and no version of the program: equal figures are equal files.
            nothing: dict[str, Any] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
            nothing["pdf"] = {"CreationDate": None, "Creator": None, "Producer": None}
            drawn.savefig(out, format=form, dpi=DPI * (PNG_SCALE if form == "png" else 1), metadata=nothing[form])
    return out.getvalue()


class _Sheet:
    """One figure on its way to matplotlib."""

    def __init__(self, drawn: Any, figure: Figure, theme: ThemeName, title: str) -> None:
        self._drawn, self._theme, self._title = drawn, THEMES[theme], title
        self._data: list[dict[str, Any]] = figure["data"]
        self._layout: dict[str, Any] = figure["layout"]
        self._axes: dict[tuple[str, str], Any] = {}
        self._box = (0.1, 0.14, 0.87, 0.75 if title else 0.83)
        """Left, bottom, width and height of the whole plot, as shares of the sheet."""

    def draw(self) -> None:
        """Every trace, then what lies on top of them."""
        if self._title:
            self._drawn.text(
                0.015, 0.975, self._title, va="top", ha="left", size=11, color=self._theme.ink, weight="bold"
            )
        before: dict[str, Any] = {}
        for trace in self._data:
            axes = self._axes_of(trace.get("xaxis", "x"), trace.get("yaxis", "y"))
            draw = {"scatter": self._scatter, "bar": self._bar}.get(trace["type"])
            if draw is None:
                raise FigureError(f"figures with a {trace['type']!r} cannot be drawn as files; open their page instead")
            draw(axes, trace, before)
            before = trace
        main = self._axes_of("x", "y") if not self._data else next(iter(self._axes.values()))
        self._notes(main)
        self._legend(main)

    def _axes_of(self, x: str, y: str) -> Any:
        """The axes that a trace is drawn on; `y2` laid over `y` has a scale of its own."""
        if (x, y) in self._axes:
            return self._axes[x, y]
        spec_x, spec_y = (self._layout.get(f"{name[0]}axis{name[1:]}", {}) for name in (x, y))
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
            self._dress(axes, spec_x, spec_y)
        self._axes[x, y] = axes
        return axes

    def _dress(self, axes: Any, spec_x: Mapping[str, Any], spec_y: Mapping[str, Any]) -> None:
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            axes.spines[side].set_color(self._theme.line)
        axes.tick_params(colors=self._theme.muted, labelsize=8, length=3, color=self._theme.line)
        axes.tick_params(which="minor", length=0)
        for spec, axis, limit in ((spec_x, axes.xaxis, axes.set_xlim), (spec_y, axes.yaxis, axes.set_ylim)):
            self._dress_one(spec, axis, limit)
        if spec_x.get("visible") is False:
            axes.axis("off")

    def _dress_one(self, spec: Mapping[str, Any], axis: Any, limit: Any) -> None:
        from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator, PercentFormatter

        is_log = spec.get("type") == "log"
        if is_log:
            (axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale)("log")
        if spec.get("range"):
            limit(*((10**end if is_log else end) for end in spec["range"]))
        if spec.get("tickvals") is not None:
            texts = spec.get("ticktext") or [f"{value:g}" for value in spec["tickvals"]]
            axis.set_major_locator(FixedLocator(spec["tickvals"]))
            axis.set_major_formatter(FixedFormatter([letters(text) for text in texts]))
            axis.set_minor_locator(NullLocator())
        elif str(spec.get("tickformat", "")).endswith("%"):
            axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        elif "s" in str(spec.get("tickformat", "")):
            from matplotlib.ticker import EngFormatter

            axis.set_major_formatter(EngFormatter(unit=spec.get("ticksuffix", ""), sep=""))
        if spec.get("zeroline"):
            line = axis.axes.axvline if axis.axis_name == "x" else axis.axes.axhline
            line(0, color=_colour(spec.get("zerolinecolor", self._theme.line)), linewidth=0.8, zorder=1)
        if spec.get("showgrid", True):
            axis.grid(visible=True, color=self._theme.line, linewidth=0.6)
            axis.axes.set_axisbelow(True)
        if text := letters(spec.get("title", {}).get("text", "")):
            axis.set_label_text(text, color=self._theme.muted, size=8.5)

    def _scatter(self, axes: Any, trace: dict[str, Any], before: Mapping[str, Any]) -> None:
        x, y = trace["x"], _numbers(trace["y"])
        line, colour = trace.get("line", {}), _colour(trace.get("line", {}).get("color"))
        alpha = trace.get("opacity", 1.0)
        if trace.get("fill") == "tonexty":
            low = _numbers(before["y"])
            axes.fill_between(x, low, y, color=_colour(trace["fillcolor"]), linewidth=0)
        width = line.get("width", 1.4) * POINTS
        if "lines" in trace["mode"] and width:
            steps = {"hv": "steps-post"}.get(line.get("shape", ""), "default")
            dash = DASHES.get(line.get("dash", "solid"), "-")
            axes.plot(x, y, color=colour, linewidth=width, linestyle=dash, alpha=alpha, drawstyle=steps)
        if "markers" in trace["mode"]:
            self._marks(axes, x, y, trace, alpha)
        if error := trace.get("error_y"):
            spread = [error["arrayminus"], error["array"]]
            axes.errorbar(x, y, yerr=spread, fmt="none", ecolor=_colour(error["color"]), elinewidth=0.9, capsize=3)
        if "text" in trace["mode"]:
            for place, value, text in zip(x, y, trace["text"], strict=False):
                axes.annotate(letters(text), (place, value), xytext=(-6, 0), textcoords="offset points", ha="right",
                              va="center", size=8, color=self._theme.muted, annotation_clip=False)  # fmt: skip

    def _marks(self, axes: Any, x: Sequence[Any], y: Sequence[float], trace: Mapping[str, Any], alpha: float) -> None:
        marker = trace.get("marker", {})
        name, hollow = (
            str(marker.get("symbol", "circle")).removesuffix("-open"),
            str(marker.get("symbol")).endswith("-open"),
        )
        edge = marker.get("line", {})
        found = edge.get("color") or marker.get("color")
        colours = [_colour(each) for each in (found if isinstance(found, list) else [found])]
        size = (marker.get("size", 6) * POINTS) ** 2
        thin = name.endswith("-thin")
        width = edge.get("width", 0) * POINTS
        look: dict[str, Any] = {"s": size, "linewidths": width, "alpha": alpha, "zorder": 3, "clip_on": False}
        if thin:
            axes.scatter(x, y, marker="x", c=colours, **look)
        else:
            faces = "none" if hollow else colours
            axes.scatter(x, y, marker=SYMBOLS.get(name, "o"), facecolors=faces, edgecolors=colours, **look)

    def _bar(self, axes: Any, trace: dict[str, Any], _before: Mapping[str, Any]) -> None:
        colours = trace["marker"]["color"]
        colours = [_colour(each) for each in (colours if isinstance(colours, list) else [colours])]
        sideways = trace.get("orientation") == "h"
        labels, values = (trace["y"], trace["x"]) if sideways else (trace["x"], trace["y"])
        places = list(range(len(labels)))
        draw = axes.barh if sideways else axes.bar
        draw(places, _numbers(values), trace.get("width", 0.7), color=colours)
        axis = axes.yaxis if sideways else axes.xaxis
        axis.set_ticks(places, [letters(str(label)) for label in labels])
        if sideways:
            self._make_room(axes)
        for place, value, text in zip(places, _numbers(values), trace.get("text", []), strict=False):
            at = (value, place) if sideways else (place, value)
            axes.annotate(letters(text), at, xytext=(4, 0) if sideways else (0, 4), textcoords="offset points",
                          va="center" if sideways else "bottom", size=8, color=self._theme.ink)  # fmt: skip

    def _make_room(self, axes: Any) -> None:
        """Move the left edge so that the longest name fits, as Plotly's automargin does."""
        self._drawn.canvas.draw()
        widest = max((label.get_window_extent().width for label in axes.get_yticklabels()), default=0.0)
        left, bottom, width, height = axes.get_position().bounds
        wanted = min(0.45, (widest + 24) / self._drawn.bbox.width)
        axes.set_position((wanted, bottom, left + width - wanted, height))

    def _notes(self, axes: Any) -> None:
        for shape in self._layout.get("shapes", []):
            line = shape.get("line", {})
            axes.axvline(shape["x0"], color=_colour(line.get("color")), linestyle=DASHES.get(line.get("dash", ""), "-"),
                         linewidth=line.get("width", 1) * POINTS)  # fmt: skip
        for note in self._layout.get("annotations", []):
            self._note(axes, note)

    def _note(self, axes: Any, note: Mapping[str, Any]) -> None:
        left, bottom, width, height = self._box
        paper = note.get("xref") == "paper"
        at = (left + note["x"] * width, bottom + note["y"] * height) if paper else (note["x"], note["y"])
        where = self._drawn.transFigure if paper else axes.get_xaxis_transform()
        font = note.get("font", {})
        axes.annotate(
            letters(note["text"]), at, xycoords=where, color=_colour(font.get("color", self._theme.muted)), size=8.5,
            ha={"left": "left", "right": "right"}.get(note.get("xanchor", ""), "center"),
            va={"bottom": "bottom", "top": "top"}.get(note.get("yanchor", ""), "center"), annotation_clip=False,
        )  # fmt: skip

    def _legend(self, axes: Any) -> None:
        """One entry a name; bars carry theirs beside them, and a lone line needs none."""
        from matplotlib.lines import Line2D

        entries: dict[str, Any] = {}
        for trace in self._data:
            name = letters(trace.get("name", ""))
            if not name or trace["type"] != "scatter" or trace.get("hoverinfo") == "skip":
                continue
            line, marker = trace.get("line", {}), trace.get("marker", {})
            symbol = str(marker.get("symbol", ""))
            colour = marker.get("color") or marker.get("line", {}).get("color") or line.get("color")
            colour = _colour(colour[0] if isinstance(colour, list) else colour)
            drawn = entries.setdefault(name, Line2D([], [], linestyle="none", color=colour))
            if "lines" in trace["mode"]:
                drawn.set_linestyle(DASHES.get(line.get("dash", "solid"), "-"))
                drawn.set_linewidth(1.5)
            if "markers" in trace["mode"] and drawn.get_marker() in ("None", None):
                drawn.set_marker(SYMBOLS.get(symbol.removesuffix("-open").removesuffix("-thin"), "o"))
                drawn.set_markersize(5)
                drawn.set_markerfacecolor("none" if symbol.endswith("-open") else colour)
        if len(entries) > 1:
            axes.legend(
                entries.values(), entries.keys(), loc="best", fontsize=8, frameon=True, framealpha=0.85,
                facecolor=self._theme.surface, edgecolor="none", labelcolor=self._theme.ink,
            )  # fmt: skip


def letters(text: str) -> str:
    """What Plotly's pseudo-HTML shows, letter by letter; line breaks stay."""
    return html.unescape(re.sub(r"<[^>]*>", "", text.replace("<br>", "\n")))


def _numbers(values: Iterable[Any]) -> list[float]:
    return [math.nan if value is None else float(value) for value in values]


def _colour(text: Any) -> Colour:
    found = RGBA.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return text or "none"
    red, green, blue, alpha = found.groups()
    return int(red) / 255, int(green) / 255, int(blue) / 255, float(alpha)
