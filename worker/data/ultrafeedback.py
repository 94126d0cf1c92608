"""The dataset `ultrafeedback`: prompts with the answers that GPT-4 preferred, by `datasets`, streamed.

HuggingFaceH4/ultrafeedback_binarized (Tunstall et al., "Zephyr", arXiv 2310.16944, from Cui et al., "UltraFeedback",
arXiv 2310.01377): the splits `train_sft` (61,135 conversations) and `test_sft` (1,000), with the columns `prompt` and
`chosen`, a list of turns {role, content} that ends with the chosen answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from worker.data.conversations import Conversation
from worker.data.documents import Split
from worker.data.hub import explained
from worker.errors import DataError

REPOSITORY: Final = "HuggingFaceH4/ultrafeedback_binarized"
REVISION: Final = "3949bf5f8c17c394422ccfab0c31ea9c20bdeb85"
"""The commit: what is read does not change under a comparison."""
AGAIN: Final = "Check the network, HF_ENDPOINT and HF_HOME; the next attempt tries again. `chats` needs no download."
SPLITS: Final = {Split.TRAIN: "train_sft", Split.VALIDATION: "test_sft"}


class UltraFeedback:
    """Reads the published splits; conversations without a prompt or an answer are left out."""

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
        with explained(f"{self._path} (split {split})", AGAIN):
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
