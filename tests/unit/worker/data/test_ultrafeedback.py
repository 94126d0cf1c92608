"""UltraFeedback through `datasets`, from local files of the published columns: no network."""

import json
from pathlib import Path
from typing import Any

import pytest

from worker.data.conversations import (
    REVISION,
    Conversation,
    UltraFeedback,
    open_conversations,
    prepare_conversations,
)
from worker.data.documents import Split
from worker.errors import DataError, HubError


def row(prompt: str, answer: str) -> dict[str, Any]:
    """A row as `train_sft` has it."""
    turns = [{"content": prompt, "role": "user"}, {"content": answer, "role": "assistant"}]
    rejected = [turns[0], {"content": "no", "role": "assistant"}]
    scores = {"score_chosen": 9.0, "score_rejected": 3.0}
    return {"prompt": prompt, "prompt_id": "x", "chosen": turns, "rejected": rejected, "messages": turns, **scores}


CARD = """---
configs:
- config_name: default
  data_files:
  - {split: train_sft, path: train_sft.jsonl}
  - {split: test_sft, path: test_sft.jsonl}
---
"""


def repository(folder: Path, train: list[dict[str, Any]], test: list[dict[str, Any]]) -> str:
    """A local folder with the files of such a repository."""
    (folder / "hub").mkdir()
    (folder / "hub" / "README.md").write_text(CARD)
    for name, rows in (("train_sft", train), ("test_sft", test)):
        (folder / "hub" / f"{name}.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in rows))
    return str(folder / "hub")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` keeps its cache out of the home folder."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


def test_prompts_and_chosen_answers_are_read_and_prepared(tmp_path: Path) -> None:
    """In order; those without a prompt or an answer are counted and left out; NUL, an end, is replaced."""
    train = [row("Why? ", "Because."), row("Empty", "  "), row("How?", "S\0o."), row(" ", "?")]
    source = UltraFeedback(repository(tmp_path, train, [row("When?", "Now.")]))

    assert list(source.conversations()) == [
        Conversation(prompt="Why?", answer="Because.", split=Split.TRAIN),
        Conversation(prompt="How?", answer="S\ufffdo.", split=Split.TRAIN),
        Conversation(prompt="When?", answer="Now.", split=Split.VALIDATION),
    ]
    assert source.skipped == 2
    prepare_conversations(source, "ultrafeedback", "byte", tmp_path / "prepared")
    manifest = open_conversations(tmp_path / "prepared").manifest
    assert manifest.conversations == {Split.TRAIN: 2, Split.VALIDATION: 1}
    assert (manifest.skipped, manifest.source_version) == (2, f"{tmp_path / 'hub'} at {REVISION}")


def test_other_columns_are_refused_by_name(tmp_path: Path) -> None:
    wrong_row = {"question": "Why?", "chosen": "Because."}
    source = UltraFeedback(repository(tmp_path, [wrong_row], [wrong_row]))
    with pytest.raises(
        DataError, match=r"row 0 of train_sft in .*hub has the columns question, chosen; needed are prompt"
    ):
        list(source.conversations())


def test_a_dataset_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    source = UltraFeedback(repository(tmp_path, [], []))
    (tmp_path / "hub" / "train_sft.jsonl").unlink()
    with pytest.raises(HubError, match=r"cannot read .*hub \(split train_sft\) .*`chats` needs no download"):
        list(source.conversations())
