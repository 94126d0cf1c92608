"""Counts in sentences."""

import pytest

from worker.words import pluralize


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [
        (0, ("run",), "0 runs"),
        (1, ("run",), "1 run"),
        (1200, ("run",), "1,200 runs"),
        (1, ("batch", "batches"), "1 batch"),
        (2, ("batch", "batches"), "2 batches"),
        (1, ("run has", "runs have"), "1 run has"),
    ],
)
def test_one_is_not_many(count: int, words: tuple[str, ...], said: str) -> None:
    assert pluralize(count, *words) == said
