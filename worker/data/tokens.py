"""From text to token ids: every document ends with an end-of-document token."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from worker.errors import DataError

Tokens = NDArray[np.uint16]

BYTE_END_OF_DOCUMENT: Final = 0
"""NUL: a byte that no text file holds, so the 256 ids of the byte tokenizer suffice."""


def encode_bytes(text: str) -> Tokens:
    """One token a UTF-8 byte, then NUL; shape (bytes + 1,)."""
    ids = np.frombuffer(text.encode(), dtype=np.uint8).astype(np.uint16)
    return np.append(ids, np.uint16(BYTE_END_OF_DOCUMENT))


ENCODERS: Final[dict[str, Callable[[str], Tokens]]] = {"byte": encode_bytes}


def encoder(tokenizer: str) -> Callable[[str], Tokens]:
    """The encoder of a tokenizer of the catalog; raises `DataError` for another name."""
    if tokenizer not in ENCODERS:
        raise DataError(f"no encoder for the tokenizer {tokenizer!r}; there are: {', '.join(ENCODERS)}")
    return ENCODERS[tokenizer]
