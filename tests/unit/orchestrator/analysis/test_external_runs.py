"""External runs are judged by the statistics of comparisons; what speaks against a verdict is said, or forbids it."""

import math

import pytest

from orchestrator.analysis import external_runs
from orchestrator.analysis.estimator import paired_difference
from orchestrator.analysis.statistics import mean_interval
from orchestrator.errors import ConflictError
from orchestrator.external_runs import (
    ExternalExperiment,
    ExternalJudgement,
    ExternalRun,
    ExternalState,
    JudgedCandidate,
    JudgementChoice,
)
from orchestrator.records import Conclusion
from tests.factories.external_runs import BEGAN, EXPERIMENT, external_run, grid

ADAMW = (3.21, 3.22, 3.24, 3.20)
MUON = (3.15, 3.17, 3.18, 3.14)


def judge(experiment: ExternalExperiment, runs: list[ExternalRun], **choices: str | float) -> ExternalJudgement:
    return external_runs.judge(experiment, runs, JudgementChoice.model_validate(choices))


def judged(runs: list[ExternalRun], name: str, **choices: str) -> JudgedCandidate:
    return next(row for row in judge(EXPERIMENT, runs, **choices).rows if row.candidate == name)


def test_one_rate_each_is_the_paired_t_test_of_these_very_losses() -> None:
    answer = judge(EXPERIMENT, grid({"adamw": {0.002: ADAMW}, "muon": {0.02: MUON}}))
    muon, adamw = answer.rows
    assert (answer.origin, answer.metric, answer.baseline) == ("external", "val_loss", "adamw")
    expected = paired_difference(dict(enumerate(MUON)), dict(enumerate(ADAMW)))
    assert muon.difference is not None and expected is not None
    figures = ("mean", "low", "high", "p_value", "n")
    for name in figures:
        assert getattr(muon.difference, name) == pytest.approx(getattr(expected, name)), name
    assert muon.loss == mean_interval(MUON) and adamw.loss == mean_interval(ADAMW)
    assert (muon.conclusion, adamw.conclusion) == (Conclusion.BETTER, Conclusion.BASELINE)
    assert muon.verdict.startswith("Better: muon ends 0.0575 lower than adamw (95 %: ")
    assert "nats" not in muon.verdict and muon.difference.margin is None, "nobody gave a unit"
    with_margin = judge(EXPERIMENT, grid({"adamw": {0.002: ADAMW}, "muon": {0.02: ADAMW}}), margin=0.05).rows
    assert {row.conclusion for row in with_margin} == {Conclusion.BASELINE, Conclusion.AS_GOOD}
    assert answer.concerns == () and any("Nothing was tuned" in note for note in answer.notes)
    assert any("no workload was logged" in sentence for sentence in answer.unchecked)
    assert not any(row.edge_of_grid for row in answer.rows) and not any("edge" in note for note in answer.notes)


def test_several_rates_on_the_same_seeds_are_judged_at_the_best_with_a_note() -> None:
    """Of two rates the best is always at an end of those that were tried."""
    several = grid({"adamw": {0.002: ADAMW, 0.004: MUON}, "muon": {0.02: MUON, 0.01: ADAMW}})
    answer = judge(EXPERIMENT, several)
    assert {(row.candidate, row.lr, row.edge_of_grid) for row in answer.rows} == {
        ("adamw", 0.004, True),
        ("muon", 0.02, True),
    }
    assert any("chose and judged" in note for note in judge(EXPERIMENT, inner(several)).notes)
    assert len(answer.notes) == 2 and "at an end of those tried" in answer.notes[1]


