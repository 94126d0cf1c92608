"""Scores over workloads agree with verdicts, and favour nobody: neither the baseline, nor who lost runs, nor luck."""

import statistics
from collections.abc import Callable

import numpy as np
import pytest

from dashboards.text.answers import profile_headline, target_words
from orchestrator.analysis.comparison import ValidationCurve, compare
from orchestrator.analysis.profiles import Measured, ProfileReport, performance_profiles
from orchestrator.jobs import RunStatus
from orchestrator.records import Conclusion
from tests.factories.comparison import Outcome, records
from tests.factories.stores import comparison_spec, result
from worker.records.result import Verdict
from worker.spec.run import Budget, Evaluation

LossOf = Callable[[str, int], Outcome]
"""The loss of a candidate on a seed."""


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
    offsets = {name: random.normal(0, noise, (3, 5)) for name in ("adamw", *others)}

    def loss_on(workload: int) -> LossOf:
        return lambda name, seed: float(3.3 + of_seeds[workload, seed] + offsets[name][workload, seed])

    return performance_profiles(
        [measured(loss_on(workload), steps=1000 + workload, baseline=baseline, others=others) for workload in range(3)]
    )


def scores(report: ProfileReport) -> dict[str, float]:
    """Return the scores by tokens."""
    return {row.candidate: row.score_tokens for row in report.rows}


@pytest.mark.parametrize("seed", range(5))
def test_another_baseline_changes_no_score(seed: int) -> None:
    report, other = of_equal_optimizers(seed), of_equal_optimizers(seed, "adapm")
    assert [row.is_baseline for row in report.rows] == [not row.is_baseline for row in other.rows]
    assert scores(report) == scores(other)
    assert (report.notes, profile_headline(report)) == (other.notes, profile_headline(other))


@pytest.mark.parametrize(("noise", "both"), [(0.0035, 0.996), (0.02, 0.989)])
def test_equal_optimizers_score_equal_on_average(noise: float, both: float) -> None:
    """And near 1: a candidate that is not shown to be worse reaches the target."""
    draws = [scores(of_equal_optimizers(seed, noise=noise)) for seed in range(50)]
    gaps = [draw["adamw"] - draw["adapm"] for draw in draws]
    assert abs(statistics.fmean(gaps)) < 3 * statistics.stdev(gaps) / 50**0.5
    assert statistics.fmean(score for draw in draws for score in draw.values()) == pytest.approx(both, abs=0.005)


def test_where_the_tables_show_no_winner_there_is_none() -> None:
    """AdaPM ends 0.03 lower on average, which its noise explains."""
    noise = (0.0, 0.08, -0.05, 0.09, -0.01)

    def loss(name: str, seed: int) -> float:
        return 3.3 - (0.01 + noise[seed]) * (name == "adapm")

    measurements = [measured(loss, steps=steps) for steps in (1000, 2000)]
    for experiment, runs, _ in measurements:
        assert {row.conclusion for row in compare(experiment, runs).rows} == {
            Conclusion.BASELINE,
            Conclusion.UNDECIDED,
        }
    report = performance_profiles(measurements)
    assert min(scores(report).values()) > 0.9 and [row.behind for row in report.rows] == [0, 0]
    assert profile_headline(report).startswith("No winner over 2 workloads: the comparisons do not decide between ")


def test_who_won_one_comparison_is_scored_though_another_one_lacks_it() -> None:
    """Lion is lower by 0.9 nats where it was trained, and is not there elsewhere."""

    def loss(name: str, seed: int) -> float:
        return 3.3 + 0.001 * seed - 0.9 * (name == "lion")

    report = performance_profiles([measured(loss), measured(loss, steps=2000, others=("adapm", "lion"))])
    assert scores(report) == {"adamw": 0.5, "adapm": 0.5, "lion": 0.5}
    assert {row.candidate: row.behind for row in report.rows} == {"adamw": 1, "adapm": 1, "lion": 0}
    assert "Lion was not trained on 1 workload, and counts as not there." in report.notes


def test_a_third_candidate_far_behind_moves_no_score() -> None:
    def loss(name: str, seed: int) -> float:
        return 3.3 + 0.001 * seed + {"adamw": 0.004, "adapm": 0.0, "lion": 0.5}[name]

    two, three = (
        performance_profiles([measured(loss, steps=steps, others=names) for steps in (1000, 2000)])
        for names in (("adapm",), ("adapm", "lion"))
    )
    assert scores(three) == scores(two) | {"lion": 0.0}


def test_who_ends_as_good_within_the_margin_reaches_the_target() -> None:
    """0.01 nats above the higher one of two that are not told apart: 12.5 of 1,000 steps, as 0.8 nats are all of
    them."""
    report = performance_profiles([measured(lambda name, _seed: 3.3 + 0.008 * (name == "adamw"))])
    steps = {row.candidate: (row.times[0].tokens or 0) / 1024 for row in report.rows}
    assert steps == pytest.approx({"adapm": 977.5, "adamw": 987.5})
    (time,) = report.rows[0].times
    assert time.targets == pytest.approx((3.318,)) and target_words(time) == "target 3.3180"
    slower_report = performance_profiles([measured(lambda name, _seed: 3.3 + 0.012 * (name == "adamw"))])
    assert scores(slower_report) == {"adapm": 1.0, "adamw": 0.0}


