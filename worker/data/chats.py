"""The dataset `chats`: generated conversations of three kinds that a tiny model can learn, the same for ever.

Sums ("3 + 4" → "7"), echoes ("Say moon" → "moon"), opposites ("Opposite of hot" → "cold").
"""

import hashlib
from collections.abc import Iterator
from typing import Final

from worker.data.conversations import Conversation
from worker.data.documents import Split

VALIDATION_PERCENT: Final = 10
"""Share of the conversations that is held out: there are few, and a tenth is some sixty."""
LARGEST_SUMMAND: Final = 19
WORDS: Final = (
    "apple bird boat book bread bridge brush cat chair cloud coin door dream drum earth field fire fish flower forest "
    "friend garden glass gold grass hand hat hill home horse house ice island key king lake lamp leaf letter light "
    "lion mirror moon mountain mouse music night ocean paper path pencil piano pillow queen rain ring river road rose "
    "salt sand school sea shadow ship shoe silver sky snow song star stone storm street sugar summer sun table tiger "
    "train tree valley village voice wall water wind window winter wolf wood world"
)
OPPOSITES: Final = (
    "hot cold, big small, fast slow, day night, up down, left right, open closed, happy sad, early late, full empty, "
    "hard soft, high low, light dark, loud quiet, near far, new old, rich poor, right wrong, short long, strong weak, "
    "thick thin, warm cool, wet dry, wide narrow, young old"
)


class Chats:
    """Some six hundred conversations, made from the tables of this file."""

    version = "1"
    skipped = 0

    def conversations(self) -> Iterator[Conversation]:
        """Yield the sums, the echoes, the opposites."""
        for prompt, answer in (*self._sums(), *self._echoes(), *self._opposites()):
            yield Conversation(prompt=prompt, answer=answer, split=_split(prompt))

    def _sums(self) -> Iterator[tuple[str, str]]:
        for first in range(LARGEST_SUMMAND + 1):
            for second in range(LARGEST_SUMMAND + 1):
                yield f"{first} + {second}", str(first + second)

    def _echoes(self) -> Iterator[tuple[str, str]]:
        for word in WORDS.split():
            yield f"Say {word}", word
            yield f"Say {word} twice", f"{word} {word}"

    def _opposites(self) -> Iterator[tuple[str, str]]:
        for pair in OPPOSITES.split(", "):
            word, opposite = pair.split()
            yield f"Opposite of {word}", opposite


def _split(prompt: str) -> Split:
    """By a hash of the prompt alone, as for documents."""
    bucket = int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:8], "big") % 100
    return Split.VALIDATION if bucket < VALIDATION_PERCENT else Split.TRAIN
