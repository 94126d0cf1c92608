"""Tuned comparisons: the seeds that chose a rate do not judge it; time to target; the Pareto front."""

import json
import math
import statistics
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.analysis.candidates import summaries
from orchestrator.analysis.comparison import Curves, ValidationCurve, compare, compared_runs, regrets
from orchestrator.analysis.statistics import paired_difference
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import ComparisonSpec, KeptRates
from orchestrator.kinds.tuning import Tuning
from orchestrator.records import CandidateRow, Comparison, Conclusion, OpenInterval
from tests.factories.comparison import Outcome, evaluated_on, falling, records, second_phase
from tests.factories.stores import comparison_spec, result
from worker.records.result import Result, Verdict

RATES = (1e-3, 2e-3, 4e-3)


def spec(extend_grid: int = 0) -> ComparisonSpec:
    return comparison_spec(
        optimizers=("adamw", "adapm"),
        learning_rates=RATES,
        seeds=(1, 2, 3),
        tuning=Tuning(seeds=(0,), extend_grid=extend_grid),
    )


def bowl(name: str, lr: float, seed: int) -> float:
    """Lowest at 2e-3, where seed 0, that of the tuning, is lucky by half a nat."""
    return 2.3 + 5 * abs(lr - 2e-3) + 0.001 * seed - 0.5 * (seed == 0) - (0.05 + 0.001 * seed) * (name == "adapm")


def row(comparison: Comparison, candidate: str) -> CandidateRow:
    json.dumps(comparison.model_dump(mode="json"), allow_nan=False)
    return next(each for each in comparison.rows if each.candidate == candidate)


def test_the_mean_is_of_other_seeds_than_those_that_chose_the_rate() -> None:
    experiment, runs = records(spec(), bowl, planned=(*spec().first_runs(), *second_phase(spec(), 2e-3)))
    found = compare(experiment, runs)
    adamw = row(found, "adamw")
    assert adamw.val_loss is not None and adamw.val_loss.n == 3
    assert adamw.val_loss.mean == pytest.approx(2.302), "without the lucky seed"
    assert [rate.runs_total for rate in adamw.learning_rates] == [1, 1, 1]
    assert adamw.final is not None and adamw.final.runs_total == 3
    assert found.complete and found.tuning_seeds == (0,)
    assert "Learning rates were chosen on seed 0; the losses are of other seeds." in found.notes
    assert row(found, "adapm").verdict.startswith("Better than AdamW by 0.0520 nats")
    assert adamw.device_hours == pytest.approx(0.6), "six runs of six minutes: tuning counts"


def test_while_it_is_tuned_a_candidate_has_no_loss_and_says_how_far_it_is() -> None:
    experiment, runs = records(spec(), lambda name, lr, seed: None if lr == 4e-3 else bowl(name, lr, seed))
    found = compare(
        experiment.model_copy(update={"counts": experiment.counts.model_copy(update={"growing": True})}), runs
    )
    adapm = row(found, "adapm")
    assert (adapm.val_loss, adapm.tuning, adapm.best_lr) == (None, True, 2e-3)
    assert adapm.verdict == "Tuning: 2 of 3 runs have ended, the best learning rate so far is 0.002."
    assert "Still tuning, so more runs will follow: AdaPM, AdamW." in found.notes
    assert not found.complete


def test_what_was_cancelled_while_it_was_tuned_is_not_told_as_if_more_came() -> None:
    def outcome(name: str, lr: float, seed: int) -> Outcome:
        return RunStatus.CANCELLED if lr == 4e-3 or name == "adapm" else bowl(name, lr, seed)

    found = compare(*records(spec(), outcome))
    assert row(found, "adamw").verdict == "Never judged: of the runs that tuned it, those at lr 0.002 ended best."
    assert row(found, "adapm").verdict == "No run ended with a result."
    assert "No learning rate was judged: rates are chosen on seed 0, and judged on other seeds." in found.notes
    assert not any("yet" in note or "so far" in note or "were chosen" in note for note in found.notes[:3])


def test_before_the_first_seed_has_ended_the_rate_is_known_and_no_loss() -> None:
    planned = (*spec().first_runs(), *second_phase(spec(), 2e-3))
    experiment, runs = records(
        spec(), lambda name, lr, seed: bowl(name, lr, seed) if seed == 0 else None, planned=planned
    )
    adapm = row(compare(experiment, runs), "adapm")
    assert adapm.verdict == "Tuned: lr 0.002; no run of the seeds that count has ended yet."
    assert adapm.difference is None


