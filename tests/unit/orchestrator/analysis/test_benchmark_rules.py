"""The rules of other benchmarks give the figures that those have published, from what those have published."""

import csv
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.benchmark_rules import (
    MeasuredComparison,
    TargetTestChoice,
    algoperf_profile,
    algoperf_scores,
    external_target_test,
    first_evaluation,
    target_score,
    target_test,
    target_test_row,
    time_to_target,
)
from orchestrator.analysis.comparison import ValidationCurve, compare
from orchestrator.analysis.external_runs import judge
from orchestrator.analysis.profiles import ProfileRule
from orchestrator.analysis.targets import profile_scores
from orchestrator.external_runs import ExternalState, JudgementChoice
from orchestrator.jobs import RunStatus
from orchestrator.kinds.tuning import Tuning
from tests.factories.comparison import Outcome, made_spec, records, second_phase
from tests.factories.external_runs import EXPERIMENT, external_run
from tests.factories.stores import comparison_spec, result
from worker.records.result import Verdict

PUBLISHED = Path(__file__).parents[3] / "sources/published"
TARGETS = {
    "criteo1tb": 0.123735,
    "fastmri": -0.723653,
    "imagenet_resnet": -0.77431,
    "imagenet_vit": -0.77309,
    "librispeech_conformer": 0.085884,
    "librispeech_deepspeech": 0.119936,
    "ogbg": -0.28098,
    "wmt": -30.8491,
}
"""Of AlgoPerf 0.6, validation; what is better when it is larger has its sign turned."""


def _time(evaluations: list[tuple[float, float]], target: float) -> float | None:
    return first_evaluation([at for at, _ in evaluations], [value for _, value in evaluations], target)


def published_times() -> dict[str, list[float | None]]:
    """The time to target of each submission on each workload, from the evaluations of its trials."""
    trials: dict[tuple[str, str], dict[str, dict[str, list[tuple[float, float]]]]] = {}
    with (PUBLISHED / "algoperf_v06_external_tuning.csv").open() as file:
        for row in csv.DictReader(file):
            value = math.copysign(1, TARGETS[row["workload"]]) * float(row["value"])
            studies = trials.setdefault((row["submission"], row["workload"]), {})
            studies.setdefault(row["study"], {}).setdefault(row["trial"], []).append((float(row["seconds"]), value))
    return {
        submission: [
            time_to_target(
                [_time(evaluations, target) for evaluations in study.values()]
                for study in trials[submission, workload].values()
            )
            for workload, target in TARGETS.items()
        ]
        for submission in ("shampoo", "baseline")
    }


def test_the_published_scores_of_algoperf_come_out_of_its_published_logs() -> None:
    """Distributed Shampoo 0.6244 and the baseline 0.4590, of the leaderboard of version 0.6."""
    times = published_times()
    scores = algoperf_scores(times)
    assert {name: f"{score:.4f}" for name, score in scores.items()} == {"shampoo": "0.6244", "baseline": "0.4590"}
    exact = profile_scores(times)
    assert {name: f"{score:.4f}" for name, score in exact.items()} == {"shampoo": "0.6239", "baseline": "0.4580"}


