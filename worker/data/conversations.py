"""What a dataset of conversations is before it is tokenised: prompts with their answers, each in one split for ever."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from worker.data.documents import Split, split_by_hash
from worker.data.sources import explain_hub_errors
from worker.errors import DataError

PROMPT_FORM: Final = "User: {prompt}\nAssistant:"
"""What a model reads before it answers: plain text, so that every tokenizer has it; turns of one prompt repeat it."""


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One prompt and the answer that a model should learn to give."""

    prompt: str
    answer: str
    split: Split

    def prompt_text(self) -> str:
        """The prompt as a model reads it."""
        return PROMPT_FORM.format(prompt=self.prompt)

    def answer_text(self) -> str:
        """The answer as a model writes it; an end-of-document token follows."""
        return f" {self.answer}"


class ConversationSource(Protocol):
    """A readable dataset of conversations."""

    version: str
    """What is read, in words: a release, a revision."""
    skipped: int
    """Conversations without a prompt or an answer, counted while `conversations` runs."""

    def conversations(self) -> Iterator[Conversation]:
        """Yield every conversation in a fixed order."""


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
    skipped = 0

    def conversations(self) -> Iterator[Conversation]:
        """Yield the sums, the echoes, the opposites."""
        for prompt, answer in (*self._sums(), *self._echoes(), *self._opposites()):
            split = split_by_hash(prompt, VALIDATION_PERCENT)
            yield Conversation(prompt=prompt, answer=answer, split=split)

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

    def __init__(self, path: str = REPOSITORY, data_files: Mapping[str, str] | None = None) -> None:
        """Read the repository `path`, or {split: file} by `datasets`' loader of that name ("json", "parquet")."""
        self._path, self._data_files = path, data_files
        self._revision = None if data_files else REVISION
        self.version = f"{path} at {self._revision}" if self._revision else path
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
                conversation = _conversation(row, split, f"row {number} of {name} in {self._path}")
                if conversation is None:
                    self.skipped += 1
                else:
                    yield conversation

    def _rows(self, split: str) -> Iterator[Mapping[str, Any]]:
        from datasets import load_dataset  # a second of imports, for those who read it

        files = dict(self._data_files) if self._data_files else None
        with explain_hub_errors(f"{self._path} (split {split})", AGAIN):
            yield from load_dataset(self._path, data_files=files, split=split, streaming=True, revision=self._revision)


def _conversation(row: Mapping[str, Any], split: Split, where: str) -> Conversation | None:
    """The conversation of a row; None where prompt or answer are empty."""
    prompt, turns = row.get("prompt"), row.get("chosen")
    if not isinstance(prompt, str) or not isinstance(turns, Sequence) or isinstance(turns, str):
        raise DataError(
            f"{where} has the columns {', '.join(row)}; needed are prompt, a text, and chosen, a list of turns. "
            f"Use a revision of {REPOSITORY}."
        )
    answers = [turn["content"] for turn in turns if turn["role"] == "assistant"]
    if not prompt.strip() or not answers or not answers[-1].strip():
        return None
    return Conversation(prompt=prompt.strip(), answer=answers[-1].strip(), split=split)