def test_a_later_session_that_a_tracker_took_for_a_run_counts_and_a_second_try_does_not() -> None:
    runs = grid({"adamw": {0.002: ADAMW}, "muon": {0.02: MUON}})
    (first,) = (run for run in runs if run.candidate == "muon" and run.seed == 2)
    killed = first.metrics["val_loss"].model_copy(update={"last_step": 51, "last": 5.0, "points": 6})
    runs[runs.index(first)] = first.model_copy(update={"metrics": {"val_loss": killed}})
    later = external_run("muon", 0.02, 2, MUON[1], began=BEGAN + 60)
    whole = judge(EXPERIMENT, [*runs, later])
    assert whole.rows[1].last_steps == (51, 100) and any("repeating" in concern for concern in whole.concerns)
    summary = later.metrics["val_loss"].model_copy(update={"first_step": 61})
    resumed = judge(EXPERIMENT, [*runs, later.model_copy(update={"metrics": {"val_loss": summary}})])
    assert resumed.rows[0].last_steps == (100,) and resumed.rows[0].loss == mean_interval(MUON)
    assert "left out: 1 run that a later one goes on from" in resumed.concerns[-1]


def inner(runs: list[ExternalRun]) -> list[ExternalRun]:
    """Return the runs with worse rates to either side."""
    return runs + [
        external_run(name, lr, seed, 5.0)
        for name, rates in (("adamw", (0.001, 0.008)), ("muon", (0.005, 0.04)))
        for lr in rates
        for seed in range(1, 5)
    ]


def test_a_baseline_that_was_chosen_with_the_results_in_sight_costs_what_all_pairs_do() -> None:
    """As of our own comparisons: of three candidates any of three pairs could have been chosen, and not of two."""
    runs = grid({"adamw": {0.002: ADAMW}, "muon": {0.02: MUON}, "lion": {0.001: [loss - 0.02 for loss in ADAMW[::-1]]}})
    usual = judge(EXPERIMENT, runs)
    assert [row.difference.comparisons for row in usual.rows if row.difference] == [2, 2]
    chosen = judge(EXPERIMENT, runs, baseline="muon")
    assert [row.difference.comparisons for row in chosen.rows if row.difference] == [3, 3]
    assert chosen.notes[0].startswith("The baseline muon was chosen after the fact (without a choice it is adamw")
    assert "corrected for 3 comparisons instead of 2" in chosen.notes[0]
    assert judge(EXPERIMENT, runs, baseline="adamw") == usual, "who names the first one has chosen nothing"
    two = judge(EXPERIMENT, grid({"adamw": {0.002: ADAMW}, "muon": {0.02: MUON}}), baseline="muon")
    assert [row.difference.comparisons for row in two.rows if row.difference] == [1]
    assert not any("chosen after the fact" in note for note in two.notes)


def test_seeds_that_only_tuned_are_set_apart() -> None:
    """The usual way: rates on seed 1, then the best of them on further seeds. Seed 1 flatters its choice."""
    runs = [
        external_run(name, lr, 1, 3.0 + 0.004 * math.log2(lr / 0.002) ** 2)
        for name in ("adamw", "muon")
        for lr in (0.001, 0.002, 0.004)
    ]
    runs += [external_run("adamw", 0.002, seed, loss) for seed, loss in enumerate(ADAMW, start=2)]
    runs += [external_run("muon", 0.002, seed, loss) for seed, loss in enumerate(MUON, start=2)]
    answer = judge(EXPERIMENT, runs, baseline="adamw")
    assert answer.tuning_seeds == (1,)
    muon = answer.rows[0]
    assert (muon.loss, muon.lr) == (mean_interval(MUON), 0.002)
    assert muon.difference is not None and muon.difference.n == 4
    assert muon.conclusion is Conclusion.BETTER


def test_a_rate_with_fewer_seeds_is_not_the_best_one_for_a_lucky_seed() -> None:
    runs = grid({"adamw": {0.001: ADAMW, 0.002: (1.0,), 0.004: ADAMW}, "muon": {0.001: MUON, 0.002: MUON, 0.004: MUON}})
    adamw = judged(runs, "adamw")
    assert (adamw.lr, adamw.edge_of_grid) == (0.001, True), "and it is no inner rate that makes 0.001 one"


