"""The generated conversations are the same for ever, right, and split by their prompts."""

import hashlib
from collections import Counter

from worker.data.conversations import Chats
from worker.data.documents import Split


def test_the_conversations_are_those_of_ever() -> None:
    """A changed table would change every figure that was measured on it."""
    said = [(one.prompt, one.answer, one.split) for one in Chats().conversations()]
    assert said == [(one.prompt, one.answer, one.split) for one in Chats().conversations()]
    assert len(said) == len({prompt for prompt, _, _ in said}) == 609
    assert hashlib.sha256(repr([(p, a, str(s)) for p, a, s in said]).encode()).hexdigest()[:16] == "a707e1d925770d52"


def test_both_splits_have_every_kind_and_the_answers_are_right() -> None:
    kinds: Counter[tuple[Split, str]] = Counter()
    for one in Chats().conversations():
        kind = "sum" if "+" in one.prompt else one.prompt.split()[0]
        kinds[one.split, kind] += 1
        if kind == "sum":
            first, second = map(int, one.prompt.split(" + "))
            assert one.answer == str(first + second)
        if kind == "Say":
            assert set(one.answer.split()) == {one.prompt.split()[1]}
    for kind in ("sum", "Say", "Opposite"):
        assert kinds[Split.TRAIN, kind] > 4 * kinds[Split.VALIDATION, kind] > 0
