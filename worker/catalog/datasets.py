"""Datasets and tokenizers by name, as data (no numpy, no torch).

What a user adds is called `own/<name>`: it can neither hide an entry of these tables nor be taken for one.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from optim.nearest import unknown

OWN_NAME: Final = re.compile(r"own/[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
"""Names of what users add; safe as a folder's name."""
TRAINED_NAME: Final = re.compile(r"bpe-([1-9][0-9]{2,5})")
SMALLEST_TRAINED: Final = 257
"""All bytes and the end-of-text token."""
LARGEST_TRAINED: Final = 200_000
"""Larger than any published vocabulary of one language; more is a mistake."""


class DataKind(StrEnum):
    """The content of a dataset; each task trains on one kind."""

    TEXT = "text"
    """Documents, cut into sequences."""
    CONVERSATIONS = "conversations"
    """Prompts with their answers."""
    DRAWN = "drawn samples"
    """No stored content: every sample is drawn when it is needed."""


@dataclass(frozen=True, kw_only=True)
class HubLocation:
    """The location of a dataset on the Hugging Face hub: pinned, so that equal names mean equal documents."""

    repository: str
    """`owner/name`, or a local folder with the same files."""
    revision: str
    """The commit."""
    subset: str
    """The configuration's name in the repository's card."""
    column: str = "text"


@dataclass(frozen=True, kw_only=True)
class DatasetEntry:
    """A dataset of the catalog."""

    name: str
    summary: str
    licence: str
    kind: DataKind = DataKind.TEXT
    hub: HubLocation | None = None
    """Streamed from here by `adapm-bench data prepare`; None: on this machine, and prepared by the first run."""


@dataclass(frozen=True, kw_only=True)
class TokenizerEntry:
    """A tokenizer of the catalog."""

    name: str
    summary: str
    vocabulary_size: int
    repository: str | None = None
    """The repository of `tokenizer.json` on the hub."""
    revision: str | None = None
    """The commit."""


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
    DatasetEntry(
        name="openwebtext",
        summary="pages linked from Reddit, GPT-2's data rebuilt: 8 million documents, 40 GB of text",
        licence="CC0-1.0 (the collection; texts belong to their authors)",
        hub=HubLocation(
            repository="Skylion007/openwebtext",
            revision="79d93d786212f7344586290adb811d4ae6a1762c",
            subset="plain_text",
        ),
    ),
    DatasetEntry(
        name="c4",
        summary="Colossal Clean Crawled Corpus, English: 365 million documents, 305 GB compressed",
        licence="ODC-By 1.0",
        hub=HubLocation(repository="allenai/c4", revision="1588ec454efa1a09f29cd18ddd04fe05fc8653a2", subset="en"),
    ),
    DatasetEntry(
        name="fineweb",
        summary="FineWeb's random sample of 10 billion GPT-2 tokens of filtered web pages",
        licence="ODC-By 1.0",
        hub=HubLocation(
            repository="HuggingFaceFW/fineweb",
            revision="9bb295ddab0e05d785b879661af7260fed5140fc",
            subset="sample-10BT",
        ),
    ),
)

TOKENIZERS: tuple[TokenizerEntry, ...] = (
    TokenizerEntry(name="byte", summary="one token a UTF-8 byte", vocabulary_size=256),
    TokenizerEntry(
        name="gpt2",
        summary="GPT-2's byte-level BPE",
        vocabulary_size=50257,
        repository="openai-community/gpt2",
        revision="607a30d783dfa663caf39e06633721c8d4cfcd7e",
    ),
    TokenizerEntry(
        name="llama2",
        summary="Llama 2's BPE; its repository asks for a licence first",
        vocabulary_size=32000,
        repository="meta-llama/Llama-2-7b-hf",
        revision="01c7f73d771dfac7d292323805ebc428287df4f9",
    ),
    TokenizerEntry(
        name="llama3",
        summary="Llama 3's byte-level BPE; its repository asks for a licence first",
        vocabulary_size=128256,
        repository="meta-llama/Meta-Llama-3-8B",
        revision="8cde5ca8380496c9a6cc7ef3a8b46a0372a1d920",
    ),
)


def dataset_names(kind: DataKind | None = None) -> tuple[str, ...]:
    """Return the values of `dataset`, or those of one kind: all names, then the pattern of own ones, which are text."""
    own_patterns = ("own/<name>",) if kind in (None, DataKind.TEXT) else ()
    return (*(entry.name for entry in DATASETS if kind in (None, entry.kind)), *own_patterns)


def dataset_kind(name: str) -> DataKind:
    """Return the kind of the dataset of that name; own ones hold text. `KeyError` names the known ones."""
    entry = dataset(name)
    return DataKind.TEXT if entry is None else entry.kind


def tokenizer_names() -> tuple[str, ...]:
    """Return the values of `tokenizer`: all names, then the patterns of trained and own ones."""
    return (*(entry.name for entry in TOKENIZERS), f"bpe-<{SMALLEST_TRAINED} to {LARGEST_TRAINED}>", "own/<name>")


def dataset(name: str) -> DatasetEntry | None:
    """Return the dataset of that name; None for an own one. `KeyError` names the known ones."""
    if OWN_NAME.fullmatch(name):
        return None
    for candidate in DATASETS:
        if candidate.name == name:
            return candidate
    raise KeyError(unknown("dataset", name, dataset_names()))


def tokenizer(name: str) -> TokenizerEntry | None:
    """Return the tokenizer of that name; None for one that is trained or own. `KeyError` names the known ones."""
    if OWN_NAME.fullmatch(name) or trained_size(name) is not None:
        return None
    for candidate in TOKENIZERS:
        if candidate.name == name:
            return candidate
    raise KeyError(unknown("tokenizer", name, tokenizer_names()))


def trained_size(name: str) -> int | None:
    """Return 512 for `bpe-512`; None if the name is not that of a trained tokenizer."""
    matched = TRAINED_NAME.fullmatch(name)
    size = int(matched[1]) if matched else 0
    return size if SMALLEST_TRAINED <= size <= LARGEST_TRAINED else None


def vocabulary_size(name: str) -> int | None:
    """Return the number of the tokenizer's tokens; None for an own one, of which only the manifest knows."""
    entry = tokenizer(name)
    return trained_size(name) if entry is None else entry.vocabulary_size


def folder_name(dataset_name: str, tokenizer_name: str) -> str:
    """Return the folder of a prepared dataset among all of them."""
    return f"{dataset_name}-{tokenizer_name}".replace("/", "-")