def test_runs_that_spiked_count_as_not_reached() -> None:
    """Though their curves went below every target before. The tables call AdaPM unstable, so it is behind."""
    spike = result(final_val_loss=3.9).model_copy(update={"lowest_val_loss": 3.2})

    def with_spikes(seeds: tuple[int, ...], steps: int) -> Measured:
        experiment, runs, curves = measured(
            lambda name, seed: spike if name == "adapm" and seed in seeds else 3.3 - 0.05 * (name == "adapm"),
            steps=steps,
        )
        early = {run.id: ValidationCurve(steps=(0.0, 1.0, 1000.0), losses=(6.0, 3.0, 3.9)) for run in runs}
        return experiment, runs, {id: early[id] if curve.losses[-1] > 3.5 else curve for id, curve in curves.items()}

    stable, rare_spikes, frequent_spikes = (
        performance_profiles([with_spikes(seeds, steps) for steps in (1000, 2000, 3000)])
        for seeds in ((), (1, 3), (0, 1, 3))
    )
    assert scores(stable) == {"adapm": 1.0, "adamw": 0.0} and not any(row.lost_runs for row in stable.rows)
    for report, lost in ((rare_spikes, 6), (frequent_spikes, 9)):
        rows = {row.candidate: row for row in report.rows}
        assert (rows["adapm"].lost_runs, rows["adapm"].runs, rows["adamw"].lost_runs) == (lost, 15, 0)
        assert (rows["adapm"].behind, rows["adamw"].behind) == (3, 0)
    assert scores(frequent_spikes) == {"adamw": 1.0, "adapm": 0.0}


def test_the_headline_names_a_winner_only_where_the_comparisons_show_one() -> None:
    def loss_of(gain: float) -> LossOf:
        return lambda name, seed: 3.3 + 0.001 * seed - gain * (name == "adapm")

    def headline(*gains: float) -> str:
        measurements = [measured(loss_of(gain), steps=1000 + index) for index, gain in enumerate(gains)]
        return profile_headline(performance_profiles(measurements))

    assert headline(0.05, 0.05, 0.05) == (
        "AdaPM has the highest score over 3 workloads: 1.000 by tokens to the target."
    )
    assert headline(0.05, 0.05, -0.05).startswith("AdaPM has the highest score over 3 workloads: 0.667")
    assert headline(0.05, -0.05) == (
        "No winner over 2 workloads: the comparisons do not decide between AdamW 0.500, AdaPM 0.500 (by tokens to the "
        "target)."
    )


def test_the_headline_names_nobody_who_lost_more_runs() -> None:
    def loss(name: str, seed: int) -> Outcome:
        if name == "adapm":
            return result(verdict=Verdict.DIVERGED, final_val_loss=None) if seed == 0 else 3.2
        return 3.3

    report = performance_profiles([measured(loss, steps=1000 + index, seeds=10) for index in range(3)])
    assert report.rows[0].candidate == "adapm"
    assert profile_headline(report).startswith("No winner over 3 workloads")


@pytest.mark.parametrize("outcome", [RunStatus.FAILED, RunStatus.CANCELLED, None])
def test_a_workload_on_which_a_candidate_never_ran_counts_for_nobody(outcome: Outcome) -> None:
    """AdamW is the better one, and all of its runs failed where it was never seen."""

    def never(name: str, _seed: int) -> Outcome:
        return outcome if name == "adamw" else 3.3

    measurement = measured(lambda name, _seed: 3.3 + 0.05 * (name == "adapm"), steps=900)
    report = performance_profiles([measurement, *(measured(never, steps=1000 + index) for index in range(3))])
    assert (report.workloads, scores(report)) == (1, {"adamw": 1.0, "adapm": 0.0})
    assert [row.runs for row in report.rows] == [5, 5]
    assert any(
        note.startswith("1000 steps is left out: fewer than two candidates have runs there") for note in report.notes
    )
    nothing = performance_profiles([measured(never)])
    assert (nothing.workloads, profile_headline(nothing)) == (0, "")
    experiment, runs, _ = measurement
    assert performance_profiles([(experiment, runs, {})]).workloads == 0, "without curves nobody is slow"


def test_the_headline_says_where_nobody_reached_a_target() -> None:
    lost = result(verdict=Verdict.DIVERGED, final_val_loss=None)
    report = performance_profiles([measured(lambda _name, _seed: lost)])
    assert profile_headline(report) == "No candidate reached the target over 1 workload."


def test_a_seed_that_one_candidate_lacks_counts_for_nobody() -> None:
    report = performance_profiles([measured(lambda name, seed: None if (name, seed) == ("adapm", 4) else 3.3)])
    assert [row.runs for row in report.rows] == [4, 4]


def test_several_experiments_of_one_workload_count_as_one() -> None:
    first, twin, third = (measured(lambda name, _seed: 3.3 - 0.005 * (name == "adapm"), steps=n) for n in (10, 10, 20))
    spec = twin[0].spec
    workload = spec.workload.model_copy(update={"evaluation": Evaluation(every_steps=7)})
    otherwise = twin[0].model_copy(update={"id": "again", "spec": spec.model_copy(update={"workload": workload})})
    report = performance_profiles([first, (otherwise, *twin[1:]), third])
    assert (report.workloads, len(report.experiments)) == (2, 3)
    assert [time.experiments for time in report.rows[0].times] == [("e10", "again"), ("e20",)]
    assert [row.runs for row in report.rows] == [15, 15]
    assert "2 workloads: a profile over so few" in report.notes[0]
    assert any("2 experiments train one workload and count as one" in note for note in report.notes)
