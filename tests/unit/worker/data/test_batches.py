"""Batches are a pure function of (seed, step); validation is the same for everybody."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.data.batches import Batches, validation_sequences
from worker.data.shards import TokenShards
from worker.errors import DataError

COUNTING = TokenShards([np.arange(5_000, dtype=np.uint16), np.arange(5_000, 6_000, dtype=np.uint16)])


def batches(seed: int = 3) -> Batches:
    return Batches(COUNTING, seed=seed, sequences=4, length=16)


def test_every_window_is_about_equally_likely() -> None:
    """Starts over 2,000 steps fill ten equal parts of the data evenly: chi-square below its 99.9 % point, 27.9."""
    starts = torch.cat([batches().batch(step)[:, 0] for step in range(2_000)]).numpy()
    first = starts[starts < 4_984]

    counts, _ = np.histogram(first, bins=10, range=(0, 4_984))
    expected = len(first) / 10
    assert ((counts - expected) ** 2 / expected).sum() < 27.9


def test_the_draw_is_the_one_of_ever() -> None:
    """Recorded from the first version: a change would silently break every resume and every pairing."""
    assert batches().batch(5)[:, 0].tolist() == RECORDED_STARTS


def test_validation_sequences_are_evenly_spread_from_end_to_end() -> None:
    """The first starts at the first window, the last at the last, gaps differ by at most one."""
    shards = TokenShards([np.arange(1_000, dtype=np.uint16)])

    starts = validation_sequences(shards, sequences=9, length=31)[:, 0]

    assert starts[0] == 0
    assert starts[-1] == 1_000 - 32
    gaps = starts.diff()
    assert gaps.max() - gaps.min() <= 1


def test_data_shorter_than_a_sequence_is_refused_with_the_way_out() -> None:
    """Both splits say which they are."""
    short = TokenShards([np.arange(16, dtype=np.uint16)])

    with pytest.raises(DataError, match=r"training data \(16 tokens\) holds no sequence of 17 tokens. Use a shorter"):
        Batches(short, seed=0, sequences=1, length=16)
    with pytest.raises(DataError, match="validation data"):
        validation_sequences(short, sequences=1, length=16)


def test_data_smaller_than_one_batch_are_refused_with_the_way_out() -> None:
    """A window would fit, but every batch would repeat most of the data."""
    small = TokenShards([np.arange(100, dtype=np.uint16)])

    with pytest.raises(DataError, match=r"\(100 tokens\) is smaller than one batch, 8 × 16 tokens\. Use a smaller"):
        Batches(small, seed=0, sequences=8, length=16)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31 - 1),
    steps=st.lists(st.integers(0, 2**40), min_size=1, max_size=8),
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=5),
    sequences=st.integers(1, 6),
    length=st.integers(1, 30),
)
def test_a_batch_is_a_function_of_seed_and_step_alone(
    seed: int, steps: list[int], sizes: list[int], sequences: int, length: int
) -> None:
    """For any data: asked in any order, by any object, a step has one batch, of windows that lie within one shard."""
    ends = np.cumsum(sizes).tolist()
    shards = TokenShards([np.arange(end - size, end, dtype=np.uint16) for end, size in zip(ends, sizes, strict=True)])
    if max(sizes) <= length or sum(sizes) < sequences * length:
        with pytest.raises(DataError):
            Batches(shards, seed=seed, sequences=sequences, length=length)
        return
    batch_source = Batches(shards, seed=seed, sequences=sequences, length=length)
    walked = {step: batch_source.batch(step) for step in steps}
    for step in reversed(steps):
        repeat = Batches(shards, seed=seed, sequences=sequences, length=length).batch(step)
        assert torch.equal(repeat, walked[step])
    for row in torch.cat(list(walked.values())).tolist():
        assert row == list(range(row[0], row[0] + length + 1))
        assert not any(row[0] < end <= row[-1] for end in ends), "no window crosses from one shard to the next"


RECORDED_STARTS = [5003, 143, 1998, 4083]