def test_unequal_tuning_is_said_first_and_forbids_a_verdict() -> None:
    runs = grid({"adamw": {0.002: ADAMW}, "muon": {0.01: [loss + 0.01 for loss in MUON], 0.02: MUON, 0.04: MUON}})
    answer = judge(EXPERIMENT, runs)
    muon = judged(runs, "muon")
    assert muon.conclusion is Conclusion.UNDECIDED and muon.difference is not None and muon.difference.low is None
    assert muon.verdict == "Undecided: 3 learning rates tried against 1 of adamw's; muon ends 0.0575 lower."
    assert answer.concerns[0] == "not tuned equally: learning rates tried: muon 3, adamw 1"


def test_other_budgets_are_said_first_and_forbid_a_verdict() -> None:
    runs = grid({"adamw": {0.002: ADAMW}}) + grid({"muon": {0.02: MUON}}, steps=150)
    muon = judged(runs, "muon", baseline="adamw")
    assert muon.conclusion is Conclusion.UNDECIDED
    assert muon.difference is not None and muon.difference.low is muon.difference.p_value is None
    assert muon.verdict == (
        "Undecided: 4 seeds with other steps or tokens than the same seed of adamw's; muon ends 0.0575 lower."
    )
    assert judge(EXPERIMENT, runs).concerns[0] == "budgets differ: the last step with a loss: muon 150, adamw 100"
    runs = grid({"adamw": {0.002: ADAMW}}, tokens=1e6) + grid({"muon": {0.02: MUON}}, tokens=2e6)
    assert judged(runs, "muon", baseline="adamw").verdict == muon.verdict
    assert "budgets differ: tokens: muon 2,000,000, adamw 1,000,000" in judge(EXPERIMENT, runs).concerns


def test_few_seeds_and_settings_that_differ_are_said() -> None:
    runs = grid({"adamw": {0.002: ADAMW[:2]}}, batch=32) + grid({"muon": {0.02: MUON[:2]}}, batch=64)
    concerns = judge(EXPERIMENT, runs, baseline="adamw").concerns
    assert concerns[0].startswith("too few seeds: fewer than 3")
    assert concerns[-1].endswith("beside learning rate and seed: batch (muon 64, adamw 32)")


def test_a_tracker_that_writes_whole_numbers_with_a_point_makes_no_difference() -> None:
    runs = grid({"adamw": {0.002: ADAMW}}, batch=32, layers=2) + grid({"muon": {0.02: MUON}}, batch=32.0)
    (concern,) = (
        concern for concern in judge(EXPERIMENT, runs, baseline="adamw").concerns if "configuration" in concern
    )
    assert concern.endswith("seed: layers (muon not logged, adamw 2)"), "whichever comes first, and batch is the same"


def test_what_was_mapped_out_of_a_nested_configuration_is_no_difference() -> None:
    runs = [
        run.model_copy(
            update={
                "config": {
                    "optimizer": {
                        "name": run.candidate,
                        "lr": run.lr,
                        "decay": 0.1 if run.candidate == "muon" else 0.2,
                    },
                    "imported": {"map": {"candidate": "config.optimizer.name", "lr": "config.optimizer.lr"}},
                }
            }
        )
        for run in grid({"adamw": {0.002: ADAMW}, "muon": {0.02: MUON}})
    ]
    (concern,) = (
        concern for concern in judge(EXPERIMENT, runs, baseline="adamw").concerns if "configuration" in concern
    )
    assert concern.endswith("seed: optimizer.decay (muon 0.1, adamw 0.2)")


