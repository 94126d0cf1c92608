"""Reading the traces of a Plotly figure, for files of every form."""

import html
import re
from typing import Any, Literal

from orchestrator.errors import ConflictError

VectorFormat = Literal["svg", "png", "pdf"]


class FigureError(ConflictError):
    """A figure that cannot be drawn as a file."""


def letters(text: str) -> str:
    """Return the letters that Plotly's pseudo-HTML shows; line breaks stay."""
    return html.unescape(re.sub(r"<[^>]*>", "", text.replace("<br>", "\n")))


def as_list(value: Any, count: int) -> list[Any]:
    """Return a value for each of `count` marks, repeated if a figure gives one for all of them."""
    return list(value) if isinstance(value, list | tuple) else [value] * count


def first_value(value: Any) -> Any:
    """Return the value of the first mark."""
    return (value[0] if value else None) if isinstance(value, list | tuple) else value
