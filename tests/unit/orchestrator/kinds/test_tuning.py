"""Tuning: which rate wins, how a grid grows, and which runs phase 2 has; every candidate's course ends."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import (
    SeedCoverage,
    Tuning,
    TuningGroup,
    TuningRun,
    best_rate,
    grid_of,
    judged_rate,
    rate_between,
    rate_beyond_edge,
    seed_coverage,
)
from tests.factories.stores import comparison_spec
from worker.records.result import Verdict
from worker.spec.run import Workload
from worker.spec.task import RegressionTask

GRID = (1e-3, 2e-3, 4e-3)


def spec(extend_grid: int = 0, seeds: tuple[int, ...] = (0,)) -> ComparisonSpec:
    return comparison_spec(learning_rates=GRID, seeds=(1, 2, 3), tuning=Tuning(seeds=seeds, extend_grid=extend_grid))


def ended(lr: float, loss: float | None, seed: int = 0, verdict: Verdict | None = Verdict.CONVERGED) -> TuningRun:
    return TuningRun(lr=lr, seed=seed, ended=True, verdict=verdict, loss=loss)


def follow(of: ComparisonSpec, *trials: TuningRun) -> tuple[tuple[float, int], ...]:
    assert of.tuning is not None
    return of.tuning.next_pairs(of.candidates[0].learning_rates, of.seeds, trials)


def test_the_lowest_point_of_the_basin_runs_every_seed() -> None:
    """Of a parabola in log lr that is lowest at a third of a step from the best rate."""
    rates = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
    trials = [ended(lr, 2.3 + 0.1 * (math.log2(lr / 2e-3) - 1 / 3) ** 2) for lr in rates]
    judged = follow(spec(), *trials)
    assert [seed for _, seed in judged] == [1, 2, 3]
    assert [lr for lr, _ in judged] == pytest.approx([2e-3 * 2 ** (1 / 3)] * 3, rel=0.04)


def test_a_symmetric_basin_keeps_the_grids_own_rate() -> None:
    assert follow(spec(), ended(1e-3, 2.4), ended(2e-3, 2.3), ended(4e-3, 2.4))[0] == (2e-3, 1)


def test_the_best_rate_at_an_edge_is_judged_as_it_is() -> None:
    at_edge = [ended(1e-3, 2.5), ended(2e-3, 2.4), ended(4e-3, 2.3)]
    assert follow(spec(), *at_edge)[0] == (4e-3, 1)


def test_beside_a_rate_that_diverged_one_a_step_back_is_judged() -> None:
    above = [ended(1e-3, 2.5), ended(2e-3, 2.3), ended(4e-3, None, verdict=Verdict.DIVERGED)]
    below = [ended(1e-3, None, verdict=Verdict.DIVERGED), ended(2e-3, 2.3), ended(4e-3, 2.5)]
    assert follow(spec(), *above)[0] == (1.33e-3, 1)
    assert follow(spec(), *below)[0] == (3e-3, 1)


@pytest.mark.parametrize("verdict", [None, Verdict.OUT_OF_MEMORY])
def test_a_rate_whose_run_failed_or_was_cancelled_is_no_cliff(verdict: Verdict | None) -> None:
    """Nothing was learned about it: the basin goes through the rates beside it, and the best one at the edge of those
    is judged as it is."""
    assert follow(spec(), ended(1e-3, 2.5), ended(2e-3, 2.3), ended(4e-3, None, verdict=verdict))[0] == (2e-3, 1)
    assert follow(spec(4), ended(1e-3, 2.5), ended(2e-3, 2.3), ended(4e-3, None, verdict=verdict))[0] == (2e-3, 1)
    runs = [ended(1e-3, 2.4), ended(2e-3, 2.3), ended(4e-3, None, verdict=verdict), ended(8e-3, 2.5)]
    assert judged_rate(runs) == judged_rate([run for run in runs if run.loss is not None])
    one_seed = [ended(4e-3, 2.31, seed=0), ended(4e-3, None, seed=1, verdict=verdict)]
    two_seeds = [ended(lr, loss, seed) for lr, loss in ((1e-3, 2.5), (2e-3, 2.3)) for seed in (0, 1)]
    assert judged_rate([*two_seeds, *one_seed]) == 2e-3


@given(st.lists(st.floats(2.0, 4.0), min_size=3, max_size=7), st.sampled_from((1.3, 2.0, 3.0)))
def test_the_judged_rate_lies_between_the_neighbours_of_the_best(losses: list[float], factor: float) -> None:
    """However many valleys there are."""
    rates = [float(f"{1e-3 * factor**place:.12g}") for place in range(len(losses))]
    runs = [ended(lr, loss) for lr, loss in zip(rates, losses, strict=True)]
    best, judged = best_rate(runs), judged_rate(runs)
    assert best is not None and judged is not None
    assert abs(math.log(judged / best)) < math.log(factor)


def test_a_hill_within_a_gap_of_the_grid_is_measured_first() -> None:
    """Valleys at 2e-3 and 4e-3: the loss may be lowest between them, and there lies the next rate."""
    of, trials = spec(extend_grid=6), [ended(1e-3, 2.4), ended(2e-3, 2.0), ended(4e-3, 2.01), ended(8e-3, 2.4)]
    assert 2e-3 < (judged_rate(trials) or 0) < 4e-3
    assert follow(of, *trials) == ((2.79e-3, 0),)
    judged = judged_rate([*trials, ended(2.79e-3, 2.2)])
    assert judged is not None and judged < 2.3e-3


def test_a_coarse_basin_is_narrowed_where_it_may_be_lowest_until_little_is_open() -> None:
    """Rates a factor of ten apart, the loss 0.02 nats a factor of two off 2e-3, squared."""

    def loss(lr: float) -> float:
        return 2.3 + 0.02 * math.log2(lr / 2e-3) ** 2

    of = comparison_spec(learning_rates=(1e-4, 1e-3, 1e-2), seeds=(1, 2), tuning=Tuning(seeds=(0,)))
    trials = [ended(lr, loss(lr)) for lr in (1e-4, 1e-3, 1e-2)]
    added = []
    while follow(of, *trials)[0][1] == 0:
        (pair,) = follow(of, *trials)
        added.append(pair[0])
        trials.append(ended(pair[0], loss(pair[0])))
    assert len(added) <= 6
    assert all(1e-3 < rate < 1e-2 for rate in added)
    judged = follow(of, *trials)[0][0]
    assert loss(judged) - 2.3 < 5e-4


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(("margin", "more"), [(None, 3), (0.3, 0)])
def test_where_losses_have_no_unit_the_same_rates_are_tried_in_any(
    unit: float, margin: float | None, more: int
) -> None:
    of = comparison_spec(learning_rates=GRID, seeds=(1, 2, 3), tuning=Tuning(seeds=(7, 8, 9)))
    workload = Workload(task=RegressionTask(), model="linear", budget=of.workload.budget)
    of = of.model_copy(update={"workload": workload, "equivalence_margin": margin and margin * unit})
    group = TuningGroup(candidate="adamw", model=workload.model, steps=workload.budget.steps or 0)

    def tried(rate: float, seed: int) -> TuningRun:
        noise = 0.001 * ((round(rate * 1e5) * seed) % 7)
        return ended(rate, unit * (2.3 + 0.1 * math.log2(rate / 2.5e-3) ** 2 + noise), seed)

    trials = [tried(lr, seed) for lr in GRID for seed in (7, 8, 9)]
    added = []
    while (runs := of.follow_up_runs(group, trials))[0].spec.seed not in of.seeds:
        added.append(runs[0].spec.optimizer.lr)
        trials += [tried(run.spec.optimizer.lr, run.spec.seed) for run in runs]
    assert len(added) == more


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_a_kink_takes_no_more_rates_than_it_may(allowed: int) -> None:
    of = spec(extend_grid=allowed)
    trials = [ended(lr, 2.3 + 100 * abs(lr - 2e-3)) for lr in GRID]
    while (pairs := follow(of, *trials))[0][1] == 0:
        trials += [ended(lr, 2.3 + 100 * abs(lr - 2e-3), seed) for lr, seed in pairs]
    assert len(trials) == len(GRID) + allowed


def test_noise_alone_places_no_rate() -> None:
    """A basin of which 0.002 nats are open, and one of 0.02, on seeds that differ by as much from rate to rate."""

    def noisy(rise: float, noise: float) -> list[TuningRun]:
        return [
            ended(lr, 2.3 + rise * (lr != 2e-3) + noise * ((3 * place + 7 * seed) % 5 - 2) + 0.01 * seed, seed)
            for place, lr in enumerate(GRID)
            for seed in (7, 8, 9)
        ]

    assert rate_between(noisy(0.002, 0.0)) is None
    assert rate_between(noisy(0.02, 0.02)) is None
    assert rate_between(noisy(0.02, 0.0)) is not None


def test_a_cliff_is_approached_by_halves_until_it_is_near() -> None:
    """4e-3 diverges: of the rates in between 2.83e-3 is trained, then 3.36e-3; then a factor of 1.19 is left, and a
    rate a step back from the best is judged."""
    of = spec(extend_grid=4)
    trials = [ended(1e-3, 2.5), ended(2e-3, 2.4), ended(4e-3, None, verdict=Verdict.DIVERGED)]
    assert follow(of, *trials) == ((2.83e-3, 0),)
    trials.append(ended(2.83e-3, 2.35))
    assert follow(of, *trials) == ((3.36e-3, 0),)
    assert follow(of, *trials, ended(3.36e-3, 2.33))[0] == (2.24e-3, 1)
    assert follow(of, *trials, ended(3.36e-3, None, verdict=Verdict.DIVERGED))[0] == (1.89e-3, 1)


@pytest.mark.parametrize("verdict", [Verdict.CONVERGED, Verdict.DIVERGED])
def test_a_cliff_of_spikes_is_approached_as_one_of_divergence(verdict: Verdict) -> None:
    """Two of three runs at 0.64 ended far too high for their seeds. 0.213, a step back from the best rate, was judged
    with half of the rates unused."""
    of = spec(extend_grid=3, seeds=(7, 8, 9))
    falling = {0.08: 0.30, 0.16: 0.22, 0.32: 0.18, 0.64: 0.16}
    trials = [
        ended(lr, 2 + loss + 0.01 * seed + 0.001 * ((3 * place + seed) % 4), seed)
        for place, (lr, loss) in enumerate(falling.items())
        for seed in (7, 8, 9)
        if (lr, seed) not in ((0.64, 7), (0.64, 9))
    ]
    losses = (3.4, 2.9) if verdict is Verdict.CONVERGED else (None, None)
    trials += [ended(0.64, loss, seed, verdict) for loss, seed in zip(losses, (7, 9), strict=True)]
    assert best_rate(trials) == 0.32
    of = of.model_copy(update={"candidates": (Candidate(optimizer="adamw", learning_rates=tuple(falling)),)})
    assert follow(of, *trials) == ((0.453, 7), (0.453, 8), (0.453, 9))


def test_a_cliff_whose_runs_scatter_is_approached_as_one_of_divergence() -> None:
    """No run at 0.64 ended far too high by itself; together they differ thirty times as much as those below."""
    of = spec(extend_grid=3, seeds=(7, 8, 9))
    falling = {0.08: 0.30, 0.16: 0.22, 0.32: 0.18}
    trials = [
        ended(lr, 2 + loss + 0.01 * seed + 0.001 * ((3 * place + seed) % 4), seed)
        for place, (lr, loss) in enumerate(falling.items())
        for seed in (7, 8, 9)
    ]
    steady = [ended(0.64, 2.24 + 0.01 * seed, seed) for seed in (7, 8, 9)]
    scattered = [ended(0.64, 2.24 + rise + 0.01 * seed, seed) for seed, rise in ((7, 0.0), (8, 0.06), (9, 0.03))]
    candidates = (Candidate(optimizer="adamw", learning_rates=(*falling, 0.64)),)
    of = of.model_copy(update={"candidates": candidates})
    assert follow(of, *trials, *scattered) == ((0.453, 7), (0.453, 8), (0.453, 9))
    assert follow(of, *trials, *steady) != follow(of, *trials, *scattered), "else it is the side of a basin"


def test_a_rate_at_which_most_runs_spiked_is_not_the_best() -> None:
    """Its mean is the lowest: of what spikes there one run says nothing."""
    rates = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
    trials = [
        ended(lr, 2.3 + 0.25 * (place - 3) ** 2 + 0.001 * ((3 * place + 2 * seed) % 5), seed)
        for place, lr in enumerate(rates)
        for seed in (0, 8, 9)
    ]
    spikes = {(4e-3, 0): 0.2, (4e-3, 9): 0.35}
    lifted = [ended(each.lr, (each.loss or 0) + spikes.get((each.lr, each.seed), 0.0), each.seed) for each in trials]
    assert grid_of(lifted).spiking() == {4e-3}
    assert best_rate(trials) == 4e-3
    assert best_rate(lifted) in (2e-3, 8e-3)


def test_a_spike_neither_wins_nor_loses_a_rate() -> None:
    """Five rates on three seeds; at the best one a run ends 0.4 too high."""
    noise = iter(
        (
            (0.003, -0.002, 0.001),
            (-0.001, 0.002, -0.003),
            (0.002, 0.001, -0.001),
            (0, -0.002, 0.003),
            (0.001, 0, -0.002),
        )
    )
    rates = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
    smooth = [
        ended(lr, 2.3 + 0.02 * (place - 2) ** 2 + 0.01 * seed + own, seed)
        for place, lr in enumerate(rates)
        for seed, own in zip((0, 8, 9), next(noise), strict=True)
    ]
    spiked = [
        ended(each.lr, (each.loss or 0) + 0.4, each.seed) if (each.lr, each.seed) == (2e-3, 8) else each
        for each in smooth
    ]
    assert grid_of(spiked).spikes == {(2e-3, 8)}
    assert grid_of(smooth).spikes == frozenset()
    assert best_rate(spiked) == best_rate(smooth) == 2e-3
    assert judged_rate(spiked) == pytest.approx(judged_rate(smooth), rel=0.05)


def test_nothing_follows_before_every_run_of_the_candidate_has_ended() -> None:
    waiting = TuningRun(lr=4e-3, seed=0, ended=False, verdict=None, loss=None)
    assert follow(spec(), ended(1e-3, 2.5), ended(2e-3, 2.3), waiting) == ()


def test_phase_two_is_submitted_once() -> None:
    trials = [ended(1e-3, 2.5), ended(2e-3, 2.3), ended(4e-3, 2.4)]
    second = [TuningRun(lr=lr, seed=seed, ended=False, verdict=None, loss=None) for lr, seed in follow(spec(), *trials)]
    assert follow(spec(), *trials, *second) == ()


def test_a_rate_that_diverged_on_one_tuning_seed_does_not_win() -> None:
    of = spec(seeds=(0, 9))
    steady = [ended(lr, 2.5, seed) for lr in (1e-3, 2e-3) for seed in (0, 9)]
    shaky = [ended(4e-3, 1.0), ended(4e-3, None, 9, Verdict.DIVERGED)]
    assert seed_coverage(shaky) is SeedCoverage.UNSTABLE
    assert best_rate([*steady, *shaky]) == 1e-3
    assert follow(of, *steady, *shaky)[0][0] == 1e-3


def test_without_any_loss_nothing_follows() -> None:
    trials = [ended(lr, None, verdict=Verdict.DIVERGED) for lr in GRID]
    assert follow(spec(extend_grid=2), *trials) == ()


def test_a_grid_grows_at_the_edge_of_the_optimum_until_it_is_interior() -> None:
    of = spec(extend_grid=2)
    trials = [ended(1e-3, 2.5), ended(2e-3, 2.4), ended(4e-3, 2.3)]
    assert follow(of, *trials) == ((8e-3, 0),)
    interior = [*trials, ended(8e-3, 2.4)]
    ((between, seed),) = follow(of, *interior)
    assert 2e-3 < between < 8e-3 and seed == 0, "one more was allowed, and the basin is coarse"
    judged = follow(of, *interior, ended(between, 2.35))
    assert [seed for _, seed in judged] == [1, 2, 3]
    assert follow(of, *trials, ended(8e-3, 2.2)) == ((16e-3, 0),)
    assert follow(of, *trials, ended(8e-3, 2.2), ended(16e-3, 2.1))[0] == (16e-3, 1), "two were allowed"


@pytest.mark.parametrize(
    ("grid", "best", "expected"),
    [
        ((1e-3, 3e-3), 3e-3, 9e-3),
        ((1e-3, 3e-3), 1e-3, 3.33333333333e-4),
        ((1e-3, 2e-3, 8e-3), 8e-3, 3.2e-2),
        ((1e-3, 2e-3, 8e-3), 2e-3, None),
        ((1e-3,), 1e-3, 2e-3),
        ((1e6,), 1e6, None),
        ((1e5, 1e6), 1e6, None),
    ],
)
def test_the_next_rate_keeps_the_grids_factor_and_the_bounds(
    grid: tuple[float, ...], best: float, expected: float | None
) -> None:
    assert rate_beyond_edge(grid, best) == expected


@given(st.integers(0, 4), st.lists(st.one_of(st.none(), st.floats(1, 9)), min_size=7, max_size=7), st.integers(1, 2))
def test_every_course_ends_within_its_budget(extend: int, losses: list[float | None], tuning_seeds: int) -> None:
    """Whatever the losses are, the runs stay within `run_count()`."""
    of = spec(extend, tuple(range(100, 100 + tuning_seeds)))
    pending = [(run.spec.optimizer.lr, run.spec.seed) for run in of.first_runs()]
    trials: list[TuningRun] = []
    while pending:
        for lr, seed in pending:
            loss = losses[len(trials) % len(losses)]
            trials.append(ended(lr, loss, seed, Verdict.CONVERGED if loss is not None else Verdict.DIVERGED))
        pending = list(follow(of, *trials))
    assert len(trials) <= of.run_count()
    assert len({(each.lr, each.seed) for each in trials}) == len(trials)


def refused(**changes: object) -> str:
    fields = comparison_spec(learning_rates=GRID, seeds=(1, 2)).model_dump() | changes
    with pytest.raises(ValidationError) as caught:
        ComparisonSpec.model_validate(fields)
    return str(caught.value)


def test_seeds_that_chose_a_rate_cannot_judge_it() -> None:
    assert "must share no seed with seeds, which has 1 too" in refused(tuning={"seeds": [0, 1]})


def test_a_grid_of_one_rate_is_extended_to_either_side() -> None:
    """It was judged at that rate as if others had been tried."""
    one = Candidate(optimizer="adamw", learning_rates=(1e-3,))
    of = spec(extend_grid=4).model_copy(update={"candidates": (one,)})
    alone = [ended(1e-3, 2.3)]
    assert follow(of, *alone) == ((2e-3, 0),)
    assert follow(of, *alone, ended(2e-3, 2.4)) == ((5e-4, 0),)
    assert follow(of, *alone, ended(2e-3, None, verdict=Verdict.DIVERGED)) == ((5e-4, 0),)
    assert follow(of, *alone, ended(2e-3, 2.2)) == ((4e-3, 0),)
    none = spec().model_copy(update={"candidates": (one,)})
    assert follow(none, *alone) == ((1e-3, 1), (1e-3, 2), (1e-3, 3))


def test_unequal_trial_budgets_are_refused_unless_they_are_asked_for() -> None:
    two = [{"optimizer": "adamw", "learning_rates": [1e-3]}, {"optimizer": "adapm", "learning_rates": [1e-3, 2e-3]}]
    expected = "has 1 of the 2 rates that others get; give all the same, or set unequal_grids"
    assert expected in refused(candidates=two)
    fields = comparison_spec().model_dump() | {"candidates": two, "unequal_grids": True}
    assert ComparisonSpec.model_validate(fields).unequal_grids


def test_a_loss_without_a_square_counts_as_diverged() -> None:
    """1e160 was squared while the end of its run was recorded: an OverflowError would have lost that end."""
    runs = [
        TuningRun(lr=lr, seed=seed, ended=True, verdict=Verdict.CONVERGED, loss=loss)
        for lr, loss in ((1e-3, 3.0), (2e-3, 2.9), (4e-3, 1e160))
        for seed in (1, 2, 3)
    ]
    assert best_rate(runs) == 2e-3
    assert Tuning(seeds=(1, 2, 3), extend_grid=0).next_pairs((1e-3, 2e-3, 4e-3), (7,), runs) == ((1.33e-3, 7),)