def test_a_grid_that_followed_its_edge_is_stated_and_does_not_forbid_a_verdict() -> None:
    of = spec(extend_grid=1)
    added = of.candidates[1].planned_run(of.workload, of.resources, lr=8e-3, seed=0)

    def outcome(name: str, lr: float, seed: int) -> Outcome:
        return bowl(name, lr / 2 if name == "adapm" else lr, seed)

    chosen = [run for run in second_phase(of, 2e-3) if run.candidate == "adamw"]
    chosen += [run for run in second_phase(of, 4e-3) if run.candidate == "adapm"]
    experiment, runs = records(of, outcome, planned=(*of.first_runs(), added, *chosen))
    found = compare(experiment, runs)
    adapm = row(found, "adapm")
    assert (adapm.best_lr, adapm.extended_rates, adapm.edge_of_grid) == (4e-3, 1, False)
    assert adapm.verdict.startswith("Better than AdamW")
    assert "Learning rates added beyond an edge of the grid or about the best one: AdaPM (by 1)." in found.notes


def test_a_seed_of_phase_two_that_diverges_is_not_hidden() -> None:
    planned = (*spec().first_runs(), *second_phase(spec(), 2e-3))

    def outcome(name: str, lr: float, seed: int) -> Outcome:
        lost = name == "adapm" and seed == 2
        return result(final_val_loss=None, verdict=Verdict.DIVERGED) if lost else bowl(name, lr, seed)

    experiment, runs = records(spec(), outcome, planned=planned)
    adapm = row(compare(experiment, runs), "adapm")
    assert adapm.verdict == "No stable learning rate: at the best one, 0.002, 1 of 3 seeds diverged."
    assert (adapm.difference, adapm.time_to_target, adapm.on_pareto_front) == (None, None, False)


def finished() -> tuple[Comparison, Curves]:
    experiment, runs = records(spec(), bowl, planned=(*spec().first_runs(), *second_phase(spec(), 2e-3)))
    needed = compared_runs(experiment, runs)
    assert len(needed) == 6, "the curves of the judged runs alone are read"
    curves = {run.id: falling(run) for run in runs if run.id in needed}
    return compare(experiment, runs, curves), curves


def test_time_to_target_is_paired_with_the_baselines_own_loss() -> None:
    """Both fall in a straight line from 5.0 within ten steps of 1,024 tokens; AdaPM goes 0.05 deeper."""
    found, _ = finished()
    target, baseline = row(found, "adapm").time_to_target, row(found, "adamw").time_to_target
    assert target is not None and baseline is not None
    assert (target.reached, target.n, baseline.reached) == (3, 3, 3)
    expected = 10 * (5 - 2.302) / (5 - 2.302 + 0.052)
    assert target.steps is not None
    assert target.steps.low is not None
    assert target.steps.high is not None
    assert target.steps.mean == pytest.approx(expected, rel=1e-3)
    assert target.steps.low < expected < target.steps.high < 10, "shown to be better, so before the end"
    for time, unit in ((target.tokens, 1024), (target.device_hours, 0.1 / 10)):
        assert time is not None
        ends = [(time.mean, target.steps.mean), (time.low, target.steps.low), (time.high, target.steps.high)]
        assert all(of and each == pytest.approx(unit * of) for each, of in ends)
    assert target.speed_up is not None
    assert target.speed_up.mean == pytest.approx(10 / expected, rel=1e-3)
    assert (target.speed_up.low, target.speed_up.high) == (10 / target.steps.high, 10 / target.steps.low)
    assert baseline.steps == OpenInterval(mean=10, low=None, high=None, n=3)
    assert baseline.speed_up is None


def test_a_speed_up_is_told_whatever_the_verdict() -> None:
    """Every seed gets there sooner, but the losses do not tell the two apart: no end below, and the one above."""

    def near(name: str, lr: float, seed: int) -> float:
        return bowl("adamw", lr, seed) - (0.001, 0.3, 0.002)[seed - 1] * (name == "adapm")

    experiment, runs = records(spec(), near, planned=(*spec().first_runs(), *second_phase(spec(), 2e-3)))
    adapm = row(compare(experiment, runs, {run.id: falling(run) for run in runs}), "adapm")
    assert adapm.conclusion is Conclusion.UNDECIDED
    assert adapm.time_to_target is not None
    assert (adapm.time_to_target.reached, adapm.time_to_target.n) == (3, 3)
    assert (told := adapm.time_to_target.speed_up) is not None
    assert told.mean is not None
    assert told.high is not None
    assert told.low is None
    assert 1 < told.mean < told.high


