"""The name that somebody may have meant who wrote an unknown one (torch-free)."""

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from itertools import takewhile
from operator import eq

ALIKE = 0.65
"""Share of the letters, from where on two names look alike: sdg and sgd do, gpt5 and gpt2-355m do not."""
LONGEST_NAME = 100
"""Characters that are compared; whatever was sent may be longer."""


def nearest(name: object, known_names: Iterable[str]) -> str | None:
    """Return the known name that looks most like `name`, whatever its case, and begins like it; None if none
    does."""
    by_lower_case = {known_name.lower(): known_name for known_name in known_names}
    written = str(name)[:LONGEST_NAME].lower()
    matches = get_close_matches(written, by_lower_case, cutoff=ALIKE)
    return by_lower_case[max(matches, key=lambda match: _likeness(written, match))] if matches else None


def _likeness(name: str, other: str) -> tuple[float, int]:
    return SequenceMatcher(None, name, other).ratio(), sum(takewhile(bool, map(eq, name, other)))


def hint(name: object, known_names: Iterable[str]) -> str:
    """Return `did you mean adamw? Known: adamw, adapm`; without the question if no name is similar."""
    names = tuple(known_names)
    meant = nearest(name, names)
    return f"{f'did you mean {meant}? Known' if meant else 'known'}: {', '.join(names)}"


def unknown(kind: str, name: str, known_names: Iterable[str]) -> str:
    """Return `unknown optimizer 'adamm'; did you mean adamw? Known: adamw, adapm`."""
    return f"unknown {kind} {name!r}; {hint(name, known_names)}"
