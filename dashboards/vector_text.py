"""What files of figures read out of Plotly's words: colours, dashes, symbols, text without markup. Pure."""

import html
import math
import re
from collections.abc import Iterable
from typing import Any

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