def test_who_never_gets_there_has_a_speed_up_below_a_bound() -> None:
    def later(name: str, lr: float, seed: int) -> float:
        return bowl("adamw", lr, seed) + (0.05 + 0.001 * seed) * (name == "adapm")

    experiment, runs = records(spec(), later, planned=(*spec().first_runs(), *second_phase(spec(), 2e-3)))
    adapm = row(compare(experiment, runs, {run.id: falling(run) for run in runs}), "adapm")
    assert adapm.conclusion is Conclusion.WORSE
    assert adapm.time_to_target is not None
    assert adapm.time_to_target.speed_up == OpenInterval(mean=None, low=None, high=1.0, n=3)
    assert adapm.time_to_target.steps == OpenInterval(mean=None, low=10.0, high=None, n=3)


def test_one_seed_that_stays_above_keeps_the_mean_above() -> None:
    experiment, runs = records(spec(), bowl, planned=(*spec().first_runs(), *second_phase(spec(), 2e-3)))
    curves = {run.id: falling(run) for run in runs}
    late = next(run for run in runs if run.candidate == "adapm" and run.seed == 3)
    curves[late.id] = ValidationCurve(steps=(0.0, 10.0), losses=(5.0, 4.0))
    target = row(compare(experiment, runs, curves), "adapm").time_to_target
    assert target is not None
    assert (target.reached, target.n, target.steps, target.speed_up) == (2, 3, None, None)


def test_the_pareto_front_holds_who_is_not_beaten_on_loss_and_bytes() -> None:
    of = comparison_spec(optimizers=("adamw", "adapm", "adapm-mini", "lion"), seeds=(1, 2))
    figures = {"adamw": (2.3, 8), "adapm": (2.2, 5), "adapm-mini": (2.25, 1), "lion": (2.4, 4)}

    def outcome(name: str, _lr: float, seed: int) -> Result:
        loss, size = figures[name]
        return result(final_val_loss=loss + 0.001 * seed).model_copy(update={"optimizer_state_bytes": size})

    found = compare(*records(of, outcome))
    assert {each.candidate for each in found.rows if each.on_pareto_front} == {"adapm", "adapm-mini"}


def test_a_rate_that_a_later_end_overtook_is_said() -> None:
    """Phase 2 ran at 2e-3; a retried run of the grid then came out lower at 1e-3."""
    experiment, runs = records(
        spec(),
        lambda name, lr, seed: 1.0 if (name, lr, seed) == ("adapm", 1e-3, 0) else bowl(name, lr, seed),
        planned=(*spec().first_runs(), *second_phase(spec(), 2e-3)),
    )
    told = [note for note in compare(experiment, runs).notes if "is judged at" in note]
    assert told == [
        "AdaPM is judged at lr 0.002, which led its grid when the final runs were chosen; runs that ended later put "
        "lr 0.001 ahead."
    ]


def test_the_interval_is_wider_by_what_a_better_rate_may_be_worth() -> None:
    """Judged at 2e-3, in a basin that is lowest at 2.5e-3: each of the two might be better by its depth."""

    def off(name: str, lr: float, seed: int) -> float:
        noise = 0.002 * ((7 * seed + 3 * (name == "adapm") + int(1e4 * lr)) % 5 - 2)
        return 2.3 + 0.1 * math.log2(lr / 2.5e-3) ** 2 + 0.001 * seed + noise

    experiment, runs = records(spec(), off, planned=(*spec().first_runs(), *second_phase(spec(), 2e-3)))
    found = compare(experiment, runs)
    difference = row(found, "adapm").difference
    assert difference is not None and difference.low is not None and difference.high is not None
    depth = 0.1 * math.log2(2.5 / 2) ** 2
    assert difference.regret > depth and difference.baseline_regret > depth
    plain = paired_difference(
        [off("adapm", 2e-3, each) for each in (1, 2, 3)],
        [off("adamw", 2e-3, each) for each in (1, 2, 3)],
        shared_error=difference.evaluation_error,
    )
    assert plain is not None and plain.low is not None and plain.high is not None
    assert difference.low == pytest.approx(plain.low - difference.regret)
    assert difference.high == pytest.approx(plain.high + difference.baseline_regret)
    assert any(note.startswith("The intervals are wider for what a better learning rate") for note in found.notes)
    adapm = next(each for each in summaries(spec(), runs) if each.candidate.name() == "adapm")
    noisy, sure = adapm.regret(1e-3, 2), adapm.regret(0.0, 2)
    assert noisy(0.05 / 9, 0.0) > 1.2 * noisy(0.05, 0.0), "ten are held to more than two"
    assert noisy(0.05, 0.1) < noisy(0.05, 0.0), "beside noise as large it hardly counts"
    assert sure(0.05 / 9, 0.0) == sure(0.05, 0.0) > 0, "without noise nothing is unsure"
    assert adapm.regret(0.0, 0)(0.05, 0.0) > 0, "one judged seed says nothing of the noise"