def test_the_published_results_of_track_3_pass_exactly_where_they_are_marked() -> None:
    with (PUBLISHED / "nanogpt_track_3.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 46 and {row["is_significant"] for row in rows} == {"yes", "no"}
    for row in rows:
        found = target_test_row("muon", None, [float(row["mean_loss"])] * int(row["runs"]), TargetTestChoice())
        assert found.is_shown == (row["is_significant"] == "yes"), row


def test_the_examples_of_track_3s_rule() -> None:
    """ "For a single run any loss below 3.276 suffices, and for n=4 runs any average below 3.278"."""
    for losses, is_shown in (([3.2759], True), ([3.2761], False), ([3.2779] * 4, True), ([3.2781] * 4, False)):
        assert target_test_row("muon", None, losses, TargetTestChoice()).is_shown == is_shown


@given(st.floats(3.2, 3.2799), st.integers(1, 50))
def test_so_many_runs_are_needed_and_no_fewer(mean: float, runs: int) -> None:
    choice = TargetTestChoice()
    needed = target_test_row("muon", None, [mean] * runs, choice).runs_needed
    assert needed is not None
    assert target_score(mean, needed + 1) >= choice.margin
    assert needed == 1 or target_score(mean, needed - 1) < choice.margin


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([], "Not shown: no run has ended."),
        ([3.2, None], "Not shown: 1 of 2 runs ended without a finite loss."),
        ([3.2, math.nan], "Not shown: 1 of 2 runs ended without a finite loss."),
        ([1e308, 1e308], "Not shown: 2 of 2 runs ended without a finite loss."),
        ([3.28], "Not shown: 3.2800 over 1 run is not below 3.28."),
        ([3.2790], "Not shown: 3.2790 over 1 run, 0.0010 is less than 0.004; at this mean it takes 17 runs."),
        ([3.2779] * 4, "Shown: 3.2779 over 4 runs, 0.0042 is 0.004 or more."),
        (
            [3.256, 3.28, 3.264],
            "Not shown: these 3 runs differ by a standard deviation of 0.012, and the rule takes 0.0013; ask again "
            "with a noise margin of 0.27, which is their own by Student's t.",
        ),
    ],
)
def test_what_is_said_of_a_target(losses: list[float | None], said: str) -> None:
    assert target_test_row("muon", 1e-3, losses, TargetTestChoice()).verdict == said


def test_a_mean_that_is_hardly_below_the_target_needs_no_number_of_runs() -> None:
    choice = TargetTestChoice(target=0.0, margin=1e6)
    found = target_test_row("muon", None, [-1e-160], choice)
    assert found.runs_needed is None
    assert found.verdict.endswith("no number of runs at this mean suffices.")


def test_a_diverged_run_is_no_reason_to_leave_it_out() -> None:
    spec = made_spec()
    diverged = result(verdict=Verdict.DIVERGED, final_val_loss=None)

    def outcome(candidate: str, lr: float, seed: int) -> Outcome:
        return diverged if (candidate, seed) == ("adapm", 2) else 2.3

    test = target_test(*records(spec, outcome), TargetTestChoice(target=2.4))
    assert [(row.candidate, row.is_shown, row.runs) for row in test.rows] == [("adamw", True, 3), ("adapm", False, 3)]
    assert test.notes[1].startswith("The tested seeds chose the learning rate, too")


def test_runs_without_a_result_are_named_and_tuning_seeds_are_not_tested() -> None:
    spec = made_spec().model_copy(update={"tuning": Tuning(method="grid", seeds=(7, 8))})
    planned = (*spec.first_runs(), *second_phase(spec, 2e-3))

    def outcome(candidate: str, lr: float, seed: int) -> Outcome:
        if (candidate, seed) == ("adamw", 2):
            return RunStatus.FAILED
        return 1.0 + abs(lr - 2e-3) if seed in (7, 8) else 2.3

    test = target_test(*records(spec, outcome, planned=planned), TargetTestChoice(target=2.4))
    assert {row.candidate: (row.runs, row.mean_loss) for row in test.rows} == {"adamw": (2, 2.3), "adapm": (3, 2.3)}
    assert test.notes[1:] == ("1 run without a result, not ended or failed, is left out.",)


