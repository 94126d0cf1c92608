"""Looks at a comparison while it goes: their levels, what they spend together, and what becomes of candidates."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from orchestrator.analysis.comparison import compare
from orchestrator.analysis.sequential import chance_of_verdict, looks
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import ComparisonSpec, Sequential
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.records import Conclusion, RunRecord, SeedsStatus
from orchestrator.services.follow_ups import added_runs
from tests.factories.comparison import Outcome, evaluated_on, experiment_record, run_record
from tests.factories.stores import comparison_spec, result
from worker.records.result import Verdict


def spent(alpha: float, share: float) -> float:
    """Lan and DeMets' function, from scipy's normal."""
    return float(2 * stats.norm.sf(stats.norm.isf(alpha / 2) / share**0.5))


@pytest.mark.parametrize(("first", "most", "alpha"), [(3, 10, 0.05), (2, 10, 0.01), (3, 7, 0.0125), (5, 20, 0.05)])
def test_t_tests_of_equal_candidates_spend_what_each_look_may(first: int, most: int, alpha: float) -> None:
    """By half a million simulated experiments: at every look the share that has crossed a boundary by then."""
    draws, random = 500_000, np.random.default_rng(2)
    total, squares, crossed = np.zeros(draws), np.zeros(draws), np.zeros(draws, dtype=bool)
    for n in range(1, most + 1):
        pairs = random.standard_normal(draws)
        total, squares = total + pairs, squares + pairs**2
        if n >= first:
            error = np.sqrt((squares - total**2 / n) / (n - 1) / n)
            if (look := looks(first, most, alpha).get(n)) is not None:
                crossed |= np.abs(total / n) > stats.t.isf(look.level / 2, n - 1) * error
            expected = spent(alpha, n / most)
            assert abs(crossed.mean() - expected) < 4 * (expected / draws) ** 0.5 + 1e-5


def test_looks_without_levels_of_their_own_tell_equal_candidates_apart() -> None:
    """At ordinary 95 % intervals, after 3, 4, … 10 seeds: 17 % of experiments; docs/own-runs.md and the judgement of
    external runs have that figure."""
    seeds = np.arange(1, 11)
    pairs = np.random.default_rng(3).standard_normal((100_000, seeds.size))
    total, squares = pairs.cumsum(axis=1), (pairs**2).cumsum(axis=1)
    errors = np.sqrt((squares - total**2 / seeds)[:, 2:] / (seeds - 1)[2:] / seeds[2:])
    crossed = np.abs((total / seeds)[:, 2:]) > stats.t.isf(0.025, seeds[2:] - 1) * errors
    assert crossed.any(axis=1).mean() == pytest.approx(0.167, abs=0.005)


def test_the_first_look_spends_its_share_exactly() -> None:
    assert looks(3, 10, 0.05)[3].level == pytest.approx(spent(0.05, 0.3), rel=1e-9)


def test_with_many_seeds_the_boundaries_are_the_published_ones() -> None:
    """Five looks at O'Brien-Fleming-like boundaries (Jennison and Turnbull 2000; `gsDesign`): 4.877, 3.357, 2.680,
    2.290, 2.031. Looks at every seed spend sooner than at every fifth of them, so that the last one, which has all of
    alpha, is a little above the published one, and below that of continuous looks, 2.24."""
    last = stats.norm.isf(looks(3, 40, 0.05)[40].level / 2)
    assert 2.031 < last < 2.24


@settings(max_examples=10, deadline=None)
@given(first=st.integers(2, 6), more=st.integers(1, 12), comparisons=st.integers(1, 9))
def test_later_looks_have_more_of_alpha_and_none_has_all_of_it(first: int, more: int, comparisons: int) -> None:
    look_by_seeds = looks(first, first + more, 0.05 / comparisons)
    levels = [look_by_seeds[n].level for n in range(first, first + more + 1)]
    assert all(level < other for level, other in pairwise(levels))
    assert levels[-1] < 0.05 / comparisons < sum(levels)
    assert look_by_seeds[first].all_levels == pytest.approx(sum(levels))


@pytest.mark.parametrize(("mean", "margin"), [(0.0, None), (0.004, 0.01), (-0.01, 0.01), (0.002, 0.001)])
def test_the_chance_of_a_verdict_is_that_of_simulated_seeds(mean: float, margin: float | None) -> None:
    """Truths drawn from what four pairs allow, and six more pairs each; the spread is that of the last interval."""
    random, pairs, total, level = np.random.default_rng(5), 4, 10, 0.03
    spread = 0.006 * np.sqrt((pairs - 1) / random.chisquare(pairs - 1, 200_000))
    truth = mean + spread / pairs**0.5 * random.standard_normal(spread.size)
    later = truth + spread / (total - pairs) ** 0.5 * random.standard_normal(spread.size)
    last = (pairs * mean + (total - pairs) * later) / total
    half = stats.t.isf(level / 2, total - 1) * spread / total**0.5
    decided = np.abs(last) > half
    if margin is not None:
        decided |= np.abs(last) + stats.t.isf(level, total - 1) * spread / total**0.5 < margin
    chance = chance_of_verdict(mean, 0.006, pairs, total, level, margin=margin)
    assert chance == pytest.approx(decided.mean(), abs=0.01)


SEEDS = tuple(range(8))


def sequential(optimizers: tuple[str, ...] = ("adamw", "adapm")) -> ComparisonSpec:
    """Return a comparison at one rate each, with so much text that its error is none."""
    spec = evaluated_on(comparison_spec(optimizers=optimizers, learning_rates=(1e-3,), seeds=SEEDS))
    return spec.model_copy(update={"sequential": Sequential()})


def played(spec: ComparisonSpec, losses: Mapping[str, Sequence[Outcome] | Mapping[int, Outcome]]) -> list[RunRecord]:
    """All runs, where those of each candidate end so, by their seeds."""
    records: list[RunRecord] = []
    planned: tuple[PlannedRun, ...] = spec.first_runs()
    while planned:
        records += [
            run_record(run, len(records) + index, losses[run.candidate][run.spec.seed])
            for index, run in enumerate(planned)
        ]
        planned = added_runs(experiment_record(spec, len(records)), records)
    return records


NOISE = (0.0, 0.004, -0.003, 0.002, -0.004, 0.001, 0.003, -0.002)
LEVEL = tuple(3.0 + 0.01 * seed for seed in SEEDS)


def off_by(shift: float, noise: float = 1.0) -> tuple[Outcome, ...]:
    return tuple(level + shift + noise * deviation for level, deviation in zip(LEVEL, NOISE, strict=True))


def statuses(spec: ComparisonSpec, records: list[RunRecord]) -> dict[str, tuple[SeedsStatus, int, int]]:
    rows = compare(experiment_record(spec, len(records)), records).rows
    return {
        row.candidate: (row.seeds_used.status, row.seeds_used.seeds, row.seeds_used.looks)
        for row in rows
        if row.seeds_used
    }


def test_clear_differences_end_early_and_open_ones_go_on_with_the_baseline() -> None:
    spec = sequential(("adamw", "adapm", "lion"))
    records = played(spec, {"adamw": off_by(0, 0), "adapm": off_by(-1), "lion": off_by(0.0045)})
    status_by_candidate = statuses(spec, records)
    assert status_by_candidate["adapm"] == (SeedsStatus.DECIDED, 3, 1)
    assert status_by_candidate["lion"][0] is SeedsStatus.DECIDED
    assert 3 < status_by_candidate["lion"][1] < 8
    seeds = {name: {run.seed for run in records if run.candidate == name} for name in ("adamw", "lion")}
    assert seeds["adamw"] == seeds["lion"]


def test_a_hopeless_candidate_gets_no_more_seeds() -> None:
    """Its differences vary by far more than the margin."""
    spec = sequential()
    noise = tuple(50 * deviation for deviation in (0.01, -0.01, 0.001, 0.01, -0.01, 0.01, -0.01, 0.0))
    losses: tuple[Outcome, ...] = tuple(level + deviation for level, deviation in zip(LEVEL, noise, strict=True))
    records = played(spec, {"adamw": off_by(0, 0), "adapm": losses})
    assert statuses(spec, records)["adapm"] == (SeedsStatus.FUTILE, 3, 1)


def test_a_lost_run_is_left_out_of_the_looks_and_forbids_no_further_seed() -> None:
    """Two pairs of three seeds are too few for a look; then the differences decide that it is worse."""
    spec = sequential()
    lost: tuple[Outcome, ...] = (result(final_val_loss=None, verdict=Verdict.DIVERGED), *off_by(0.05)[1:])
    records = played(spec, {"adamw": off_by(0, 0), "adapm": lost})
    status, seeds, _ = statuses(spec, records)["adapm"]
    assert status is SeedsStatus.DECIDED and seeds > 3
    row = next(row for row in compare(experiment_record(spec, len(records)), records).rows if not row.is_baseline)
    assert row.conclusion is Conclusion.WORSE and row.difference is not None and row.difference.n == seeds - 1


def test_fewer_pairs_than_a_look_needs_are_no_reason_to_stop() -> None:
    """One of the first runs failed: nothing is tested at two pairs, and a third is added, however these two differ."""
    failing: tuple[Outcome, ...] = (*off_by(0.02)[:2], RunStatus.FAILED, *off_by(-1)[3:])
    records = played(sequential(), {"adamw": off_by(0, 0), "adapm": failing})
    assert len({run.seed for run in records if run.candidate == "adapm"}) > 3


def test_no_look_spends_what_is_only_rounding() -> None:
    """Of ten candidates' looks at 64 seeds the first have next to nothing, and are none."""
    look_by_seeds = looks(3, 64, 0.05 / 9)
    assert min(look.level for look in look_by_seeds.values()) > 1e-12
    assert min(look_by_seeds) > 3 and max(look_by_seeds) == 64


