"""Datasets and tokenizers by name, as data (no numpy, no torch)."""

from dataclasses import dataclass
from enum import StrEnum


class DataKind(StrEnum):
    """What a dataset holds; each task trains on one kind."""

    TEXT = "text"
    """Documents, cut into sequences."""
    CONVERSATIONS = "conversations"
    """Prompts with their answers."""
    DRAWN = "drawn samples"
    """Nothing stored: every sample is drawn when it is needed."""


@dataclass(frozen=True, kw_only=True)
class DatasetEntry:
    """One dataset of the catalog."""

    name: str
    summary: str
    licence: str
    kind: DataKind = DataKind.TEXT


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
    DatasetEntry(
        name="chats",
        summary="generated conversations that a tiny model can learn: sums, echoes, opposites; no download",
        licence="Apache-2.0",
        kind=DataKind.CONVERSATIONS,
    ),
    DatasetEntry(
        name="ultrafeedback",
        summary="prompts and chosen answers of HuggingFaceH4/ultrafeedback_binarized: 61,000 conversations",
        licence="MIT",
        kind=DataKind.CONVERSATIONS,
    ),
    DatasetEntry(
        name="drawn",
        summary="samples of the task regression, drawn as they are needed",
        licence="Apache-2.0",
        kind=DataKind.DRAWN,
    ),
)

TOKENIZERS: tuple[TokenizerEntry, ...] = (
    TokenizerEntry(name="byte", summary="one token a UTF-8 byte", vocabulary_size=256),
)


def dataset_names(kind: DataKind | None = None) -> tuple[str, ...]:
    """The names of all datasets, or of those of one kind."""
    return tuple(entry.name for entry in DATASETS if kind in (None, entry.kind))


def dataset(name: str) -> DatasetEntry:
    """The dataset of that name; `KeyError` names the known ones."""
    for candidate in DATASETS:
        if candidate.name == name:
            return candidate
    raise KeyError(f"unknown dataset {name!r}; known: {', '.join(dataset_names())}")


def tokenizer_names() -> tuple[str, ...]:
    """The names of all tokenizers."""
    return tuple(entry.name for entry in TOKENIZERS)


def tokenizer(name: str) -> TokenizerEntry:
    """The tokenizer of that name; `KeyError` names the known ones."""
    for candidate in TOKENIZERS:
        if candidate.name == name:
            return candidate
    raise KeyError(f"unknown tokenizer {name!r}; known: {', '.join(tokenizer_names())}")