@pytest.mark.parametrize(
    ("falls", "gap", "conclusion"),
    [
        ("adapm", 0.05, Conclusion.UNDECIDED),
        ("adapm", -0.05, Conclusion.BETTER),
        ("adamw", -0.05, Conclusion.UNDECIDED),
        ("adamw", 0.05, Conclusion.WORSE),
        ("adapm", 0.001, Conclusion.UNDECIDED),
    ],
)
def test_a_best_rate_that_stays_at_the_edge_decides_nothing_that_a_better_one_could_turn(
    falls: str, gap: float, conclusion: Conclusion
) -> None:
    """Two equal optimizers, one with its optimum beyond all extensions, were told apart in every experiment."""

    def loss(name: str, lr: float, seed: int) -> float:
        shape = {1e-3: 0.0, 2e-3: -0.01, 4e-3: -0.02}[lr] if name == falls else 5 * abs(lr - 2e-3) - 0.02
        return 2.3 + shape + (gap + 1e-4 * seed) * (name == "adapm")

    of = evaluated_on(spec())
    planned = [*spec().first_runs()]
    planned += [each for each in second_phase(spec(), 4e-3) if each.candidate == falls]
    planned += [each for each in second_phase(spec(), 2e-3) if each.candidate != falls]
    found = compare(*records(of, loss, planned=tuple(planned)))
    adapm = row(found, "adapm")
    assert adapm.conclusion is conclusion, adapm.verdict
    difference = adapm.difference
    assert difference is not None
    assert difference.rate_is_open is (conclusion is Conclusion.UNDECIDED)
    if difference.rate_is_open:
        is_candidates = falls == "adapm"
        assert difference.p_value is None
        assert (difference.low is None, difference.high is None) == (is_candidates, not is_candidates)
        title = {"adapm": "AdaPM", "adamw": "AdamW"}[falls]
        assert f"{title}'s best learning rate, 0.004, is the highest of its grid: a better one could turn that. " in (
            adapm.verdict
        )
        assert adapm.verdict.endswith(f"Try higher rates for {title}.")


@pytest.mark.parametrize(("falls", "gap"), [("adapm", -0.004), ("adamw", 0.004)])
def test_what_lies_within_the_margin_and_beyond_zero_no_better_rate_can_turn(falls: str, gap: float) -> None:
    """Flat basins; the lower one's best rate lies at an edge, where it may be lower still."""

    def loss(name: str, lr: float, seed: int) -> float:
        octaves = math.log2(lr / 2e-3)
        return 2.3 + 1e-5 * (-octaves if name == falls else abs(octaves)) + (gap + 1e-4 * seed) * (name == "adapm")

    planned = [*spec().first_runs()]
    planned += [each for each in second_phase(spec(), 4e-3) if each.candidate == falls]
    planned += [each for each in second_phase(spec(), 2e-3) if each.candidate != falls]
    adapm = row(compare(*records(evaluated_on(spec()), loss, planned=tuple(planned))), "adapm")
    difference, is_better = adapm.difference, falls == "adapm"
    assert difference is not None and difference.p_value is not None and not difference.rate_is_open
    assert adapm.conclusion is (Conclusion.BETTER if is_better else Conclusion.WORSE), adapm.verdict
    assert (difference.low is None, difference.high is None) == (is_better, not is_better)
    assert ("interval up to -0.00" if is_better else "interval from +0.00") in adapm.verdict


