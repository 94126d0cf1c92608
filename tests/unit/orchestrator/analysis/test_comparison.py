"""Comparisons: who ranks where, which verdict each candidate gets, and what is noted beside it."""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from orchestrator.analysis.comparison import ValidationCurve, compare, compared_runs
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.tuning import Tuning
from orchestrator.records import CandidateRow, Comparison, Conclusion, Difference, OpenInterval
from tests.factories.comparison import Outcome, evaluated_on, falling, records, tuned_records
from tests.factories.stores import comparison_spec, result
from tests.factories.study_results import DIVERGED
from worker.records.result import Result, Verdict

RATES = (1e-3, 2e-3, 4e-3)
PAIR = ("adamw", "adapm")
THREE = (*PAIR, "adapm-mini")
OUT_OF_MEMORY = result(final_val_loss=None, verdict=Verdict.OUT_OF_MEMORY)
SPIKED = result(final_val_loss=3.0).model_copy(update={"lowest_val_loss": 2.3})
"""A run that gave back 0.7 of the 3.3 nats of its fall."""
BASE = (2.30, 2.31, 2.29, 2.33, 2.30)
NOISE = (0.001, -0.002, 0.002, -0.001, 0.001)

Losses = dict[str, Sequence[Outcome]]


def spec(optimizers: Sequence[str] = PAIR, *, seeds: int = 5, **changes: Any) -> ComparisonSpec:
    """Candidates at one rate each, on so many seeds, by text enough that its error is nothing."""
    base_spec = comparison_spec(optimizers=optimizers, seeds=range(seeds))
    return evaluated_on(ComparisonSpec.model_validate(base_spec.model_dump() | changes))


def compared(specification: ComparisonSpec, losses: Losses, *, baseline: str | None = None) -> Comparison:
    """The answer where the runs of each candidate ended so, seed by seed."""
    measured = records(specification, lambda name, _lr, seed: losses[name][specification.seeds.index(seed)])
    return answered(compare(*measured, baseline=baseline))


def answered(comparison: Comparison) -> Comparison:
    """The answer, which is JSON without NaN."""
    json.dumps(comparison.model_dump(mode="json"), allow_nan=False)
    return comparison


def row(comparison: Comparison, name: str = "adapm") -> CandidateRow:
    return next(row for row in comparison.rows if row.candidate == name)


def difference(comparison: Comparison, name: str = "adapm") -> Difference:
    estimate = row(comparison, name).difference
    assert estimate is not None
    return estimate


def off(shift: float, noise: float = 1.0, losses: Sequence[float] = BASE) -> list[float]:
    """The losses of who lies so far off on each seed, give or take the noise."""
    return [loss + shift + noise * deviation for loss, deviation in zip(losses, NOISE, strict=True)]


def replaced(losses: Sequence[float], **ends: Outcome) -> list[Outcome]:
    """The losses with other ends, by `on_SEED`."""
    return [ends.get(f"on_{seed}", loss) for seed, loss in enumerate(losses)]


# Figures and verdicts


def test_a_verdict_does_not_depend_on_the_runs_of_others() -> None:
    losses: Losses = {"adamw": BASE, "adapm": off(-0.02), "adapm-mini": BASE}
    whole, lost = compared(spec(THREE), losses), compared(spec(THREE), losses | {"adapm-mini": [DIVERGED] * 5})
    assert (row(whole).difference, row(whole).conclusion) == (row(lost).difference, row(lost).conclusion)


@pytest.mark.parametrize("huge", [1e155, 1e308])
def test_a_loss_that_cannot_be_squared_is_a_lost_run(huge: float) -> None:
    """A regression's run may end so, in float64."""
    comparison = compared(spec(), {"adamw": BASE, "adapm": replaced(BASE, on_1=huge)})
    assert (row(comparison).conclusion, difference(comparison).n) == (Conclusion.UNSTABLE, 4)