def test_what_cannot_be_judged_is_left_out_and_said() -> None:
    runs = grid({"adamw": {0.002: ADAMW}, "muon": {0.02: MUON}})
    whole = judge(EXPERIMENT, runs)
    odd = [
        external_run("muon", 0.02, 5, 1.0, state=ExternalState.RUNNING),
        external_run("muon", 0.02, 6, 1.0, state=ExternalState.FAILED),
        external_run("muon", 0.02, None, 1.0),
        external_run("muon", 0.02, 1, 1.0, began=BEGAN + 9),  # tried again until it looked good
    ]
    answer = judge(EXPERIMENT, [*runs, *odd])
    assert answer.rows == whole.rows
    assert [concern for concern in answer.concerns if concern.startswith("left out")] == [
        "left out: 1 run not said to be finished (still training, or killed) (muon: 1)",
        "left out: 1 run failed before the end (muon: 1)",
        "left out: 1 run without a seed (muon: 1)",
        "left out: 1 run repeating candidate, rate and seed of an earlier one, which counts (muon: 1)",
    ]


@pytest.mark.parametrize("last", [None, 10.0, 1e200])
def test_a_loss_that_is_no_number_or_has_not_fallen_is_a_run_that_diverged(last: float | None) -> None:
    runs = grid({"adamw": {0.002: ADAMW}, "muon": {0.02: MUON}})
    lost = external_run("muon", 0.02, 5, last)
    of_metric = lost.metrics["val_loss"].model_copy(update={"first_step": 0})
    lost = lost.model_copy(update={"metrics": {"val_loss": of_metric}})
    muon = judged([*runs, lost, external_run("adamw", 0.002, 5, 3.2)], "muon")
    assert muon.conclusion is Conclusion.UNSTABLE
    assert muon.loss == mean_interval(MUON) and muon.difference is not None and muon.difference.n == 4


def test_runs_of_two_workloads_are_never_held_against_each_other() -> None:
    runs = grid({"adamw": {0.002: ADAMW}}, workload="124M") + grid({"adamw": {0.002: ADAMW}, "muon": {0.02: MUON}})
    with pytest.raises(ConflictError, match=r"runs of 2 workloads.*choose one: '', '124M'"):
        judge(EXPERIMENT, runs)
    assert len(judge(EXPERIMENT, runs, workload="").rows) == 2
    assert [row.candidate for row in judge(EXPERIMENT, runs, workload="124M").rows] == ["adamw"]
    with pytest.raises(ConflictError, match="no run has the workload '1B'"):
        judge(EXPERIMENT, runs, workload="1B")


@pytest.mark.parametrize(
    ("choices", "fault"),
    [
        ({"metric": "loss"}, "can be judged by loss: left out: 8 runs without loss"),
        ({"baseline": "lion"}, "no candidate 'lion'; the candidates are adamw, muon"),
    ],
)
def test_what_nothing_can_be_judged_by_is_refused_with_what_there_is(choices: dict[str, str], fault: str) -> None:
    with pytest.raises(ConflictError, match=fault):
        judge(EXPERIMENT, grid({"adamw": {0.002: ADAMW}, "muon": {0.02: MUON}}), **choices)
    with pytest.raises(ConflictError, match="there are none yet"):
        judge(EXPERIMENT, [])


def test_budgets_have_to_be_equal_seed_by_seed() -> None:
    """Both have runs of 500 and of 1,000 steps, and on no seed the same."""
    runs = [
        external_run(name, 0.002, seed, loss, steps=1000 if (seed == 3) is (name == "adamw") else 500)
        for name, losses in (("adamw", ADAMW), ("muon", MUON))
        for seed, loss in enumerate(losses)
    ]
    assert judged(runs, "muon", baseline="adamw").conclusion is Conclusion.UNDECIDED


def test_rates_that_were_chosen_among_unequal_budgets_are_said() -> None:
    runs = grid({"muon": {0.01: ADAMW, 0.02: MUON, 0.04: ADAMW}, "adamw": {0.001: ADAMW, 0.002: MUON}})
    runs += grid({"adamw": {0.004: ADAMW}}, steps=20)
    sentence = "budgets differ: the last step with a loss: muon 100, adamw 20 and 100"
    assert sentence in judge(EXPERIMENT, runs, baseline="adamw").concerns


