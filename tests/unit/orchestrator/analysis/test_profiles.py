"""Scores over workloads favour nobody: neither whoever is named baseline, nor whose runs spiked, nor luck."""

import statistics
from collections.abc import Callable

import numpy as np
import pytest

from dashboards.text.answers import profile_headline, target_words
from orchestrator.analysis.comparison import ValidationCurve, compare, compared_runs
from orchestrator.analysis.profiles import Measured, ProfileReport, performance_profiles
from orchestrator.jobs import RunStatus
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.tuning import Tuning
from orchestrator.records import Conclusion
from tests.factories.comparison import Outcome, records, tuned_records
from tests.factories.stores import comparison_spec, result
from worker.records.result import Verdict
from worker.spec.run import Budget, Evaluation

LossOf = Callable[[str, int], Outcome]
"""Of a candidate on a seed."""


def measured(
    loss: LossOf, *, steps: int = 1000, baseline: str = "adamw", others: tuple[str, ...] = ("adapm",), seeds: int = 5
) -> Measured:
    """A comparison whose curves fall on straight lines from 0.8 nats above the final loss."""
    spec = comparison_spec(name=f"{steps} steps", optimizers=("adamw", *others), seeds=range(seeds))
    workload = spec.workload.model_copy(update={"budget": Budget(steps=steps)})
    spec = spec.model_copy(update={"workload": workload, "baseline": baseline})
    experiment, runs = records(spec, lambda name, _lr, seed: loss(name, seed), experiment=f"e{steps}")
    curves = {}
    for run in runs:
        if run.result is not None and (final := run.result.final_val_loss) is not None:
            curves[run.id] = ValidationCurve(steps=(0.0, float(steps)), losses=(final + 0.8, final))
    return experiment, runs, curves


def of_equal_optimizers(
    seed: int, baseline: str = "adamw", *, others: tuple[str, ...] = ("adapm",), noise: float = 0.0035
) -> ProfileReport:
    """Three workloads on which all candidates draw their losses from one distribution."""
    random = np.random.default_rng(seed)
    of_seeds = random.normal(0, 0.016, (3, 5))
    own = {name: random.normal(0, noise, (3, 5)) for name in ("adamw", *others)}

    def loss_on(place: int) -> LossOf:
        return lambda name, seed: float(3.3 + of_seeds[place, seed] + own[name][place, seed])

    return performance_profiles(
        [measured(loss_on(place), steps=1000 + place, baseline=baseline, others=others) for place in range(3)]
    )


def scores(report: ProfileReport) -> dict[str, float]:
    """By tokens."""
    return {row.candidate: row.score_tokens for row in report.rows}


@pytest.mark.parametrize("seed", range(5))
def test_another_baseline_changes_no_score(seed: int) -> None:
    one, other = of_equal_optimizers(seed), of_equal_optimizers(seed, "adapm")
    assert [row.is_baseline for row in one.rows] == [not row.is_baseline for row in other.rows]
    assert scores(one) == scores(other)
    assert (one.notes, profile_headline(one)) == (other.notes, profile_headline(other))


@pytest.mark.parametrize(("noise", "both"), [(0.0035, 0.996), (0.02, 0.74)])
def test_equal_optimizers_score_equal_on_average(noise: float, both: float) -> None:
    """docs/comparisons.md has what both score."""
    found = [scores(of_equal_optimizers(seed, noise=noise)) for seed in range(100)]
    apart = [each["adamw"] - each["adapm"] for each in found]
    assert abs(statistics.fmean(apart)) < 3 * statistics.stdev(apart) / 10
    assert statistics.fmean(score for each in found for score in each.values()) == pytest.approx(both, abs=0.005)


def test_a_third_candidate_far_behind_moves_no_score() -> None:
    def loss(name: str, seed: int) -> float:
        return 3.3 + 0.001 * seed + {"adamw": 0.004, "adapm": 0.0, "lion": 0.5}[name]

    two, three = (
        performance_profiles([measured(loss, steps=steps, others=others) for steps in (1000, 2000)])
        for others in (("adapm",), ("adapm", "lion"))
    )
    assert scores(three) == scores(two) | {"lion": 0.0}


