"""What differs from telling to telling of the examples' story, made even: ids, times, secrets, folders, versions.

Long lists and texts are shortened: an example shows what an answer looks like, not all of it.
"""

import json
import re
from typing import Any

MOST_ITEMS = 1
MOST_TEXT = 600
"""Characters of an answer that is a text."""
WHOLE_LISTS = frozenset({"step", "value", "low", "mean", "high", "labels", "candidates"})
"""Lists that belong together are as long as each other, and regrets are by candidate."""

MIDNIGHT = 1_767_225_600.0
"""2026-01-01 00:00 UTC."""
SECONDS_LATER = {
    "created_at": 0.0,
    "leased_at": 2.0,
    "at": 2.0,
    "started_at": 6.0,
    "heartbeat_at": 36.0,
    "ended_at": 66.0,
    "edited_at": 90.0,
    "deleted_at": 120.0,
    "undo_until": 604_920.0,
    "expires_at": 7_776_000.0,
}
"""When things happen in every story; whatever else has a time has it at the end of a minute."""
PACE = {"tokens_per_second": 14_400.0, "seconds_left": 12.0, "starts_in_seconds": 24.0}
"""What the service measures itself."""

ID = re.compile(r"[a-z0-9]{10}")
SECRETS = (
    (re.compile(r"adapm_[0-9a-z]{10}_[A-Za-z0-9_-]{43}"), "adapm_k3v9m2x710_and-43-characters-shown-this-once"),
    (re.compile(r"whsec_[A-Za-z0-9+/=]+"), "whsec_and-base64-shown-this-once"),
    (re.compile(r"msg_[0-9a-f]{32}"), f"msg_{'0e60762d' * 4}"),
)


BY_CHANCE = frozenset({"head", "hashes", "spec_hashes"})
"""Hashes of what was drawn at random, or of moments."""
ANY_HASH = "5f" * 32


class Evened:
    """Makes the values of one story even; an id is the same wherever it stands."""

    def __init__(self, told: Any, words: dict[str, str]) -> None:
        self._words = words
        self._ids: dict[str, str] = {}
        self._learn(told)
        self._any_id = re.compile("|".join(self._ids))

    def of(self, value: Any) -> Any:
        """The value as every telling has it."""
        return self._timed(json.loads(self._worded(json.dumps(value, ensure_ascii=False))))

    def _learn(self, value: Any, name: str = "") -> None:
        if isinstance(value, dict):
            for each, held in value.items():
                self._learn(held, each)
        elif isinstance(value, list):
            for held in value:
                self._learn(held, name)
        elif isinstance(value, str) and name.endswith("id") and ID.fullmatch(value):
            self._ids.setdefault(value, f"k3v9m2x7{len(self._ids) + 10:02d}")

    def _worded(self, text: str) -> str:
        for secret, instead in SECRETS:
            text = secret.sub(instead, text)
        for word, instead in self._words.items():
            text = text.replace(word, instead)
        return self._any_id.sub(lambda found: self._ids[found[0]], text)

    def _timed(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {each: self._timed(held, each) for each, held in value.items()}
        if isinstance(value, list):
            return [self._timed(held, name) for held in value]
        if isinstance(value, str) and name in BY_CHANCE:
            return ANY_HASH
        if value is None or isinstance(value, bool | str):
            return value
        if name in SECONDS_LATER or name.endswith(("_at", "_until")):
            return MIDNIGHT + SECONDS_LATER.get(name, 60.0)
        return PACE.get(name, value)


def shortened(value: Any, name: str = "") -> Any:
    """The value with the beginnings of its lists, and of the whole where it is a text."""
    if isinstance(value, dict):
        return {each: shortened(held, each) for each, held in value.items()}
    if isinstance(value, list):
        return [shortened(held, name) for held in (value if name in WHOLE_LISTS else value[:MOST_ITEMS])]
    if isinstance(value, str) and not name and len(value) > MOST_TEXT:
        return value[:MOST_TEXT] + " …"
    return value
