"""Datasets and tokenizers by name, as data (no numpy, no torch)."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DatasetEntry:
    """One dataset of the catalog."""

    name: str
    summary: str
    licence: str


@dataclass(frozen=True, kw_only=True)
class TokenizerEntry:
    """One tokenizer of the catalog."""

    name: str
    summary: str
    vocabulary_size: int


DATASETS: tuple[DatasetEntry, ...] = (
    DatasetEntry(
        name="python-stdlib",
        summary="the Python interpreter's own library source: about 30 MB of text that needs no download",
        licence="PSF-2.0",
    ),
)

TOKENIZERS: tuple[TokenizerEntry, ...] = (
    TokenizerEntry(name="byte", summary="one token a UTF-8 byte", vocabulary_size=256),
)


def dataset_names() -> tuple[str, ...]:
    """The names of all datasets."""
    return tuple(entry.name for entry in DATASETS)


def tokenizer_names() -> tuple[str, ...]:
    """The names of all tokenizers."""
    return tuple(entry.name for entry in TOKENIZERS)


def tokenizer(name: str) -> TokenizerEntry:
    """The tokenizer of that name; `KeyError` names the known ones."""
    for candidate in TOKENIZERS:
        if candidate.name == name:
            return candidate
    raise KeyError(f"unknown tokenizer {name!r}; known: {', '.join(tokenizer_names())}")