def test_who_ends_as_good_within_the_margin_reaches_the_target() -> None:
    """0.01 nats: 12.5 of 1,000 steps, as 0.8 nats are all of them."""
    report = performance_profiles([measured(lambda name, _seed: 3.3 + 0.008 * (name == "adamw"))])
    steps = {row.candidate: (row.times[0].tokens or 0) / 1024 for row in report.rows}
    assert steps == pytest.approx({"adapm": 987.5, "adamw": 997.5})
    (time,) = report.rows[0].times
    assert time.targets == pytest.approx((3.31,)) and target_words(time) == "target 3.3100"
    behind = performance_profiles([measured(lambda name, _seed: 3.3 + 0.012 * (name == "adamw"))])
    assert scores(behind) == {"adapm": 1.0, "adamw": 0.0}


def spiked(place: int, seeds: tuple[int, ...]) -> Measured:
    """AdaPM is 0.05 nats better, but on these seeds of five it ends 0.6 nats higher."""
    spec = comparison_spec(
        optimizers=("adamw", "adapm"), learning_rates=(5e-4, 1e-3, 2e-3, 4e-3, 8e-3), seeds=range(5), steps=100 + place
    ).model_copy(update={"tuning": Tuning(seeds=(100, 101, 102))})
    random = np.random.default_rng(place)

    def outcome(run: PlannedRun) -> float:
        rise = 0.02 * np.log2(run.spec.optimizer.lr / 2e-3) ** 2 + random.normal(0, 0.002)
        gain = 0.05 - 0.6 * (run.spec.seed in seeds)
        return float(3.3 + rise - gain * (run.candidate == "adapm"))

    experiment, runs = tuned_records(spec, outcome, experiment=f"e{place}")
    curves = {
        run.id: ValidationCurve(steps=(0.0, 50.0, 100.0), losses=(6.0, 3.0, run.result.final_val_loss or 0))
        for run in runs
        if run.id in compared_runs(experiment, runs) and run.result
    }
    return experiment, runs, curves


def test_runs_that_spiked_count_as_not_reached() -> None:
    """Though their curves went below every target before."""
    stable, few, many = (
        performance_profiles([spiked(place, seeds) for place in range(3)]) for seeds in ((), (1, 3), (0, 1, 3))
    )
    assert scores(stable)["adapm"] == 1 and not any(row.lost_runs for row in stable.rows)
    for report, lost in ((few, 6), (many, 9)):
        rows = {row.candidate: row for row in report.rows}
        assert (rows["adapm"].lost_runs, rows["adapm"].runs, rows["adamw"].lost_runs) == (lost, 15, 0)
        assert any(f"AdaPM: {lost} of 15 runs spiked" in note for note in report.notes)
    assert scores(many) == {"adamw": 1.0, "adapm": 0.0}
    experiment, runs, curves = spiked(0, (1, 3))
    assert Conclusion.UNSTABLE in {row.conclusion for row in compare(experiment, runs, curves).rows}


def test_runs_that_diverged_count_as_not_reached_and_set_no_target() -> None:
    def loss(name: str, seed: int) -> Outcome:
        if name == "adapm" and seed < 3:
            return result(verdict=Verdict.DIVERGED, final_val_loss=None)
        return 3.3 - 0.05 * (name == "adapm")

    report = performance_profiles([measured(loss, steps=steps) for steps in (1000, 2000)])
    assert scores(report) == {"adamw": 1.0, "adapm": 0.0}
    assert {row.candidate: row.lost_runs for row in report.rows} == {"adamw": 0, "adapm": 6}


