"""Documents of a dataset before it is tokenised: in a fixed order, each in one split for ever."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

VALIDATION_PERCENT: Final = 2
"""Share of the documents that is held out; 2 % of 30 MB is far more than any evaluation reads."""

NO_TEXT: Final = re.compile(r"[\0\ud800-\udfff]")
"""NUL, which ends a document of the tokenizer `byte`, and halves of surrogate pairs, which UTF-8 cannot encode."""
REPLACEMENT: Final = "\ufffd"

SourceCursor = dict[str, Any]
"""A place in a source, as JSON."""


class Split(StrEnum):
    """The part of the data that a document belongs to."""

    TRAIN = "train"
    VALIDATION = "validation"


@dataclass(frozen=True, kw_only=True)
class Document:
    """A text; its name is the same on every machine."""

    name: str
    text: str
    replaced_characters: int = 0
    """The number of the source's characters that are `REPLACEMENT` here."""

    def split(self, validation_percent: int = VALIDATION_PERCENT) -> Split:
        """Return the split, by the name alone: adding a document never moves another."""
        return split_by_hash(self.name, validation_percent)

    def size_bytes(self) -> int:
        """Bytes of the text as UTF-8."""
        return len(self.text.encode())


def split_by_hash(name: str, validation_percent: int) -> Split:
    """Return the split of the document of that name, the same for ever."""
    bucket = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % 100
    return Split.VALIDATION if bucket < validation_percent else Split.TRAIN


def make_document(text: str, name: str | None = None) -> Document:
    """Return the document of a text, in which `REPLACEMENT` stands for what is `NO_TEXT`.

    Without a name of its own it has that of its content: copies of one text get one split, so none leaks into
    validation.
    """
    text, replaced = NO_TEXT.subn(REPLACEMENT, text)
    return Document(name=name or hashlib.sha256(text.encode()).hexdigest(), text=text, replaced_characters=replaced)


class DocumentSource(Protocol):
    """A readable dataset. Its order never changes, so that reading can go on where it was broken off."""

    version: str
    """The version of the content, in words: a release, a revision, a hash. Equal versions give equal documents."""
    total_bytes: int | None
    """About how much there is to read, for a progress bar; None if nobody knows."""
    skipped_documents: int
    """Documents without text, or that could not be read, up to the last one that was yielded."""

    def documents(self, cursor: SourceCursor | None = None) -> Iterator[Document]:
        """Yield every readable document in the fixed order, from `cursor` on; raises `DataError`."""

    def cursor(self) -> SourceCursor:
        """Return the place behind the last document that was yielded."""


class LocalSource(ABC):
    """A source that is cheap to read again: its cursor counts the documents, and going on reads over them."""

    version: str
    total_bytes: int | None = None
    skipped_documents = 0
    _taken = 0

    @abstractmethod
    def read(self) -> Iterator[Document]:
        """Yield all documents, counting the others in `skipped_documents`."""

    def documents(self, cursor: SourceCursor | None = None) -> Iterator[Document]:
        """Yield every readable document from `cursor` on."""
        self.skipped_documents, self._taken = 0, 0
        start = int(cursor["documents"]) if cursor else 0
        for document in self.read():
            self._taken += 1
            if self._taken > start:
                yield document

    def cursor(self) -> SourceCursor:
        """Return the place behind the last document that was yielded."""
        return {"documents": self._taken}
