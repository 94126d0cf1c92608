"""Conversations: generated ones are the same for ever; on disk what was written is read, what was damaged refused."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.data.conversations import (
    Chats,
    Conversation,
    ConversationDataset,
    ensure_conversations,
    open_conversations,
    prepare_conversations,
)
from worker.data.documents import Split
from worker.data.preparation import ensure_dataset
from worker.data.sources import source_of
from worker.errors import CorruptShardError, DataError


def texts(dataset: ConversationDataset, split: Split) -> list[tuple[str, str]]:
    """Prompts and answers of a split, back from its byte tokens."""
    chats = dataset.train if split is Split.TRAIN else dataset.validation
    return [tuple(bytes(part.tolist()).decode() for part in chats[index]) for index in range(len(chats))]  # type: ignore[misc]  # two parts


def test_every_conversation_comes_back_and_its_answer_ends(tmp_path: Path) -> None:
    dataset = ensure_conversations("chats", "byte", tmp_path)

    for split in Split:
        expected = [
            (f"User: {conversation.prompt}\nAssistant:", f" {conversation.answer}\0")
            for conversation in Chats().conversations()
            if conversation.split is split
        ]
        assert texts(dataset, split) == expected
    assert (dataset.manifest.vocabulary_size, dataset.manifest.end_of_text) == (256, 0)
    second_dataset = ensure_conversations("chats", "byte", tmp_path, dataset.data_hash)
    assert second_dataset.data_hash == dataset.data_hash


def test_another_hash_than_the_specs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"asks for 0{64}\. Prepare the same"):
        ensure_conversations("chats", "byte", tmp_path, "0" * 64)


@pytest.mark.parametrize("damage", ["changed", "missing", "manifest"])
def test_damage_is_named_with_the_way_out(damage: str, tmp_path: Path) -> None:
    ensure_conversations("chats", "byte", tmp_path)
    folder = tmp_path / "chats-byte"
    path = folder / ("conversations.json" if damage == "manifest" else "train.tokens")
    if damage == "missing":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[10] ^= 1
        path.write_bytes(content)
    with pytest.raises(CorruptShardError, match=r"Delete the folder .*chats-byte: the next run prepares it again\."):
        open_conversations(folder)


class Lopsided(Chats):
    """Has nothing to validate on."""

    def conversations(self) -> Iterator[Conversation]:
        yield Conversation(prompt="a", answer="b", split=Split.TRAIN)


def test_a_dataset_without_validation_is_refused_and_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no conversation in its validation split"):
        prepare_conversations(Lopsided(), "chats", "byte", tmp_path / "chats-byte")
    assert not (tmp_path / "chats-byte").exists()


def test_text_commands_refuse_conversations(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="chats holds conversations: its tasks prepare it when they first run"):
        source_of("chats")
    with pytest.raises(DataError, match="chats holds conversations"):
        ensure_dataset("chats", "byte", tmp_path)


def test_the_conversations_are_those_of_ever() -> None:
    """A changed table would change every figure that was measured on it."""
    triples = [
        (conversation.prompt, conversation.answer, conversation.split) for conversation in Chats().conversations()
    ]
    assert triples == [
        (conversation.prompt, conversation.answer, conversation.split) for conversation in Chats().conversations()
    ]
    assert len(triples) == len({prompt for prompt, _, _ in triples}) == 609
    assert hashlib.sha256(repr([(p, a, str(s)) for p, a, s in triples]).encode()).hexdigest()[:16] == "a707e1d925770d52"


def test_both_splits_have_every_kind_and_the_answers_are_right() -> None:
    kinds: Counter[tuple[Split, str]] = Counter()
    for conversation in Chats().conversations():
        kind = "sum" if "+" in conversation.prompt else conversation.prompt.split()[0]
        kinds[conversation.split, kind] += 1
        if kind == "sum":
            first, second = map(int, conversation.prompt.split(" + "))
            assert conversation.answer == str(first + second)
        if kind == "Say":
            assert set(conversation.answer.split()) == {conversation.prompt.split()[1]}
    for kind in ("sum", "Say", "Opposite"):
        assert kinds[Split.TRAIN, kind] > 4 * kinds[Split.VALIDATION, kind] > 0