def test_the_headline_names_the_highest_score_as_no_verdict() -> None:
    def loss(name: str, seed: int) -> float:
        return 3.3 + 0.001 * seed - 0.005 * (name == "adapm")

    report = performance_profiles([measured(loss, steps=steps) for steps in (1000, 2000, 3000)])
    assert profile_headline(report) == (
        "AdaPM has the highest score over 3 workloads: 1.000 by tokens to the target. The experiments' own tables "
        "say whether that is shown."
    )
    assert any(note.startswith("A score describes these runs alone.") for note in report.notes)


def test_the_headline_names_all_who_share_the_highest_score() -> None:
    """Each is the only one that gets there on one of two workloads."""

    def loss_of(best: str) -> Callable[[str, int], Outcome]:
        return lambda name, _seed: 3.2 if name == best else 3.3

    report = performance_profiles([measured(loss_of("adamw"), steps=1000), measured(loss_of("adapm"), steps=1001)])
    assert profile_headline(report).startswith(
        "AdamW and AdaPM share the highest score over 2 workloads: 0.500 by tokens to the target."
    )


def test_the_headline_says_where_the_highest_score_is_that_of_who_lost_runs() -> None:
    def loss(name: str, seed: int) -> Outcome:
        if name == "adapm":
            return result(verdict=Verdict.DIVERGED, final_val_loss=None) if seed == 0 else 3.2
        return 3.3

    report = performance_profiles([measured(loss, steps=1000 + place, seeds=10) for place in range(3)])
    assert report.rows[0].candidate == "adapm"
    assert "Not stable: AdaPM lost 3 of its 30 runs." in profile_headline(report)


@pytest.mark.parametrize("outcome", [RunStatus.FAILED, RunStatus.CANCELLED, None])
def test_a_workload_on_which_a_candidate_never_ran_counts_for_nobody(outcome: Outcome) -> None:
    """AdamW is the better one, and all of its runs failed where it was never seen."""

    def never(name: str, _seed: int) -> Outcome:
        return outcome if name == "adamw" else 3.3

    seen = measured(lambda name, _seed: 3.3 + 0.05 * (name == "adapm"), steps=900)
    report = performance_profiles([seen, *(measured(never, steps=1000 + place) for place in range(3))])
    assert (report.workloads, scores(report)) == (1, {"adamw": 1.0, "adapm": 0.0})
    assert [row.runs for row in report.rows] == [5, 5]
    assert any(note.startswith("1000 steps is left out: a candidate has no run there") for note in report.notes)
    nothing = performance_profiles([measured(never)])
    assert (nothing.workloads, profile_headline(nothing)) == (0, "")
    experiment, runs, _ = seen
    assert performance_profiles([(experiment, runs, {})]).workloads == 0, "without curves nobody is slow"


def test_the_headline_says_where_nobody_reached_a_target() -> None:
    lost = result(verdict=Verdict.DIVERGED, final_val_loss=None)
    report = performance_profiles([measured(lambda _name, _seed: lost)])
    assert profile_headline(report) == "No candidate reached the target over 1 workload."


def test_a_seed_that_one_candidate_lacks_counts_for_nobody() -> None:
    report = performance_profiles([measured(lambda name, seed: None if (name, seed) == ("adapm", 4) else 3.3)])
    assert [row.runs for row in report.rows] == [4, 4]


def test_several_experiments_of_one_workload_count_as_one() -> None:
    first, again, other = (measured(lambda name, _seed: 3.3 - 0.005 * (name == "adapm"), steps=n) for n in (10, 10, 20))
    spec = again[0].spec
    workload = spec.workload.model_copy(update={"evaluation": Evaluation(every_steps=7)})
    otherwise = again[0].model_copy(update={"id": "again", "spec": spec.model_copy(update={"workload": workload})})
    report = performance_profiles([first, (otherwise, *again[1:]), other])
    assert (report.workloads, len(report.experiments)) == (2, 3)
    assert [time.experiments for time in report.rows[0].times] == [("e10", "again"), ("e20",)]
    assert [row.runs for row in report.rows] == [15, 15]
    assert "2 workloads: a profile over so few" in report.notes[0]
    assert any("2 experiments train one workload and count as one" in note for note in report.notes)
