"""From conversations to rows: shifted targets, cuts, left-padded prompts, and the rows of a step."""

import numpy as np
import pytest

from worker.data.batches import IGNORED, answer_rows, drawn_indices, prompt_rows, spread_indices
from worker.data.conversations import Conversations


def made(*pairs: tuple[list[int], list[int]]) -> Conversations:
    tokens, bounds = [], []
    for prompt, answer in pairs:
        tokens += prompt + answer
        bounds.append((len(tokens) - len(answer), len(tokens)))
    return Conversations(np.array(tokens, dtype=np.uint32), np.array(bounds, dtype=np.int64).reshape(-1, 2))


CONVERSATIONS = made(([1, 2, 3], [4, 5, 9]), ([6], [7, 9]), ([1, 2, 3, 4, 5, 6], [7, 8, 7, 8, 9]))


def test_only_answers_are_targets_and_each_is_predicted_from_what_precedes_it() -> None:
    inputs, targets = answer_rows(CONVERSATIONS, [0, 1], 6)
    assert inputs.tolist() == [[1, 2, 3, 4, 5, 9], [6, 7, 9, 0, 0, 0]]
    assert targets.tolist() == [[IGNORED, IGNORED, 4, 5, 9, IGNORED], [7, 9, *[IGNORED] * 4]]


@pytest.mark.parametrize(
    ("length", "inputs", "targets"),
    [
        (10, [1, 2, 3, 4, 5, 6, 7, 8, 7, 8], [7, 8, 7, 8, 9]),
        (8, [3, 4, 5, 6, 7, 8, 7, 8], [7, 8, 7, 8, 9]),
        (5, [4, 5, 6, 7, 8], [7, 8, 7]),
        (1, [6], [7]),
    ],
)
def test_what_is_too_long_loses_the_prompts_start_then_the_answers_end(
    length: int, inputs: list[int], targets: list[int]
) -> None:
    """At least half of the row is left to the prompt, and one token to the answer."""
    rows, wanted = answer_rows(CONVERSATIONS, [2], length)
    assert rows[0].tolist() == inputs
    assert [token for token in wanted[0].tolist() if token != IGNORED] == targets


def test_prompts_end_at_the_rows_end() -> None:
    rows, mask = prompt_rows([CONVERSATIONS[index][0] for index in range(3)], 4)
    assert rows.tolist() == [[0, 1, 2, 3], [0, 0, 0, 6], [3, 4, 5, 6]]
    assert mask.tolist() == [[0, 1, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1]]


def test_a_step_sees_the_same_conversations_for_ever_and_evaluation_reads_evenly() -> None:
    dataset = made(*[([1], [2]) for _ in range(100)])
    assert drawn_indices(dataset, seed=1, step=2, count=5) == drawn_indices(dataset, seed=1, step=2, count=8)[:5]
    assert drawn_indices(dataset, seed=1, step=2, count=8) != drawn_indices(dataset, seed=1, step=3, count=8)
    indices = {index for step in range(60) for index in drawn_indices(dataset, seed=1, step=step, count=16)}
    assert indices == set(range(100))
    assert spread_indices(dataset, 4) == [0, 33, 66, 99]
    assert spread_indices(dataset, 1000) == list(range(100))
    assert spread_indices(dataset, 1) == [0]