def at_kept_rates(left_open: dict[str, float | None] | None) -> CandidateRow:
    """AdaPM ends 0.02 nats above AdamW, each at one rate that another comparison judged."""
    kept = None if left_open is None else KeptRates(experiment="tuned", regrets=left_open)
    fields = comparison_spec(optimizers=("adamw", "adapm"), learning_rates=(2e-3,), seeds=range(5)).model_dump()
    at_rates = ComparisonSpec.model_validate(fields | {"kept_rates": kept and kept.model_dump()})
    experiment, runs = records(
        at_rates, lambda name, _lr, seed: 3 + 0.01 * seed + (0.02 + 0.001 * seed) * (name == "adapm")
    )
    return row(compare(experiment, runs), "adapm")


def test_at_kept_rates_the_interval_holds_what_their_tuning_left_open() -> None:
    alone, kept = at_kept_rates(None), at_kept_rates({"adamw": 0.004, "adapm": 0.03})
    assert (alone.conclusion, kept.conclusion) == (Conclusion.WORSE, Conclusion.UNDECIDED)
    assert alone.difference is not None and kept.difference is not None
    assert alone.difference.low is not None and alone.difference.high is not None
    assert kept.difference.low == pytest.approx(alone.difference.low - 0.03)
    assert kept.difference.high == pytest.approx(alone.difference.high + 0.004)
    assert (kept.difference.regret, kept.difference.baseline_regret) == (0.03, 0.004)


@pytest.mark.parametrize(
    ("left_open", "conclusion"),
    [
        ({"adamw": 0.0, "adapm": 0.0}, Conclusion.WORSE),
        ({"adamw": None, "adapm": 0.0}, Conclusion.WORSE),
        ({"adamw": 0.0, "adapm": None}, Conclusion.UNDECIDED),
    ],
)
def test_a_kept_rate_at_the_edge_of_its_grid_is_open_still(
    left_open: dict[str, float | None], conclusion: Conclusion
) -> None:
    found = at_kept_rates(left_open)
    assert found.conclusion is conclusion
    if conclusion is Conclusion.UNDECIDED:
        assert "experiment tuned, whose rates these are, left open how much better another one is for AdaPM" in (
            found.verdict
        )


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"tuning": {}}, "needs one rate of each candidate, and no tuning"),
        ({"learning_rates": (1e-3, 2e-3)}, "needs one rate of each candidate, and no tuning"),
        ({"regrets": {"adamw": 0.0}}, "must have each candidate: adamw, adapm"),
        ({"experiment": "a\x00b"}, "experiment"),
    ],
)
def test_kept_rates_are_one_of_each_candidate(changes: dict[str, Any], fault: str) -> None:
    fields = comparison_spec(optimizers=("adamw", "adapm"), learning_rates=changes.get("learning_rates", (2e-3,)))
    kept = {
        "experiment": changes.get("experiment", "tuned"),
        "regrets": changes.get("regrets", {"adamw": 0.0, "adapm": None}),
    }
    with pytest.raises(ValidationError, match=fault):
        ComparisonSpec.model_validate(fields.model_dump() | {"kept_rates": kept, "tuning": changes.get("tuning")})


def test_what_a_tuned_comparison_left_open_is_no_less_for_the_noise_of_the_seeds_that_judged_it() -> None:
    tuned = spec()
    experiment, runs = records(tuned, bowl, planned=(*tuned.first_runs(), *second_phase(tuned, 2e-3)))
    difference = row(compare(experiment, runs), "adapm").difference
    assert difference is not None and difference.regret > 0
    left_open = regrets(tuned, runs)
    assert left_open["adapm"] is not None and left_open["adapm"] > difference.regret, "its interval is wide besides"
    adapm = next(each for each in summaries(tuned, runs) if each.candidate.name() == "adapm")
    variance = statistics.variance(bowl("adapm", 2e-3, each) - bowl("adamw", 2e-3, each) for each in (1, 2, 3))
    assert left_open["adapm"] == pytest.approx(adapm.regret(variance / 2, 2)(0.05, 0.0))
    at_the_edge = records(tuned, bowl, planned=(*tuned.first_runs(), *second_phase(tuned, 2e-3)))[1]
    beyond = [each for each in at_the_edge if not (each.seed == 0 and each.candidate == "adapm" and each.lr == 4e-3)]
    assert regrets(tuned, beyond)["adapm"] is None
