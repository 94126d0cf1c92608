"""Progress: counts, the verdict, and the way through a checkpoint."""

import math

import pytest

from worker.records.result import Verdict
from worker.training.progress import TIMES, TrainingProgress, finite_or_none


def progress(*losses: float, steps: int = 20, initial: float = 5.0) -> TrainingProgress:
    training = TrainingProgress(steps=steps)
    training.add_evaluation(initial)
    for loss in losses:
        training.add_step(loss, dict(zip(TIMES, (0.5, 0.01, 0.1, 0.2, 0.1), strict=True)))
    return training


def test_the_final_training_loss_is_the_mean_over_the_last_tenth_of_the_steps() -> None:
    """Of 20 steps, the last two; of fewer than ten, the last one; of none, nothing."""
    assert progress(*[9.0] * 18, 2.0, 3.0).final_train_loss() == 2.5
    assert progress(9.0, 4.0).final_train_loss() == 4.0
    assert progress().final_train_loss() is None


@pytest.mark.parametrize(
    ("final", "verdict", "reason"),
    [
        (4.0, Verdict.CONVERGED, "The validation loss went from 5.0000 to 4.0000 nats in 20 steps."),
        (5.0, Verdict.DIVERGED, "The validation loss did not fall: it went from 5.0000 to 5.0000 nats in 20 steps."),
        (math.nan, Verdict.DIVERGED, "The validation loss after step 20 is nan."),
    ],
)
def test_the_verdict_follows_from_the_validation_losses(final: float, verdict: Verdict, reason: str) -> None:
    """Below the start is converged; at it or above, or not a number, is diverged; each with a sentence."""
    training = progress(*[3.0] * 20)
    training.add_evaluation(final)

    assert training.verdict() == (verdict, reason)
    assert training.final_val_loss() == finite_or_none(final)
    assert training.is_finished()


def test_a_run_that_broke_off_has_no_final_validation_loss() -> None:
    """What ranks is taken after the last step of the budget only."""
    broken = progress(3.0)
    broken.add_evaluation(2.0)
    broken.fault = "At step 2 the training loss is nan."

    assert broken.is_finished()
    assert broken.final_val_loss() is None
    assert broken.verdict() == (Verdict.DIVERGED, "At step 2 the training loss is nan.")


def test_progress_survives_a_checkpoint_exactly() -> None:
    """Every count, loss and time returns to the bit."""
    before = progress(0.1, 1 / 3, 2.5)
    after = TrainingProgress(steps=20)

    after.load_state(before.state())

    assert after == before
    assert after.productive_seconds() == 1.5
