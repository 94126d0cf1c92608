"""Datasets of conversations: prompts with their answers, each in one split for ever, written once a machine as tokens
and bounds, memory-mapped by every run.

source ──prepare_conversations──► train.tokens, train.bounds, validation.…, conversations.json ──► ConversationDataset
"""

import itertools
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from worker.catalog import datasets
from worker.data.documents import NO_TEXT, REPLACEMENT, Split, split_by_hash
from worker.data.manifest import ConversationManifest
from worker.data.tokenizers import BpeTokenizer, ByteTokenizer, Tokenizer, Tokens, tokenizer_file
from worker.errors import CorruptShardError, DataError
from worker.files import UNFINISHED, file_sha256, hold_lock

PROMPT_FORM: Final = "User: {prompt}\nAssistant:"
"""The form of a prompt: plain text, so that every tokenizer has it; turns of one prompt repeat it."""


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """A prompt and the answer that a model should learn to give."""

    prompt: str
    answer: str
    split: Split


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
    """The dataset `chats`: some six hundred conversations that a tiny model can learn, the same for ever.

    Sums ("3 + 4" → "7"), echoes ("Say moon" → "moon"), opposites ("Opposite of hot" → "cold").
    """

    version = "1"
    """The version of the content, in words: a release, a revision."""
    skipped = 0
    """Conversations without a prompt or an answer, counted while `conversations` runs."""

    def conversations(self) -> Iterator[Conversation]:
        """Yield the sums, the echoes, the opposites, in a fixed order."""
        summands = range(LARGEST_SUMMAND + 1)
        pairs = [(f"{first} + {second}", str(first + second)) for first in summands for second in summands]
        for word in WORDS.split():
            pairs += [(f"Say {word}", word), (f"Say {word} twice", f"{word} {word}")]
        pairs += [(f"Opposite of {word}", opposite) for word, opposite in map(str.split, OPPOSITES.split(", "))]
        for prompt, answer in pairs:
            split = split_by_hash(prompt, VALIDATION_PERCENT)
            yield Conversation(prompt=prompt, answer=answer, split=split)


REPOSITORY: Final = "HuggingFaceH4/ultrafeedback_binarized"
REVISION: Final = "3949bf5f8c17c394422ccfab0c31ea9c20bdeb85"
"""The commit: what is read does not change under a comparison."""
AGAIN: Final = "Check the network, HF_ENDPOINT and HF_HOME; the next attempt tries again. `chats` needs no download."
SPLITS: Final = {Split.TRAIN: "train_sft", Split.VALIDATION: "test_sft"}


class UltraFeedback:
    """The dataset `ultrafeedback`, streamed: prompts with the answers that GPT-4 preferred.

    HuggingFaceH4/ultrafeedback_binarized (Tunstall et al., "Zephyr", arXiv 2310.16944, from Cui et al.,
    "UltraFeedback", arXiv 2310.01377): the splits `train_sft` (61,135 conversations) and `test_sft` (1,000), with the
    columns `prompt` and `chosen`, a list of turns {role, content} that ends with the chosen answer. Conversations
    without a prompt or an answer are left out.
    """

    def __init__(self, repository: str = REPOSITORY) -> None:
        """Read that repository: `owner/name`, or a local folder with the same files."""
        self._repository = repository
        self.version = f"{repository} at {REVISION}"
        self.skipped = 0

    def conversations(self) -> Iterator[Conversation]:
        """Yield the training split, then the test split, in their order.

        Raises:
            HubError: the dataset cannot be read (no network, say).
            DataError: it has other columns.
        """
        self.skipped = 0
        for split, name in SPLITS.items():
            for number, row in enumerate(self._rows(name)):
                conversation = _conversation(row, split, f"row {number} of {name} in {self._repository}")
                if conversation is None:
                    self.skipped += 1
                else:
                    yield conversation

    def _rows(self, split: str) -> Iterator[Mapping[str, Any]]:
        from worker.data.hub import explain_hub_errors, open_stream  # as in `sources.py`

        with explain_hub_errors(f"{self._repository} (split {split})", AGAIN):
            yield from open_stream(self._repository, None, split=split, revision=REVISION)


def _conversation(row: Mapping[str, Any], split: Split, row_name: str) -> Conversation | None:
    """Return the conversation of a row; None if prompt or answer are empty."""
    prompt, turns = row.get("prompt"), row.get("chosen")
    if not isinstance(prompt, str) or not isinstance(turns, Sequence) or isinstance(turns, str):
        raise DataError(
            f"{row_name} has the columns {', '.join(row)}; needed are prompt, a text, and chosen, a list of turns. "
            f"Use a revision of {REPOSITORY}."
        )
    answers = [turn["content"] for turn in turns if turn["role"] == "assistant"]
    if not prompt.strip() or not answers or not answers[-1].strip():
        return None
    prompt, answer = (NO_TEXT.sub(REPLACEMENT, text.strip()) for text in (prompt, answers[-1]))
    return Conversation(prompt=prompt, answer=answer, split=split)


logger = logging.getLogger(__name__)

TOKEN_DTYPE: Final = np.dtype("<u4")
BOUND_DTYPE: Final = np.dtype("<i8")
ENCODED_TOGETHER: Final = 1_000
"""Conversations that are given to a tokenizer at once, which encodes on all cores."""
ConversationSource = Chats | UltraFeedback
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
        """Return (prompt, answer with its end-of-document token) of a conversation."""
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
            split_bounds = bounds[split]
            start = split_bounds[-1][1] if split_bounds else 0
            split_bounds.append((start + len(prompt), start + len(prompt) + len(answer)))
            files[split].write(np.concatenate((prompt, answer)).astype(TOKEN_DTYPE).tobytes())
    finally:
        for file in files.values():
            file.close()
    for split, pairs in bounds.items():
        (folder / f"{split}.bounds").write_bytes(np.array(pairs, dtype=BOUND_DTYPE).tobytes())
    return {split: len(pairs) for split, pairs in bounds.items()}


def _encode_conversations(source: ConversationSource, tokenizer: Tokenizer) -> Iterator[tuple[Split, Tokens, Tokens]]:
    """Yield (split, prompt, answer with its end) of every conversation."""
    conversations = source.conversations()
    while several := list(itertools.islice(conversations, ENCODED_TOGETHER)):
        prompts = tokenizer.encode([PROMPT_FORM.format(prompt=conversation.prompt) for conversation in several])
        answers = tokenizer.encode([f" {conversation.answer}" for conversation in several])
        for conversation, prompt, answer in zip(several, prompts, answers, strict=True):
            yield conversation.split, prompt[:-1], answer  # a prompt does not end: its answer follows


def open_conversations(folder: Path) -> ConversationDataset:
    """Open what is prepared in `folder`; raises `CorruptShardError` if a file contradicts the manifest."""
    manifest = ConversationManifest.read(folder)
    if fault := next(manifest.faults(folder), None):
        raise CorruptShardError(fault)
    return ConversationDataset(manifest, _map(folder, Split.TRAIN), _map(folder, Split.VALIDATION))


def _map(folder: Path, split: Split) -> Conversations:
    bounds = np.fromfile(folder / f"{split}.bounds", dtype=BOUND_DTYPE).reshape(-1, 2)
    return Conversations(np.memmap(folder / f"{split}.tokens", dtype=TOKEN_DTYPE, mode="r"), bounds)