def test_looks_wait_for_every_run_of_their_seeds() -> None:
    spec = sequential()
    losses = {"adamw": off_by(0, 0), "adapm": off_by(0.0045)}
    first = [
        run_record(run, index, losses[run.candidate][run.spec.seed]) for index, run in enumerate(spec.first_runs())
    ]
    assert {(run.candidate, run.spec.seed) for run in added_runs(experiment_record(spec, 6), first)} == {
        ("adamw", 3),
        ("adapm", 3),
    }
    waiting = [*first[:-1], run_record(spec.first_runs()[-1], 5, None)]
    assert added_runs(experiment_record(spec, 6), waiting) == ()
    assert statuses(spec, waiting)["adapm"] == (SeedsStatus.WAITING, 3, 0)


@pytest.mark.parametrize(
    ("update", "where"),
    [
        ({"all_pairs": True}, "all_pairs"),
        ({"seeds": (1, 2, 3)}, "^1 validation error .*\nseeds"),
        ({"seeds": tuple(range(65))}, "^1 validation error .*\nseeds"),
        ({"candidates": [{"optimizer": "adamw", "learning_rates": [1e-3]}]}, "needs a second candidate"),
        ({"tuning": {"seeds": [101, 102], "replicates": 2}}, "each further replicate would have to be tuned first"),
    ],
)
def test_what_looks_cannot_go_with_is_refused(update: dict[str, object], where: str) -> None:
    spec = comparison_spec(optimizers=("adamw", "adapm"), seeds=SEEDS)
    fields = spec.model_dump(mode="json") | {"sequential": {}} | update
    with pytest.raises(ValueError, match=where):
        ComparisonSpec.model_validate(fields)
