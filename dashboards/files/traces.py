"""Reading the traces of a Plotly figure, for files of every form."""

import html
import re
from typing import Any, Literal

from orchestrator.errors import ConflictError

VectorFormat = Literal["svg", "png", "pdf"]


class FigureError(ConflictError):
    """This figure cannot be drawn as a file."""


def letters(text: str) -> str:
    """What Plotly's pseudo-HTML shows, letter by letter; line breaks stay."""
    return html.unescape(re.sub(r"<[^>]*>", "", text.replace("<br>", "\n")))


def as_list(value: Any, count: int) -> list[Any]:
    """One value for each of `count` marks, where a figure gives one for all of them."""
    return list(value) if isinstance(value, list | tuple) else [value] * count


def first_value(value: Any) -> Any:
    """The value of the first mark."""
    return (value[0] if value else None) if isinstance(value, list | tuple) else value
