"""Critical batches: planted laws, an independent optimizer, simulated intervals, and records of real shape."""

import numpy as np
import pytest
from scipy.optimize import curve_fit

from orchestrator.analysis.comparison import ValidationCurve
from orchestrator.analysis.laws.critical_batch import critical_batches, fit_batch_law, ratio_of_critical_batches
from orchestrator.jobs import RunStatus
from orchestrator.records import ExperimentWithRuns
from tests.factories.comparison import Outcome, records
from tests.factories.stores import comparison_spec, result
from worker.records.result import Verdict

BATCHES = tuple(1000.0 * 2**place for place in range(6))
CRITICAL = 5000.0


def tokens(
    batches: tuple[float, ...] = BATCHES, critical: float = CRITICAL
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return 1e6 * (1 + np.array(batches) / critical)


def noisy(random: np.random.Generator, error: float = 0.05, critical: float = CRITICAL) -> list[float]:
    return [float(each) for each in tokens(critical=critical) * np.exp(error * random.standard_normal(len(BATCHES)))]


def test_a_law_is_the_one_that_an_independent_optimizer_finds() -> None:
    measured = noisy(np.random.default_rng(3))
    (least, critical), _ = curve_fit(
        lambda batch, low, at: low + np.log1p(batch / np.exp(at)), BATCHES, np.log(measured), p0=(14.0, 8.0)
    )
    found = fit_batch_law(BATCHES, measured)
    assert found is not None
    assert [each.value for each in found] == pytest.approx([np.exp(least), np.exp(critical)], rel=0.01)


@pytest.mark.parametrize("error", [0.03, 0.15])
def test_intervals_hold_what_was_planted(error: float) -> None:
    random = np.random.default_rng(0)
    held: list[bool] = []
    held_least: list[bool] = []
    held_ratio: list[bool] = []
    for number in range(400):
        measured = noisy(random, error)
        found = fit_batch_law(BATCHES, measured)
        assert found is not None
        for each, planted, of in zip(found, (1e6, CRITICAL), (held_least, held), strict=True):
            of.append((each.low or 0) <= planted <= (each.high or np.inf))
        if number < 100:
            ratio = ratio_of_critical_batches(BATCHES, measured, noisy(random, error, 2 * CRITICAL))
            assert ratio is not None
            held_ratio.append((ratio.low or 0) <= 0.5 <= (ratio.high or np.inf))
    assert np.mean(held) == pytest.approx(0.95, abs=0.035)
    assert np.mean(held_least) == pytest.approx(0.95, abs=0.035)
    assert np.mean(held_ratio) == pytest.approx(0.95, abs=0.06)


def test_bounds_that_the_tokens_do_not_tell_are_open() -> None:
    random = np.random.default_rng(1)
    flat = fit_batch_law(BATCHES, noisy(random, critical=1e9))
    proportional = fit_batch_law(BATCHES, noisy(random, critical=1.0))
    assert flat is not None and proportional is not None
    assert flat[1].high is None and flat[1].low is not None and flat[1].low > BATCHES[-1]
    assert proportional[1].low is None and (proportional[1].high or np.inf) < BATCHES[0]
    assert proportional[0].low is None
    assert fit_batch_law(BATCHES[:3], noisy(random)[:3]) is None


def measured(reach: float = 3.0) -> tuple[list[ExperimentWithRuns], dict[str, ValidationCurve]]:
    """Four batches of AdamW and AdaPM, whose losses fall in a straight line to `reach` by the tokens of their laws;
    AdaPM's critical batch is three times AdamW's."""
    found: list[ExperimentWithRuns] = []
    curves: dict[str, ValidationCurve] = {}
    for place, sequences in enumerate((2, 8, 32, 128)):
        spec = comparison_spec(optimizers=("adamw", "adapm"), learning_rates=(1e-3,), seeds=range(3), steps=100)
        budget = spec.workload.budget.model_copy(update={"batch_sequences": sequences})
        spec = spec.model_copy(update={"workload": spec.workload.model_copy(update={"budget": budget})})
        batch = sequences * spec.workload.data.sequence_length_tokens

        def outcome(name: str, _lr: float, seed: int, batch: int = batch) -> Outcome:
            return result(final_val_loss=2.9 + 0.001 * seed).model_copy(update={"steps": 100, "tokens": 100 * batch})

        experiment, runs = records(spec, outcome, experiment=f"e{place}")
        for run in runs:
            critical = 400.0 * (3 if run.candidate == "adapm" else 1)
            steps = (
                1e4
                * (1 + batch / critical)
                / batch
                * (1 + 0.01 * run.seed + 0.004 * ((run.seed * (1 + (run.candidate == "adapm")) + place) % 3))
            )
            curves[run.id] = ValidationCurve(steps=(0.0, steps), losses=(5.0, reach))
        found.append((experiment, runs))
    return found, curves


def test_experiments_of_several_batches_tell_each_candidates_critical_batch() -> None:
    experiments, curves = measured()
    found = critical_batches(experiments, lambda ids: {id: curves[id] for id in ids}, 3.0)
    assert found is not None and found.target_given
    adamw, adapm = found.rows
    assert adamw.is_baseline and adamw.to_baseline is None and [point.n for point in adamw.points] == [3] * 4
    assert adamw.critical_batch_tokens is not None and adapm.critical_batch_tokens is not None
    assert adamw.critical_batch_tokens.value == pytest.approx(400, rel=0.1)
    assert adapm.critical_batch_tokens.value == pytest.approx(1200, rel=0.1)
    assert adapm.to_baseline is not None and adapm.to_baseline.value == pytest.approx(3, rel=0.1)
    assert "It is another one than the baseline's" in adapm.verdict
    largest = adapm.points[-1].to_baseline
    assert largest is not None and largest.high is not None and largest.high < 0.5
    assert any("Learning rates fall" in note for note in found.notes)


def test_a_batch_of_which_a_run_did_not_get_there_is_left_out_and_said() -> None:
    experiments, curves = measured()
    lost = next(run.id for run in experiments[3][1] if run.candidate == "adapm")
    slow = curves | {lost: ValidationCurve(steps=(0.0, 100.0), losses=(5.0, 4.0))}
    found = critical_batches(experiments, lambda ids: {id: slow[id] for id in ids}, 3.0)
    assert found is not None
    adapm = found.rows[1]
    assert (len(adapm.points), adapm.critical_batch_tokens, adapm.to_baseline) == (3, None, None)
    assert adapm.verdict.startswith("No critical batch: 3 batches of use, 4 are needed. Not reached by every")
    highest = critical_batches(experiments, lambda ids: {id: curves[id] for id in ids})
    assert highest is not None and highest.target_loss == pytest.approx(2.902) and not highest.target_given


def test_one_batch_or_several_models_are_no_such_law() -> None:
    experiments, curves = measured()
    assert critical_batches(experiments[:3], lambda ids: curves) is None
    failed = [
        (experiment, tuple(run.model_copy(update={"result": None, "status": RunStatus.FAILED}) for run in runs))
        for experiment, runs in experiments
    ]
    assert critical_batches(failed, lambda ids: curves) is None


def test_two_experiments_with_one_batch_count_as_its_seeds() -> None:
    """Neither displaces the other: the batch's tokens are the mean over both."""
    experiments, curves = measured()
    once = critical_batches(experiments, lambda ids: {id: curves[id] for id in ids}, 3.0)
    again, runs = experiments[3]
    slower = [run.model_copy(update={"id": f"again-{run.id}"}) for run in runs]
    more = curves | {
        f"again-{run.id}": ValidationCurve(steps=(0.0, 4 * curves[run.id].steps[1]), losses=(5.0, 3.0)) for run in runs
    }
    twice = critical_batches([*experiments, (again, slower)], lambda ids: {id: more[id] for id in ids}, 3.0)
    assert once is not None and twice is not None
    before, after = (found.rows[0].points[3] for found in (once, twice))
    assert (before.n, after.n) == (3, 6)
    assert after.tokens == pytest.approx(2 * before.tokens)


def test_the_loss_that_all_reach_is_none_of_a_run_that_diverged() -> None:
    experiments, curves = measured()
    first, runs = experiments[0]
    ended = runs[0].result
    assert ended is not None
    lost = ended.model_copy(update={"verdict": Verdict.DIVERGED, "final_val_loss": 9.0})
    experiments[0] = first, (runs[0].model_copy(update={"result": lost}), *runs[1:])
    found = critical_batches(experiments, lambda ids: {id: curves[id] for id in ids})
    assert found is not None and found.target_loss == pytest.approx(2.902)


@pytest.mark.parametrize(("apart", "points"), [(0.04, 4), (0.06, 3)])
def test_a_batch_that_was_evaluated_too_seldom_to_tell_when_is_left_out_and_said(apart: float, points: int) -> None:
    """One of the largest batch's runs came down somewhere between two evaluations."""
    experiments, curves = measured()
    rare = next(run.id for run in experiments[3][1] if run.candidate == "adapm")
    end = curves[rare].steps[-1]
    seen = ValidationCurve(steps=(0.0, end * (1 - apart), end), losses=(5.0, 3.01, 2.99))
    found = critical_batches(experiments, lambda ids: {id: (curves | {rare: seen})[id] for id in ids}, 3.0)
    assert found is not None and len(found.rows[1].points) == points
    assert ("evaluated too seldom to tell when" in found.rows[1].verdict) == (points == 3)
