"""The generated conversations are the same for ever, right, and split by their prompts."""

import hashlib
from collections import Counter

from worker.data.conversations import Chats
from worker.data.documents import Split


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
