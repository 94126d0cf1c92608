"""Tries that are judged by betting: exact levels by enumeration, intervals, and when a try ends."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.comparison import added_runs
from orchestrator.campaigns.improvement import (
    CUT,
    FIRST_PAIRS,
    STAKES,
    PairsState,
    added_pairs,
    judge_improvement,
    log_purses,
    most_pairs,
    try_level,
)
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from tests.factories.comparison import Outcome, records
from tests.factories.stores import comparison_spec

LEVEL = 0.02


def test_all_tries_of_a_campaign_together_never_spend_more_than_its_error() -> None:
    """The shares sum to one: what is left from n on lies between the integrals of the same, 1 / (C ln n)."""
    known = math.fsum(try_level(place, 1.0) for place in range(1, 100_000))
    assert known + 1 / (2.1097428012 * math.log(100_000.5)) == pytest.approx(1, abs=1e-6)
    assert try_level(3, 0.05) == pytest.approx(0.05 * try_level(3, 1.0))


@settings(max_examples=25, deadline=None)
@given(
    worse=st.floats(0.05, 2.0),
    better=st.floats(0.05, 6.0),
    pairs=st.integers(2, 10),
)
def test_a_purse_reaches_its_bound_no_oftener_than_the_level(worse: float, better: float, pairs: int) -> None:
    """Every sequence of a difference of two values whose cut mean is zero, with its probability: on average the purse
    keeps its one unit, and it ever reaches 1/α with probability α at most."""
    cut_better = min(better, CUT)
    chance_of_better = worse / (worse + cut_better)
    signs = np.array(list(itertools.product([0, 1], repeat=pairs)))
    chances = np.where(signs == 1, chance_of_better, 1 - chance_of_better).prod(axis=1)
    purses = np.exp(log_purses(np.where(signs == 1, -better, worse), CUT))
    assert chances @ purses[:, -1] == pytest.approx(1, abs=1e-9)
    for level in (0.3, 0.1, 0.02):
        assert chances @ (purses.max(axis=1) >= 1 / level) <= level + 1e-12


def test_a_purse_is_what_three_gamblers_have() -> None:
    differences, mean, cut = [0.3, -1.0, -7.0, 0.1], 0.2, 2.0
    purses = [1.0] * len(STAKES)
    for place, each in enumerate(differences):
        kept = max(-cut, min(cut, each))
        purses = [
            purse * (1 + stake * (mean - kept) / (cut - mean)) for purse, stake in zip(purses, STAKES, strict=True)
        ]
        found = log_purses(np.array(differences), cut, mean)[place]
        assert found == pytest.approx(math.log(sum(purses) / len(STAKES)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-5, 5) | st.sampled_from([math.inf, -math.inf]), max_size=30))
def test_the_interval_leaves_zero_out_exactly_where_the_gain_is_shown(differences: list[float]) -> None:
    found = judge_improvement(differences, level=LEVEL, gain=1.0, most=most_pairs(LEVEL))
    assert -CUT <= found.low <= found.high <= CUT
    assert (found.high < 0) == (found.state is PairsState.SHOWN) == (found.evidence >= 1 / LEVEL)
    assert found.pairs <= len(differences)
    again = judge_improvement(differences[: found.pairs], level=LEVEL, gain=1.0, most=most_pairs(LEVEL))
    assert again == found  # what came after it decided nothing


def test_a_try_ends_shown_given_up_or_with_its_last_pair() -> None:
    most = most_pairs(LEVEL)
    assert judge_improvement([], level=LEVEL, gain=1.0, most=most).state is PairsState.OPEN
    assert judge_improvement([-1.0] * 3, level=LEVEL, gain=1.0, most=most).state is PairsState.OPEN
    shown = judge_improvement([-1.0] * most, level=LEVEL, gain=1.0, most=most)
    assert shown.state is PairsState.SHOWN and shown.pairs < most
    hopeless = judge_improvement([0.5, -0.2, 0.8, 0.3, 0.1], level=LEVEL, gain=1.0, most=most)
    assert (hopeless.state, hopeless.pairs) == (PairsState.FUTILE, FIRST_PAIRS)
    last = judge_improvement([-0.3, 0.1, -0.4], level=LEVEL, gain=1.0, most=3)
    assert last.state is PairsState.EXHAUSTED and last.high > 0


def test_a_run_without_a_loss_counts_as_the_cut() -> None:
    diverged = judge_improvement([math.inf, -1.0, -1.0], level=LEVEL, gain=1.0, most=20)
    assert diverged.mean == pytest.approx((CUT - 2) / 3)
    assert diverged.cut_pairs == 1


def test_the_purse_covers_the_mean_that_skewed_differences_have() -> None:
    """Where a t-test at this level is wrong far oftener: mostly a little better, seldom much worse."""
    random = np.random.default_rng(0)
    mean = math.exp(0.125)
    differences = (random.lognormal(0, 0.5, (20_000, 40)) - mean) / 0.604
    shown = (log_purses(differences, CUT) >= math.log(1 / 0.001)).any(axis=1).mean()
    assert shown <= 0.001


def test_pairs_are_added_to_an_open_try_once_all_of_its_runs_have_results() -> None:
    fields = comparison_spec(optimizers=("adamw", "adapm"), seeds=range(20)).model_dump()
    spec = ComparisonSpec.model_validate(
        fields | {"sequential": {"first_seeds": 4, "seeds_per_look": 2, "improvement": {"level": 0.01, "gain": 0.02}}}
    )

    def added(gain: float, last: Outcome = 2.5) -> set[tuple[str, int]]:
        def outcome(name: str, _lr: float, seed: int) -> Outcome:
            return last if (name, seed) == ("adapm", 3) else 2.5 - (gain + 0.01 * (seed % 2)) * (name == "adapm")

        experiment, runs = records(spec, outcome)
        assert added_runs(experiment, runs) == (), "looks at the comparison's own verdict add none"
        return {(run.candidate, run.spec.seed) for run in added_pairs(spec, runs)}

    assert added(0.01) == {(name, seed) for name in ("adamw", "adapm") for seed in (4, 5)}
    assert added(-1.0) == set(), "given up"
    assert added(0.01, None) == added(0.01, RunStatus.FAILED) == set()