def test_a_profile_by_algoperfs_rule() -> None:
    """Three seeds are studies, three rates their trials; the target is one number, and no line is drawn to it."""
    spec = comparison_spec(optimizers=("adamw", "adapm"), learning_rates=(1e-3, 2e-3, 4e-3), seeds=range(3))

    def outcome(candidate: str, lr: float, seed: int) -> float:
        return 2.3 + 5 * abs(lr - 2e-3) - (0.05 if candidate == "adapm" else 0.0)

    experiment, runs = records(spec, outcome)
    steps = float(runs[0].steps_total)

    def curve(candidate: str, loss: float) -> ValidationCurve:
        half = 2.29 if candidate == "adapm" else 2.5
        return ValidationCurve(steps=(0.0, steps / 2, steps), losses=(5.0, half, loss))

    curves = {run.id: curve(run.candidate, run.result.final_val_loss) for run in runs if run.result}  # type: ignore[arg-type]
    measured = MeasuredComparison(
        workload=spec.workload, comparison=compare(experiment, runs, curves), runs=runs, curves=curves
    )
    report = algoperf_profile([measured])
    assert report.rule is ProfileRule.ALGOPERF
    adapm, adamw = report.rows
    assert (adapm.candidate, adamw.candidate) == ("adapm", "adamw")
    tokens = runs[0].result.tokens / runs[0].result.steps * steps  # type: ignore[union-attr]
    assert (adapm.times[0].tokens, adamw.times[0].tokens) == (tokens / 2, tokens)
    assert adapm.score_tokens == pytest.approx(1.0)
    assert adamw.score_tokens == pytest.approx(2 / 3, abs=0.01)
    twice = algoperf_profile([measured, measured])
    assert twice.workloads == 1, "the same workload twice is more studies of it"
    alone = comparison_spec(optimizers=("adamw",), learning_rates=(1e-3,), seeds=range(3))
    other = MeasuredComparison(workload=spec.workload, comparison=compare(*records(alone, outcome)), runs=(), curves={})
    few = algoperf_profile([measured, other])
    assert [row.candidate for row in few.rows] == ["adamw"]
    assert "1 candidate is left out: not in every comparison." in few.notes


def test_external_runs_are_tested_as_they_are_judged() -> None:
    runs = [external_run("muon", 0.02, seed, 3.2770 + 1e-4 * seed) for seed in (1, 2, 3)]
    runs += [external_run("adamw", 0.002, seed, 3.29) for seed in (1, 2, 3)]
    test = external_target_test(judge(EXPERIMENT, runs, JudgementChoice()), runs, TargetTestChoice())
    assert [(row.candidate, row.runs, row.is_shown) for row in test.rows] == [("muon", 3, True), ("adamw", 3, False)]
    runs.append(external_run("muon", 0.02, 4, 3.2, state=ExternalState.FAILED))
    test = external_target_test(judge(EXPERIMENT, runs, JudgementChoice()), runs, TargetTestChoice())
    assert test.rows[0].verdict == "Not shown: 1 run at this rate has no result."
    assert any("failed before the end" in note for note in test.notes)
    assert test.notes[-1].startswith("External runs: logged, not measured by the bench")


times = st.none() | st.floats(1.0, 1e6)


@given(
    st.integers(1, 5).flatmap(
        lambda n: st.dictionaries(st.text(max_size=2), st.lists(times, min_size=n, max_size=n), min_size=1)
    )
)
def test_the_scorers_sum_is_near_the_integral(rows: Mapping[str, list[float | None]]) -> None:
    exact = profile_scores(rows)
    for name, score in algoperf_scores(rows).items():
        assert 0 <= score <= 1 + 1e-12
        assert score == pytest.approx(exact[name], abs=3 / 99 / 3)


def test_first_evaluations_and_medians() -> None:
    assert first_evaluation((0, 10, 20), (5.0, math.nan, 2.0), 2.0) == 20
    assert first_evaluation((0, 10), (5.0, 3.0), 2.0) is None
    assert time_to_target([[3.0, None], [None], [1.0, 2.0]]) == 3.0
    assert time_to_target([[3.0], [None], [None, None]]) is None
    assert time_to_target([[1.0], [None]]) is None, "half of them is not the median"
    assert time_to_target([]) is None
    assert np.isfinite(algoperf_scores({"a": [0.0], "b": [None]})["a"])
