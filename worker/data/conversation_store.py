"""Prepared conversations on disk: tokens and bounds, written once a machine, memory-mapped by every run.

source ──prepare_conversations──► train.tokens, train.bounds, validation.…, conversations.json ──► ConversationDataset
"""

import itertools
import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from worker.catalog import datasets
from worker.data.conversations import Chats, ConversationSource, UltraFeedback
from worker.data.documents import Split
from worker.data.manifest import ConversationManifest
from worker.data.tokenizers import BpeTokenizer, ByteTokenizer, Tokenizer, Tokens, tokenizer_file
from worker.errors import CorruptShardError, DataError
from worker.files import UNFINISHED, file_sha256, hold_lock

logger = logging.getLogger(__name__)

TOKEN_DTYPE: Final = np.dtype("<u4")
BOUND_DTYPE: Final = np.dtype("<i8")
ENCODED_TOGETHER: Final = 1_000
"""Conversations that are given to a tokenizer at once, which encodes on all cores."""
SOURCES: Final[dict[str, Callable[[], ConversationSource]]] = {"chats": Chats, "ultrafeedback": UltraFeedback}


@dataclass(frozen=True)
class Conversations:
    """The conversations of one split."""

    tokens: NDArray[np.uint32]
    """All of them in a row."""
    bounds: NDArray[np.int64]
    """Shape (conversations, 2): where each prompt and each answer ends in `tokens`."""

    def __len__(self) -> int:
        return len(self.bounds)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """(prompt, answer with its end-of-document token) of a conversation."""
        start = int(self.bounds[index - 1, 1]) if index else 0
        prompt_end, answer_end = self.bounds[index].tolist()
        return self.tokens[start:prompt_end], self.tokens[prompt_end:answer_end]


@dataclass(frozen=True)
class ConversationDataset:
    """Prepared conversations, checked and open."""

    manifest: ConversationManifest
    train: Conversations
    validation: Conversations

    @property
    def data_hash(self) -> str:
        """SHA-256 over all of it."""
        return self.manifest.data_hash()


def ensure_conversations(
    dataset: str,
    tokenizer: str,
    dataset_folder: Path,
    data_hash: str | None = None,
    check_stop: Callable[[], None] = lambda: None,
) -> ConversationDataset:
    """Open `<dataset_folder>/<dataset>-<tokenizer>`, preparing it first where it is missing; one worker prepares, the
    others wait, and call `check_stop` meanwhile.

    Raises `DataError` for a dataset that cannot be read, is empty, or has another hash than `data_hash`,
    `CorruptShardError` for damaged files.
    """
    folder = dataset_folder / datasets.folder_name(dataset, tokenizer)
    if not folder.exists():
        dataset_folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder.with_name(f"{folder.name}.lock"), logger.info, check_stop):
            if not folder.exists():  # another worker may have prepared it while we waited
                prepare_conversations(SOURCES[dataset](), dataset, tokenizer, folder)
    opened = open_conversations(folder)
    if data_hash not in (None, opened.data_hash):
        raise DataError(
            f"{folder} has the data hash {opened.data_hash}; the specification asks for {data_hash}. "
            "Prepare the same conversations, or leave out data.data_hash."
        )
    return opened


def prepare_conversations(source: ConversationSource, dataset: str, tokenizer: str, folder: Path) -> None:
    """Tokenise `source` into `folder`, which appears complete or not at all."""
    unfinished = folder.with_name(f"{folder.name}{UNFINISHED}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    encoder: Tokenizer = ByteTokenizer()
    if tokenizer != "byte":
        encoder = BpeTokenizer(tokenizer_file(tokenizer, None), name=tokenizer)
    counts = _write_tokens(source, encoder, unfinished)
    if empty := next((split for split, count in counts.items() if count == 0), None):
        raise DataError(f"the dataset {dataset!r} has no conversation in its {empty} split. Check its files.")
    manifest = ConversationManifest(
        dataset=dataset,
        tokenizer=tokenizer,
        vocabulary_size=encoder.vocabulary_size,
        end_of_text=encoder.end_of_text,
        source_version=source.version,
        skipped=source.skipped,
        conversations=counts,
        sha256={path.name: file_sha256(path) for path in sorted(unfinished.iterdir())},
    )
    (unfinished / ConversationManifest.file_name).write_text(manifest.model_dump_json(indent=2) + "\n")
    unfinished.rename(folder)


def _write_tokens(source: ConversationSource, tokenizer: Tokenizer, folder: Path) -> dict[Split, int]:
    """Write both splits; returns how many conversations each has."""
    bounds = {split: list[tuple[int, int]]() for split in Split}
    files = {split: (folder / f"{split}.tokens").open("wb") for split in Split}
    try:
        for split, prompt, answer in _encode_conversations(source, tokenizer):
            known = bounds[split]
            start = known[-1][1] if known else 0
            known.append((start + len(prompt), start + len(prompt) + len(answer)))
            files[split].write(np.concatenate((prompt, answer)).astype(TOKEN_DTYPE).tobytes())
    finally:
        for file in files.values():
            file.close()
    for split, found in bounds.items():
        (folder / f"{split}.bounds").write_bytes(np.array(found, dtype=BOUND_DTYPE).tobytes())
    return {split: len(found) for split, found in bounds.items()}


def _encode_conversations(source: ConversationSource, tokenizer: Tokenizer) -> Iterator[tuple[Split, Tokens, Tokens]]:
    """(split, prompt, answer with its end) of every conversation."""
    conversations = source.conversations()
    while several := list(itertools.islice(conversations, ENCODED_TOGETHER)):
        prompts = tokenizer.encode([conversation.prompt_text() for conversation in several])
        answers = tokenizer.encode([conversation.answer_text() for conversation in several])
        for conversation, prompt, answer in zip(several, prompts, answers, strict=True):
            yield conversation.split, prompt[:-1], answer  # a prompt does not end: its answer follows


def open_conversations(folder: Path) -> ConversationDataset:
    """Open what is prepared in `folder`; raises `CorruptShardError` where a file contradicts the manifest."""
    manifest = ConversationManifest.read(folder)
    for name, expected in manifest.sha256.items():
        found = file_sha256(folder / name) if (folder / name).is_file() else "none, for it is missing"
        if found != expected:
            raise CorruptShardError(
                f"the file {folder / name} has SHA-256 {found}; the manifest says {expected}. "
                f"{manifest.way_out.format(folder=folder)}"
            )
    return ConversationDataset(manifest, _map(folder, Split.TRAIN), _map(folder, Split.VALIDATION))


def _map(folder: Path, split: Split) -> Conversations:
    bounds = np.fromfile(folder / f"{split}.bounds", dtype=BOUND_DTYPE).reshape(-1, 2)
    return Conversations(np.memmap(folder / f"{split}.tokens", dtype=TOKEN_DTYPE, mode="r"), bounds)
