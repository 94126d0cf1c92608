"""The axes of figures as files: where values stand, and what is written beside them.

A scale is linear, logarithmic, of dates (Plotly's milliseconds, matplotlib's days) or of names, which stand one after
another as they first appear. It also reads colours, dashes, symbols and text without markup out of Plotly's words.
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
HATCHES = {"/": "///", "\\": "\\\\\\", ".": "...", "x": "xx", "-": "--", "|": "||", "+": "++"}
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


def first(value: Any) -> Any:
    """The value of the first mark."""
    return (value[0] if value else None) if isinstance(value, list | tuple) else value


DAY_MILLISECONDS = 86_400_000.0


class Scale:
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
        from matplotlib import dates, ticker

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
            axis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        elif form.endswith("%"):
            axis.set_major_formatter(ticker.PercentFormatter(1.0, decimals=0))
        elif "s" in form:
            axis.set_major_formatter(ticker.EngFormatter(unit=self.layout.get("ticksuffix", ""), sep=""))
        if self.layout.get("dtick") and not self.is_log:
            step, first = self.layout["dtick"], self.layout.get("tick0", 0)
            axis.set_major_locator(ticker.MultipleLocator(step, offset=first % step))
        elif self.layout.get("nticks") and not self.is_log and not self.names:
            axis.set_major_locator(ticker.MaxNLocator(self.layout["nticks"]))