# How a run of a random experiment ends: the same loss often, by chance, by little or far, or not with one at all.
ENDS: st.SearchStrategy[Outcome] = st.one_of(
    st.sampled_from([2.3, 2.3, 2.31, 2.2999, DIVERGED, OUT_OF_MEMORY, SPIKED, RunStatus.FAILED, None]),
    st.floats(2.2, 2.4),
    st.floats(2.3 - 1e-6, 2.3 + 1e-6),
    st.floats(0.1, 1e6),
)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(2, 4), st.integers(1, 6), st.booleans())
def test_verdict_interval_and_p_value_agree_whatever_an_experiment_comes_to(
    data: st.DataObject, rows: int, seeds: int, all_pairs: bool
) -> None:
    names = (*THREE, "lion")[:rows]
    shifts = {name: data.draw(st.sampled_from([0.0, 0.05, -0.05])) for name in names}
    ends: Losses = {name: [data.draw(ENDS) for _ in range(seeds)] for name in names}
    losses: Losses = {
        name: [end + shifts[name] if isinstance(end, float) else end for end in own] for name, own in ends.items()
    }
    comparison = compared(spec(names, seeds=seeds, all_pairs=all_pairs), losses)
    assert len(comparison.pairs) == (rows * (rows - 1) // 2 if all_pairs else 0)
    verdicts = [(row.difference, row.conclusion) for row in comparison.rows]
    for estimate, conclusion in [*verdicts, *((pair.difference, pair.conclusion) for pair in comparison.pairs)]:
        decided = conclusion in (Conclusion.BETTER, Conclusion.WORSE)
        if estimate is None or estimate.low is None or estimate.high is None:
            assert not decided and (estimate is None or estimate.p_value is None)
            continue
        assert estimate.p_value is not None
        assert (estimate.low > 0 or estimate.high < 0) == (estimate.p_value < 0.05) == estimate.decides()
        assert not decided or (estimate.decides() and (conclusion is Conclusion.BETTER) == (estimate.mean < 0))
        assert conclusion is not Conclusion.AS_GOOD or estimate.is_within_margin


# Lost runs


@pytest.mark.parametrize("end", [DIVERGED, OUT_OF_MEMORY, SPIKED])
def test_lost_runs_are_counted_and_left_out_of_the_loss(end: Result) -> None:
    comparison = compared(spec(), {"adamw": BASE, "adapm": replaced(off(-0.05), on_1=end)})
    adapm = row(comparison)
    assert adapm.val_loss is not None and adapm.instability is not None
    losses = [loss for seed, loss in enumerate(off(-0.05)) if seed != 1]
    assert adapm.val_loss.n == 4
    assert adapm.val_loss.mean == pytest.approx(float(np.mean(losses)))
    assert (adapm.lost_runs(), adapm.instability.lost, adapm.instability.runs) == (1, 1, 5)
    assert adapm.instability.p_value == 1.0, "McNemar's: one seed of one"
    assert not adapm.on_pareto_front


def test_candidates_without_a_loss_come_last_and_keep_their_sizes() -> None:
    comparison = compared(spec(THREE), {"adamw": [DIVERGED] * 5, "adapm": BASE, "adapm-mini": [OUT_OF_MEMORY] * 5})
    assert comparison.rows[0].candidate == "adapm"
    assert [row.conclusion for row in comparison.rows] == [
        Conclusion.UNDECIDED,
        Conclusion.UNSTABLE,
        Conclusion.NO_LOSS,
    ], "the baseline lost as many as AdaPM-mini"
    assert [(row.val_loss, row.best_lr) for row in comparison.rows[1:]] == [(None, None)] * 2
    assert {row.optimizer_state_bytes for row in comparison.rows} == {8_000_000}


# Order and the Pareto front


def test_the_best_stands_first_by_the_differences_to_the_baseline() -> None:
    """AdaPM is worse on each seed; a seed on which the baseline's run was lost lifts nobody."""
    hard = [2.30, 2.31, 3.29, 2.33, 2.30]
    losses: Losses = {"adamw": hard, "adapm": replaced(off(0.06, 1.0, hard), on_2=RunStatus.FAILED)}
    comparison = compared(spec(), losses)
    mean, adapm_loss = row(comparison, "adamw").val_loss, row(comparison).val_loss
    assert mean is not None and adapm_loss is not None and adapm_loss.mean < mean.mean
    assert [row.candidate for row in comparison.rows] == list(PAIR)
    three = compared(spec(THREE), {"adamw": BASE, "adapm": off(0.02), "adapm-mini": off(-0.02)})
    assert [row.candidate for row in three.rows] == ["adapm-mini", "adamw", "adapm"]


def test_the_pareto_front_has_who_is_not_beaten_on_loss_and_bytes() -> None:
    figures = {"adamw": (2.3, 8), "adapm": (2.2, 5), "adapm-mini": (2.25, 1), "lion": (2.4, 4)}
    losses: Losses = {
        name: [
            result(final_val_loss=final_loss).model_copy(update={"optimizer_state_bytes": size})
            for final_loss in off(loss - 2.3, 1.0)
        ]
        for name, (loss, size) in figures.items()
    }
    comparison = compared(spec(tuple(figures)), losses)
    assert {row.candidate for row in comparison.rows if row.on_pareto_front} == {"adapm", "adapm-mini"}


# Tuning


def tuned(ends: dict[str, float], *, at_edge: str = "", noise: float = 0.002, **tuning: Any) -> Comparison:
    """Tuned by a grid, each lowest at 2e-3, or at 4e-3 who is at the edge; judged there with that loss and noise."""
    specification = spec(tuple(ends), tuning={"method": "grid"} | tuning)
    specification = specification.model_copy(
        update={
            "candidates": tuple(
                candidate.model_copy(update={"learning_rates": RATES}) for candidate in specification.candidates
            )
        }
    )

    def outcome(run: PlannedRun) -> float:
        octaves = math.log2(run.spec.optimizer.lr / 2e-3)
        rise = 0.02 * (1 - octaves) if run.candidate == at_edge else 0.02 * octaves**2
        base = ends[run.candidate] + noise * NOISE[(run.spec.seed + len(run.candidate)) % 5] / 0.002
        lucky = 0.5 * (run.spec.seed not in specification.seeds)
        return base + rise - lucky

    return answered(compare(*tuned_records(specification, outcome)))


def test_a_candidate_is_judged_on_other_seeds_than_those_that_tuned_it() -> None:
    """The tuning seeds are lucky by half a nat."""
    comparison = tuned({"adamw": 2.3, "adapm": 2.25})
    adamw = row(comparison, "adamw")
    assert comparison.tuning_seeds == (1001, 1002, 1003) and comparison.complete
    assert adamw.val_loss is not None and adamw.val_loss.mean == pytest.approx(2.3, abs=0.003)
    assert [(rate.lr, rate.runs_total) for rate in adamw.learning_rates] == [(lr, 3) for lr in RATES]
    assert adamw.final is not None and (adamw.final.lr, adamw.final.runs_total) == (2e-3, 5)
    assert adamw.device_hours == pytest.approx(1.4), "14 runs of six minutes: tuning counts"
    assert row(comparison).conclusion is Conclusion.BETTER


def test_of_several_rates_without_tuning_the_best_is_shown_with_a_note() -> None:
    """A rate with a lost run ranks behind, however low its other runs are, and it is not the best one at an edge."""
    specification = spec().model_copy(
        update={"candidates": tuple(Candidate(optimizer=name, learning_rates=RATES) for name in PAIR)}
    )

    def outcome(name: str, lr: float, seed: int) -> Outcome:
        if lr == 4e-3:
            return DIVERGED if seed == 0 else 1.0
        return BASE[seed] + 10 * abs(lr - 2e-3) - (0.05 + NOISE[seed]) * (name == "adapm")

    comparison = answered(compare(*records(specification, outcome)))
    assert [(row.best_lr, row.edge_of_grid) for row in comparison.rows] == [(2e-3, False)] * 2
    assert row(comparison).learning_rates[2].lost == 1 and row(comparison).lost_runs() == 0
    assert row(comparison).conclusion is Conclusion.BETTER
    assert sum("chose and judged" in note for note in comparison.notes) == 1
    half = compare(
        *records(specification, lambda name, lr, seed: None if (lr, seed) == (2e-3, 0) else outcome(name, lr, seed))
    )
    assert {row.best_lr for row in half.rows} == {1e-3}, "complete rates rank before others"


def test_while_it_is_tuned_a_candidate_has_no_loss() -> None:
    specification = spec(tuning={})
    experiment, runs = records(specification, lambda _name, lr, _seed: None if lr > 1e-3 else 2.0 + lr)
    growing = experiment.model_copy(update={"counts": experiment.counts.model_copy(update={"growing": True})})
    comparison = answered(compare(growing, runs))
    assert {(row.tuning, row.val_loss, row.best_lr) for row in comparison.rows} == {(True, None, 5e-4)}
    assert not comparison.complete


def test_a_searched_candidate_is_judged_at_its_best_trial() -> None:
    tuning = Tuning(method="random", trials=8, search=("lr", "beta2"), replicates=3)
    specification = spec().model_copy(update={"tuning": tuning, "seeds": (1, 2, 3, 4, 5, 6)})

    def outcome(run: PlannedRun) -> float:
        setting = specification.searched_parameters(0, run.spec)
        lr, beta2 = setting["lr"], setting["beta2"]
        assert isinstance(lr, float) and isinstance(beta2, float)
        offset = 0.05 * (run.candidate == "adapm") + 0.1 * math.log(lr / 2e-3) ** 2
        return 2.0 + offset + beta2 + 0.01 * NOISE[run.spec.seed % 5] * len(run.candidate)

    experiment, runs = tuned_records(specification, outcome)
    adapm = row(answered(compare(experiment, runs)))
    assert adapm.difference is not None and adapm.difference.n == 3 and not adapm.edge_of_grid
    for replicate, tuning_seed in enumerate(tuning.seeds):
        adapm_runs = [run for run in runs if run.candidate == "adapm" and run.spec and run.result]
        trials = [run for run in adapm_runs if run.seed == tuning_seed]
        best = min(trials, key=lambda run: (run.result and run.result.final_val_loss) or math.inf)
        judged = [run for run in adapm_runs if run.seed in specification.replicate_seeds(replicate)[1]]
        assert {run.lr for run in judged} == {best.lr} and len(judged) == 2


def test_of_replicates_the_means_are_compared() -> None:
    """Three replicates of two seeds, each tuned on a seed of its own: three pairs."""
    seeds = tuple(range(6))
    specification = spec(seeds=6, tuning={"seeds": (101, 102, 103), "trials": 5, "replicates": 3})
    losses = {"adamw": (2.30, 2.31, 2.29, 2.33, 2.30, 2.32), "adapm": (2.28, 2.30, 2.27, 2.30, 2.29, 2.31)}

    def outcome(run: PlannedRun) -> float:
        judged = run.spec.seed in seeds
        return losses[run.candidate][run.spec.seed] if judged else 2 + math.log2(run.spec.optimizer.lr / 1e-3) ** 2

    comparison = answered(compare(*tuned_records(specification, outcome)))
    means = {name: [(values[index] + values[index + 3]) / 2 for index in range(3)] for name, values in losses.items()}
    test = stats.ttest_rel(means["adapm"], means["adamw"])
    assert (difference(comparison).n, row(comparison).lost_runs()) == (3, 0)
    assert difference(comparison).p_value == pytest.approx(test.pvalue, rel=1e-4)
    assert "3 replicates" in row(comparison).verdict


# Baselines and pairs


def test_every_pair_is_held_against_every_other_where_that_is_asked() -> None:
    losses = {"adamw": BASE, "adapm": off(-0.02, 3.0), "adapm-mini": off(0.03, -2.0)}
    comparison = compared(spec(THREE, all_pairs=True), dict(losses))
    assert {(pair.candidate, pair.other) for pair in comparison.pairs} == {
        ("adapm", "adamw"),
        ("adapm-mini", "adamw"),
        ("adapm", "adapm-mini"),
    }
    for pair in comparison.pairs:
        estimate, bounds = pair.difference, stats.ttest_rel(losses[pair.candidate], losses[pair.other])
        interval = bounds.confidence_interval(1 - 0.05 / 3)
        assert estimate is not None and (estimate.low, estimate.high) == pytest.approx((interval.low, interval.high))
        if pair.other == "adamw":
            assert (estimate, pair.conclusion) == (
                row(comparison, pair.candidate).difference,
                row(comparison, pair.candidate).conclusion,
            )
    assert compared(spec(THREE), dict(losses)).pairs == ()


def test_a_baseline_that_was_chosen_afterwards_costs_what_all_pairs_do() -> None:
    losses: Losses = {"adamw": BASE, "adapm": off(-0.02, 3.0), "adapm-mini": off(0.03, -2.0)}
    planned, chosen = compared(spec(THREE), losses), compared(spec(THREE), losses, baseline="adapm")
    assert (planned.baseline, chosen.baseline) == ("adamw", "adapm")
    assert difference(chosen, "adamw").mean == pytest.approx(-difference(planned).mean)
    assert (difference(planned).comparisons, difference(chosen, "adamw").comparisons) == (2, 3)
    assert chosen.notes[0] == (
        "The baseline adapm was chosen after the fact (planned: adamw), so intervals are corrected for 3 comparisons "
        "instead of 2."
    )
    assert len(chosen.notes) <= 3 and compared(spec(THREE), losses, baseline="adamw") == planned
    two = compared(spec(), {"adamw": BASE, "adapm": off(-0.02)}, baseline="adapm")
    assert difference(two, "adamw").comparisons == 1, "of two candidates there is one pair"


# Time to target


def timed(
    loss: Callable[[str, int, float], float],
    *,
    seeds: int = 5,
    evaluations: int = 1000,
    of: ComparisonSpec | None = None,
) -> CandidateRow:
    """AdaPM, where `loss(candidate, seed, share of the steps)` is how each run's curve falls."""
    of = of or spec(seeds=seeds)
    experiment, runs = records(of, lambda name, _lr, seed: loss(name, seed, 1.0))
    shares = [step / evaluations for step in range(evaluations + 1)]
    curves = {
        run.id: ValidationCurve(
            steps=tuple(run.steps_total * share for share in shares),
            losses=tuple(loss(run.candidate, run.seed, share) for share in shares),
        )
        for run in runs
    }
    return row(answered(compare(experiment, runs, curves)))


def straight(shift: float, noise: float = 1.0) -> Callable[[str, int, float], float]:
    """Straight lines from 5.0 to the final losses."""
    ends = {"adamw": list(BASE), "adapm": off(shift, noise)}

    def loss(name: str, seed: int, share: float) -> float:
        return ends[name][seed] if share == 1 else 5.0 - (5.0 - ends[name][seed]) * share

    return loss


def test_time_to_target_is_that_to_the_baselines_own_final_loss() -> None:
    """Ten steps of 1,024 tokens, in a straight line from 5.0; AdaPM goes 0.05 deeper."""
    target = timed(straight(-0.05)).time_to_target
    assert target is not None and target.steps is not None and target.speed_up is not None
    mean = float(np.mean(BASE))
    expected = 10 * (5 - mean) / (5 - mean + 0.05)
    assert (target.reached, target.n) == (5, 5)
    assert target.steps.mean == pytest.approx(expected, rel=1e-3)
    assert target.steps.low is not None and target.steps.high is not None
    assert target.steps.low < expected < target.steps.high < 10, "shown to be better, so before the end"
    for time, unit in ((target.tokens, 1024), (target.device_hours, 0.1 / 10)):
        assert time is not None
        ends = [(time.mean, target.steps.mean), (time.low, target.steps.low), (time.high, target.steps.high)]
        assert all(steps and amount == pytest.approx(unit * steps) for amount, steps in ends)
    assert target.speed_up.mean == pytest.approx(10 / expected, rel=1e-3)
    assert (target.speed_up.low, target.speed_up.high) == (10 / target.steps.high, 10 / target.steps.low)


def test_speed_ups_are_given_whatever_the_verdict_and_agree_with_it() -> None:
    undecided = timed(straight(-0.01, 10.0))
    assert undecided.conclusion is Conclusion.UNDECIDED and undecided.time_to_target is not None
    interval = undecided.time_to_target.speed_up
    assert (
        interval is not None
        and interval.mean is not None
        and interval.mean > 1
        and interval.low is None
        and interval.high is not None
    )
    worse = timed(straight(0.05))
    assert worse.conclusion is Conclusion.WORSE and worse.time_to_target is not None
    assert worse.time_to_target.speed_up == OpenInterval(mean=None, low=None, high=1.0, n=5)
    assert worse.time_to_target.steps == OpenInterval(mean=None, low=10.0, high=None, n=5)


@pytest.mark.parametrize("bend", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("evaluations", [1, 3, 10, 40])
def test_a_speed_up_includes_what_nobody_saw_between_two_evaluations(evaluations: int, bend: float) -> None:
    """AdaPM runs down AdamW's own curve 1.6 times as fast, be that steep at first, straight, or steep at the end."""

    def loss(name: str, seed: int, share: float) -> float:
        faster = 1.6 + 0.005 * (seed - 1) if name == "adapm" else 1.0
        return float(5.0 - 2.0 * (share * faster) ** bend + 0.001 * seed)

    time = timed(loss, seeds=3, evaluations=evaluations).time_to_target
    assert time is not None and (interval := time.speed_up) is not None and interval.low is not None
    assert interval.low <= 1.6 <= (interval.high or math.inf)
    assert (interval.mean is None) == (interval.high is None) == (evaluations == 1), "the last one alone gives no time"


def test_a_baseline_that_overfits_makes_nobody_fast() -> None:
    """Both are below the baseline's final loss from half-way on, and rise; AdaPM rises less."""

    def loss(name: str, seed: int, share: float) -> float:
        fall = 5.0 - 4.0 * share + 0.001 * ((seed + 2 * (name == "adapm") * seed * seed) % 3)
        return fall if share <= 0.55 else fall + (4.0 + (0.4 if name == "adamw" else 0.3)) * (share - 0.55)

    adapm = timed(loss, evaluations=100)
    assert adapm.conclusion is Conclusion.BETTER and adapm.time_to_target is not None
    interval = adapm.time_to_target.speed_up
    assert interval is not None and interval.low is not None and interval.low < 1
    assert interval.mean == pytest.approx(1.0, rel=0.02)


def test_a_speed_up_is_no_surer_than_the_losses_that_it_is_read_from() -> None:
    """Seeds agree to a thousandth of a nat, and other validation text would move the difference by five."""

    def loss(name: str, seed: int, share: float) -> float:
        noise = 0.001 * ((seed + 2 * (name == "adapm") * seed * seed) % 3)
        return 3 - 0.1 * math.log2((0.02 + share) * (2 if name == "adapm" else 1)) + noise

    short = comparison_spec(optimizers=PAIR, seeds=range(5))
    rough, exact = timed(loss, of=short).time_to_target, timed(loss).time_to_target
    assert rough is not None and exact is not None
    wide, narrow = rough.speed_up, exact.speed_up
    assert wide is not None and narrow is not None
    assert None not in (wide.low, wide.mean, wide.high, narrow.low, narrow.high)
    assert wide.low < narrow.low < (wide.mean or 0) < narrow.high < wide.high  # type: ignore[operator]  # none is None


def test_what_a_lost_attempt_took_is_no_time_of_the_optimizers() -> None:
    """AdaPM's machine was lost half-way, and half of the steps were done twice: its time to the loss is the same."""
    losses = {"adamw": BASE, "adapm": off(-0.02)}
    experiment, runs = records(spec(), lambda name, _lr, seed: losses[name][seed])
    needed = compared_runs(experiment, runs)
    assert len(needed) == 10
    curves = {run.id: falling(run) for run in runs}

    def hours(device_seconds: float) -> OpenInterval | None:
        took = tuple(
            run.model_copy(
                update={
                    "device_seconds": device_seconds if run.candidate == "adapm" else 360.0,
                    "result": run.result.model_copy(update={"productive_seconds": 350.0}),
                }
            )
            for run in runs
            if run.result
        )
        time = row(compare(experiment, took, curves)).time_to_target
        assert time is not None
        return time.device_hours

    assert hours(360.0) == hours(540.0) is not None


# Notes and other columns


def test_at_most_three_notes_the_gravest_first() -> None:
    """Whatever else there would be to say: lost runs, failed ones, few seeds, a tiny model."""
    other_data = result(final_val_loss=2.3).model_copy(update={"data_hash": "another"})
    ends: Losses = {"adamw": replaced(BASE, on_0=None, on_1=RunStatus.FAILED), "adapm": replaced(BASE, on_2=other_data)}
    open_runs, data, lost = compared(spec(), ends | {"adapm": replaced(BASE, on_2=other_data, on_3=DIVERGED)}).notes
    assert "has not ended" in open_runs and "same data" in data and "lost" in lost
    ended = compared(spec(), {"adamw": BASE, "adapm": replaced(BASE, on_3=RunStatus.CANCELLED)}).notes
    assert ended == (
        "Nothing was tuned here: the verdicts apply to these learning rates alone.",
        "1 run failed or was cancelled, without a result.",
        "A model of 1.0 M parameters, on a CPU: no evidence for large models.",
    )


def test_the_note_on_an_edge_names_the_way_out() -> None:
    comparison = tuned({"adamw": 2.3, "adapm": 2.31}, at_edge="adapm")
    (note,) = (note for note in comparison.notes if "AdaPM" in note)
    assert note == (
        "The best learning rate of AdaPM is at an end of those tried, so it is not called worse. Start nearer to it, "
        "or try more rates."
    )
    (note,) = (note for note in tuned({"adamw": 2.3, "adapm": 2.31}, at_edge="adamw").notes if "AdamW" in note)
    assert "so nothing is called better than AdamW" in note


def test_short_validation_text_is_noted_where_it_rivals_the_differences() -> None:
    losses: Losses = {"adamw": BASE, "adapm": off(0.0)}
    answers = [
        any("validation text" in note for note in compared(evaluated_on(spec(), sequences), losses).notes)
        for sequences in (64, 65_536)
    ]
    assert answers == [True, False]


def test_times_compare_where_each_takes_what_fits_into_an_equal_memory() -> None:
    sizes = {"adamw": 4, "adapm": 6}
    losses: Losses = {
        name: [result().model_copy(update={"micro_batch_sequences": size})] * 5 for name, size in sizes.items()
    }
    usual = spec()
    execution = usual.workload.execution.model_copy(update={"micro_batch_sequences": "auto", "memory_cap_gib": 20.0})
    capped = usual.model_copy(update={"workload": usual.workload.model_copy(update={"execution": execution})})
    notes = [
        [note for note in compared(specification, losses).notes if "micro-batch" in note]
        for specification in (usual, capped)
    ]
    assert notes == [
        ["Measured with different micro-batches: times and memory do not compare."],
        [
            "At equal memory: micro-batches of as many sequences as fit into 20 GiB (AdamW 4, AdaPM 6). Times compare, "
            "at equal tokens."
        ],
    ]


def test_a_comparison_at_equal_device_hours_says_the_steps_of_each_candidate() -> None:
    design = spec(tuning={"seeds": [7], "trials": 5}, equal="device_hours")

    def trained(planned: PlannedRun) -> Result:
        steps = planned.spec.workload.budget.steps
        pace = {"adamw": 1.0, "adapm": 1.25}[planned.candidate]
        return result(final_val_loss=2.3).model_copy(update={"steps": steps, "productive_seconds": pace * steps})

    notes = compare(*tuned_records(design, trained), {}).notes
    steps = design.workload.budget.steps
    assert (
        f"At equal device-hours, by each one's pace in tuning; steps: AdamW {steps}, AdaPM {steps * 4 // 5}." in notes
    )


def test_peak_memory_is_that_of_tensors_on_every_device() -> None:
    """By the allocator on a GPU, by the recorded steps on a CPU; never what the process takes, and if unknown, why."""
    on_gpu = result(device="cuda", allocator_bytes=7, peak_bytes=16_000_000)
    comparison = compared(
        spec(), {"adamw": [result(peak_bytes=45_000_000 + seed) for seed in range(5)], "adapm": [on_gpu] * 5}
    )
    assert [(row(comparison, name).peak_memory_bytes, row(comparison, name).peak_memory_kind) for name in PAIR] == [
        (45_000_004, "tensors"),
        (7, "tensors"),
    ]
    assert comparison.device == "H200, cpu"
    assert any("several kinds of device" in note for note in comparison.notes)
    failed_comparison = compared(spec(), {"adamw": BASE, "adapm": [OUT_OF_MEMORY.model_copy(update={"steps": 0})] * 5})
    assert [row.peak_memory_note for row in failed_comparison.rows] == [
        "the tensors' peak was not measured yet in that version",
        "no step was recorded",
    ]