def test_looking_until_there_is_a_verdict_is_what_nobody_can_check() -> None:
    answer = judge(EXPERIMENT, grid({"adamw": {0.002: ADAMW}, "muon": {0.02: MUON}}))
    (seeds,) = (
        sentence
        for sentence in answer.unchecked
        if "the number of seeds was fixed before any result was seen" in sentence
    )
    assert seeds.endswith("in 17 % instead of 5 %"), "as tests/unit/orchestrator/analysis/test_sequential.py counts"


def test_the_first_process_of_a_launcher_counts_and_the_others_are_said() -> None:
    runs = grid({"adamw": {0.002: ADAMW}, "muon": {0.02: MUON}})
    copies = [
        run.model_copy(update={"id": f"{run.id}-1", "started_at": BEGAN - 1, "config": {"SLURM_PROCID": 1}})
        for run in runs
    ]
    first, second = judge(EXPERIMENT, runs, baseline="adamw"), judge(EXPERIMENT, runs + copies, baseline="adamw")
    assert second.rows == first.rows
    assert sum("further processes of one training" in concern for concern in second.concerns) == 1


def test_a_run_that_went_back_is_said() -> None:
    runs = grid({"adamw": {0.002: ADAMW}, "muon": {0.02: MUON}})
    summary = runs[0].metrics["val_loss"].model_copy(update={"left_out": 3})
    runs[0] = runs[0].model_copy(update={"metrics": {"val_loss": summary}})
    assert sum("1 run went back to an earlier step" in concern for concern in judge(EXPERIMENT, runs).concerns) == 1


def test_runs_without_a_rate_are_judged_together_and_it_is_said() -> None:
    runs = [run.model_copy(update={"lr": None}) for run in grid({"adamw": {0.002: ADAMW}})]
    runs += grid({"muon": {0.02: MUON}})
    answer, adamw = judge(EXPERIMENT, runs), judged(runs, "adamw")
    assert adamw.lr is None and adamw.loss == mean_interval(ADAMW) and len(adamw.learning_rates) == 1
    assert adamw.verdict.endswith("at a learning rate that was not logged.")
    assert judged(runs, "muon").conclusion is Conclusion.BETTER
    assert any(sentence.endswith("none was logged: adamw") for sentence in answer.unchecked)


def gone_on(run: ExternalRun, *, until: int, last: float | None) -> ExternalRun:
    """The run, which logged another metric until a later step."""
    later = run.metrics["val_loss"].model_copy(update={"last_step": until, "last": last})
    return run.model_copy(update={"metrics": {**run.metrics, "train_loss": later}})


def test_a_loss_that_ends_before_its_run_is_said_and_of_a_run_that_diverged_it_is_none() -> None:
    runs = grid({"adamw": {0.002: ADAMW}, "muon": {0.02: MUON}})
    early = [gone_on(run, until=500, last=2.0) if run.candidate == "muon" else run for run in runs]
    (concern,) = (concern for concern in judge(EXPERIMENT, early).concerns if "went on without val_loss" in concern)
    assert "(muon: 4)" in concern and "step 100" in concern and "step 500" in concern
    whole = [gone_on(run, until=199, last=2.0) for run in runs]
    assert judge(EXPERIMENT, whole).concerns == judge(EXPERIMENT, runs).concerns, "the next value would be of step 199"
    diverged = [gone_on(run, until=500, last=None) if run.candidate == "muon" else run for run in runs]
    muon = judged(diverged, "muon")
    assert (muon.conclusion, muon.loss) == (Conclusion.UNSTABLE, None)
    overflown = [gone_on(run, until=150, last=None) for run in runs]  # the scaled gradient of a last step may be
    assert judge(EXPERIMENT, overflown).rows == judge(EXPERIMENT, runs).rows
