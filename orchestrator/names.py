"""Names that people may give: without invisible characters."""

import re
import unicodedata
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from worker.schema import is_stored

UNSEEN: Final = (
    r"\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    r"\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0"
    r"\ufff0-\ufffb"
)
"""Of the basic plane: control characters (Cc), which PostgreSQL and terminals do not take; format characters (Cf),
which turn the text around them or have no width, and what else is shown as nothing (Default_Ignorable_Code_Point of
Unicode's DerivedCoreProperties.txt, and the empty Braille pattern). Two names that look alike would be two."""
_UNSEEN = re.compile(f"[{UNSEEN}]")
_FURTHER: Final = range(0xE0000, 0xE1000)
"""Tags and variation selectors, and code points that are kept for such."""
IN_SCHEMA: Final = {"pattern": rf"^[^{UNSEEN}\s](?:[^{UNSEEN}]*[^{UNSEEN}\s])?$"}
"""The part for programs; there are a few more beyond the basic plane, and halves of surrogate pairs (Cs): libraries
refuse a pattern with these."""


def plain_name(text: str) -> str:
    """Return a name in its stored form. Raises `ValueError` that names the first invisible character."""
    if is_stored():
        return text
    for index, letter in enumerate(text):
        if is_unseen(letter):
            letter_name = f"U+{ord(letter):04X}, {unicodedata.name(letter, 'a control character')}"
            raise ValueError(f"must be visible text; character {index + 1} is {letter_name}; take it out")
    if text != text.strip():
        raise ValueError("must have no blank at either end")
    return text


def is_unseen(letter: str) -> bool:
    """Return whether a character is shown as nothing, or turns the text around it."""
    return bool(_UNSEEN.match(letter)) or ord(letter) in _FURTHER or unicodedata.category(letter) in ("Cf", "Cs")


Name = Annotated[str, Field(min_length=1, max_length=120, json_schema_extra=IN_SCHEMA), AfterValidator(plain_name)]
"""The name of an experiment."""
CandidateName = Annotated[
    str, Field(min_length=1, max_length=60, json_schema_extra=IN_SCHEMA), AfterValidator(plain_name)
]
KeyName = Annotated[str, Field(min_length=1, max_length=80, json_schema_extra=IN_SCHEMA), AfterValidator(plain_name)]
