"""What a dataset is before it is tokenised: documents in a fixed order, each in one split for ever."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

VALIDATION_PERCENT: Final = 2
"""Share of the documents that is held out; 2 % of 30 MB is far more than any evaluation reads."""


class Split(StrEnum):
    """Which part of the data a document belongs to."""

    TRAIN = "train"
    VALIDATION = "validation"


@dataclass(frozen=True, kw_only=True)
class Document:
    """One text; its name (a relative path, an address) is the same on every machine."""

    name: str
    text: str

    def split(self) -> Split:
        """The split, by a hash of the name alone: adding a document never moves another."""
        bucket = int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8], "big") % 100
        return Split.VALIDATION if bucket < VALIDATION_PERCENT else Split.TRAIN


class Source(Protocol):
    """A readable dataset."""

    version: str
    """What is read, in words: a release, a revision."""
    skipped_documents: int
    """Documents that could not be read, counted while `documents` runs."""

    def documents(self) -> Iterator[Document]:
        """Yield every readable document in a fixed order."""
