"""From text to token ids: every document ends with the end-of-text token."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.uint16] | NDArray[np.uint32]

LARGEST_OF_TWO_BYTES: Final = 2**16
"""Vocabularies up to here are stored as uint16, larger ones as uint32."""


class Tokenizer(Protocol):
    """Turns texts into ids below `vocabulary_size`."""

    vocabulary_size: int
    end_of_text: int
    """The id that ends every document."""
    sha256: str | None
    """Of `tokenizer.json`; None where no file is needed."""

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """The ids of each text, then `end_of_text`; one array of shape (tokens,) a text."""


class ByteTokenizer:
    """One token a UTF-8 byte. NUL ends a text: no text file holds it, so 256 ids suffice."""

    vocabulary_size = 256
    end_of_text = 0
    sha256: str | None = None

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """The bytes of each text, then NUL."""
        return [np.frombuffer(text.encode() + b"\0", dtype=np.uint8).astype(np.uint16) for text in texts]


def token_bytes(vocabulary_size: int) -> int:
    """Bytes of one stored token."""
    return 2 if vocabulary_size <= LARGEST_OF_TWO_BYTES else 4


def token_dtype(size_bytes: int) -> np.dtype[np.unsignedinteger]:
    """Little-endian, so that shards can be copied between machines."""
    return np.dtype(f"<u{size_bytes}")
