"""Names are what is seen: nothing that is shown as nothing or turns the text around it, wherever a name comes in."""

import re
import sys
import unicodedata
from collections.abc import Callable

import pytest
from pydantic import TypeAdapter, ValidationError

from orchestrator.annotations import AnnotationChange
from orchestrator.keys import KeyRequest
from orchestrator.kinds.comparison import Candidate
from orchestrator.kinds.sweep import SearchedCandidate
from orchestrator.names import IN_SCHEMA, Name, is_unseen, plain_name
from tests.factories.stores import comparison_spec
from tests.factories.sweep import sweep_spec
from worker.schema import trust_stored_names

UNSEEN = {
    "\u202e": "U+202E, RIGHT-TO-LEFT OVERRIDE",
    "\u2066": "U+2066, LEFT-TO-RIGHT ISOLATE",
    "\u200b": "U+200B, ZERO WIDTH SPACE",
    "\u200d": "U+200D, ZERO WIDTH JOINER",
    "\ufeff": "U+FEFF, ZERO WIDTH NO-BREAK SPACE",
    "\u00ad": "U+00AD, SOFT HYPHEN",
    "\u2028": "U+2028, LINE SEPARATOR",
    "\u3164": "U+3164, HANGUL FILLER",
    "\ufe0f": "U+FE0F, VARIATION SELECTOR-16",
    "\U000e0041": "U+E0041, TAG LATIN CAPITAL LETTER A",
    "\x1b": "U+001B, a control character",
    "\x00": "U+0000, a control character",
}
GOOD = ("AdaPM gegen AdamW", "Größe β₂ = 0.95 → gut", "مقارنة", "השוואה", "比較", "a b", "naïve 🚀", "x")
PLACES: dict[str, Callable[[str], object]] = {
    "comparison": lambda name: comparison_spec(name=name),
    "sweep": lambda name: type(sweep_spec()).model_validate(sweep_spec().model_dump() | {"name": name}),
    "candidate": lambda name: Candidate(optimizer="adamw", learning_rates=(1e-3,), label=name),
    "searched": lambda name: SearchedCandidate.model_validate({"optimizer": "adamw", "label": name}),
    "key": lambda name: KeyRequest(label=name),
    "label": lambda name: AnnotationChange(labels=(name,)),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("letter", UNSEEN)
def test_a_character_that_is_not_seen_is_refused_by_its_code_point(place: str, letter: str):
    with pytest.raises(ValidationError) as refused:
        PLACES[place](f"Ada{letter}PM")
    assert UNSEEN[letter] in str(refused.value)


@pytest.mark.parametrize("place", PLACES)
def test_names_in_any_script_are_taken(place: str):
    for name in GOOD:
        PLACES[place](name)


@pytest.mark.parametrize("name", [" a", "a ", "\u00a0a", "a\u3000"])
def test_a_blank_at_an_end_is_refused(name: str):
    with pytest.raises(ValidationError, match="no blank at either end"):
        comparison_spec(name=name)


def test_every_control_and_format_character_of_unicode_is_one_of_them():
    letters = map(chr, range(sys.maxunicode + 1))
    missed = [letter for letter in letters if unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp", "Cs")]
    assert [hex(ord(letter)) for letter in missed if not is_unseen(letter)] == []


def test_the_schema_tells_programs_the_same():
    """On the basic plane, where JSON Schema's patterns mean the same everywhere; halves of pairs are no text."""
    assert TypeAdapter(Name).json_schema() == {"type": "string", "minLength": 1, "maxLength": 120, **IN_SCHEMA}
    pattern = re.compile(IN_SCHEMA["pattern"])
    for letter in map(chr, (*range(0xD800), *range(0xE000, 0x10000))):
        try:
            plain_name(letter)
        except ValueError:
            assert not pattern.match(letter), hex(ord(letter))
        else:
            assert pattern.match(letter), hex(ord(letter))


def test_a_name_that_was_taken_before_can_still_be_read():
    with trust_stored_names():
        assert comparison_spec(name="Ada\u200bPM").name == "Ada\u200bPM"
