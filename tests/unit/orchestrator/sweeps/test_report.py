"""The finding of a sweep: only whole trials rank, edges and missing defaults are noted, importance finds the planted
one."""

import math
from random import Random

import pytest

from optim.catalog.records import Scalar
from orchestrator.errors import ConflictError
from orchestrator.kinds.sweep import SweepSpec
from orchestrator.records import RunRecord
from orchestrator.sweeps.importance import FEWEST_TRIALS, importances
from orchestrator.sweeps.report import (
    best_so_far,
    comparison_of_the_best,
    report,
)
from orchestrator.sweeps.trials import trial_run
from orchestrator.tuning.search_spaces import draw
from tests.factories.comparison import run_record
from tests.factories.stores import result
from tests.factories.sweep import RATES, sweep_record, sweep_spec
from worker.records.result import Result, Verdict

EARLY = result(final_val_loss=None, verdict=Verdict.STOPPED_EARLY, steps=4)
DIVERGED = result(final_val_loss=None, verdict=Verdict.DIVERGED, steps=2)


def run(spec: SweepSpec, number: int, parameters: dict[str, Scalar], outcome: Result | None) -> RunRecord:
    record = run_record(trial_run(spec, number, parameters), number, outcome, "s0")
    return record.model_copy(update={"step": 4, "device_seconds": 36.0, "last_val_loss": 3.5})


ONE = sweep_spec(candidates=[{"optimizer": "adamw", "space": {"lr": RATES}}], trials=4)


def four(*outcomes: Result | None) -> tuple[RunRecord, ...]:
    rates = (6e-4, 1e-2, 2e-3, 9.9e-2)
    return tuple(run(ONE, number, {"lr": rates[number]}, outcome) for number, outcome in enumerate(outcomes))


def test_only_trials_that_ran_their_budget_and_learned_rank():
    """The one stopped early has the lowest loss so far, and is not the best."""
    sweep_report = report(
        sweep_record(ONE, 4), four(result(final_val_loss=2.6), EARLY, result(final_val_loss=2.4), DIVERGED)
    )
    (finding,) = sweep_report.findings
    assert finding.best == sweep_report.trials[2] == sweep_report.best()
    assert [trial.objective for trial in sweep_report.trials] == [2.6, None, 2.4, None]
    assert best_so_far(sweep_report.trials) == (2.6, 2.6, 2.4, 2.4)
    assert (finding.converged, finding.stopped_early, finding.diverged) == (2, 1, 1)
    assert sweep_report.device_hours == pytest.approx(4 * 36 / 3600)
    assert sweep_report.device == "cpu"
    assert any("1 of 4" in note for note in sweep_report.notes)


def test_a_best_value_at_the_end_of_its_range_is_said():
    sweep_report = report(sweep_record(ONE, 4), four(EARLY, EARLY, EARLY, result(final_val_loss=2.4)))
    assert sweep_report.findings[0].at_edge == ("lr",)
    assert any(note.startswith("AdamW: the best lr") for note in sweep_report.notes)


def test_a_sweep_that_ended_before_its_last_trial_says_so():
    sweep_report = report(sweep_record(ONE, 2), four(result(), result())[:2])
    assert "2 of 4" in sweep_report.notes[0]


def test_nothing_to_choose_from_is_a_sentence():
    sweep_report = report(sweep_record(ONE, 4), four(DIVERGED, DIVERGED, EARLY, DIVERGED))
    assert sweep_report.best() is None
    assert sweep_report.notes
    with pytest.raises(ConflictError, match="no trial of AdamW in sweep s0 has run its budget"):
        comparison_of_the_best(sweep_report, ONE, 3)


def test_a_sweep_that_goes_on_has_no_comparison_of_its_best():
    sweep_report = report(sweep_record(ONE, 2, done=False), four(result(), None))
    with pytest.raises(ConflictError, match=r"1 of 4 trials of sweep s0 has ended, .* adapm-bench cancel s0"):
        comparison_of_the_best(sweep_report, ONE, 3)
    ended_early = report(sweep_record(ONE, 2), four(result(), result())[:2])
    assert len(comparison_of_the_best(ended_early, ONE, 3).seeds) == 3


def test_the_comparison_of_the_best_has_fresh_seeds_and_each_ones_hyperparameters():
    space = {"lr": RATES, "rank_ratio": {"kind": "catalog"}, "warmup_steps": {"kind": "integer", "low": 0, "high": 5}}
    candidates = [{"optimizer": "adamw", "space": {"lr": RATES}}, {"optimizer": "adapm", "space": space}]
    spec = sweep_spec(candidates=candidates, seed=2**31 - 2)
    runs = (
        run(spec, 0, {"lr": 1e-3}, result(final_val_loss=2.5)),
        run(spec, 1, {"lr": 2e-3, "rank_ratio": 0.1, "warmup_steps": 3}, result(final_val_loss=2.4)),
    )
    sweep_report = report(sweep_record(spec, 2), runs)
    assert [finding.candidate for finding in sweep_report.findings] == ["adapm", "adamw"]
    design = comparison_of_the_best(sweep_report, spec, 3)
    assert [
        (candidate.optimizer, candidate.learning_rates, candidate.options, candidate.warmup_steps)
        for candidate in design.candidates
    ] == [
        ("adamw", (1e-3,), {}, None),
        ("adapm", (2e-3,), {"rank_ratio": 0.1}, 3),
    ]
    assert design.seeds == (2**31 - 1, 0, 1) and spec.seed not in design.seeds


def test_importance_finds_the_hyperparameter_that_was_planted():
    """The loss depends on the learning rate alone."""
    space = {"lr": RATES, "weight_decay": {"kind": "catalog"}, "beta1": {"kind": "catalog"}}
    (searched,) = sweep_spec(candidates=[{"optimizer": "adamw", "space": space}]).candidates
    random = Random(7)
    drawn = [{name: draw(domain, random) for name, domain in searched.ranges().items()} for _ in range(80)]
    trials = [(parameters, (math.log(float(parameters["lr"] or 0)) - math.log(1e-2)) ** 2) for parameters in drawn]
    shares = importances(searched, trials)
    assert set(shares) == set(space) and sum(shares.values()) == pytest.approx(1.0)
    assert next(iter(shares)) == "lr" and shares["lr"] > 0.6


def test_few_trials_or_equal_losses_have_no_importance():
    (searched,) = ONE.candidates
    trials = [({"lr": 1e-3 * (1 + number)}, 2.0) for number in range(FEWEST_TRIALS)]
    assert importances(searched, trials[:-1]) == importances(searched, trials) == {}
