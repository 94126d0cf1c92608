"""A trainable of Ray Tune: it follows one trial's run in our store and reports it to Tune.

It trains nothing and holds no device: the queue places the run, and this looks at its row a few times a second. Told
again from the beginning, by a driver that was started anew, it reports the same points again, at once.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeVar

import numpy as np
import structlog
from ray import tune

from orchestrator.errors import StoreError
from orchestrator.store import series
from orchestrator.store.database import Database
from orchestrator.store.queue.trials import TrialState, read_state
from orchestrator.sweeps.trials import LOSS_IF_LOST
from worker.records.result import Verdict

log = structlog.get_logger(__name__)

POLL_SECONDS = 0.25
AWAY_SECONDS = 2.0
"""Pause before a database that is away is asked again."""

LOSS = "loss"
STEP = "step"
FAULTLESS = "faultless"

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class TuneReport:
    """A report to Tune."""

    step: int
    loss: float
    faultless: bool = True
    """False if the trial ended without saying anything of its hyperparameters: it failed, or was cancelled."""


def follow(config: dict[str, object], *, database_url: str, steps_total: int) -> None:
    """Report, as the trainable, the validation losses of the run that `config` names, until it has ended."""
    for report in reports(_database(database_url), str(config["run"]), steps_total):
        tune.report({LOSS: report.loss, STEP: report.step, FAULTLESS: report.faultless})


def reports(database: Database, run_id: str, steps_total: int) -> Iterator[TuneReport]:
    """Yield each validation loss once, as it comes; after the run has ended, one last word where its loss does not say
    it."""
    seen_version, last = -1, TuneReport(step=0, loss=LOSS_IF_LOST)
    while True:
        now = retry_while_away(partial(read_state, database, run_id))
        new = retry_while_away(partial(_losses, database, run_id, last.step)) if now.version != seen_version else []
        seen_version = now.version
        for last in new:
            yield last
        if now.has_ended():
            if (word := last_word(now, last, steps_total)) is not None:
                yield word
            return
        time.sleep(POLL_SECONDS)


def last_word(ended: TrialState, last: TuneReport, steps_total: int) -> TuneReport | None:
    """Return the last report to Tune of a run that ended; None if its last validation loss suffices."""
    match ended.verdict:
        case None:
            return TuneReport(step=max(last.step, 1), loss=last.loss, faultless=False)
        case Verdict.CONVERGED | Verdict.DIVERGED if ended.final_val_loss is not None:
            final = TuneReport(step=steps_total, loss=ended.final_val_loss)
            return None if final == last else final
        case Verdict.STOPPED_EARLY:
            return TuneReport(step=1, loss=LOSS_IF_LOST) if last.step == 0 else None
        case _:
            return TuneReport(step=max(last.step, 1), loss=LOSS_IF_LOST)


def _losses(database: Database, run_id: str, after_step: int) -> list[TuneReport]:
    """Return the validation losses behind a step; the one before training says nothing of any hyperparameter."""
    with database.reading() as connection:
        columns = series.read(connection, run_id, ("val_loss",), after_step)
    losses = columns.values["val_loss"]
    is_new = np.isfinite(losses) & (columns.step > after_step)
    pairs = zip(columns.step[is_new].tolist(), losses[is_new].tolist(), strict=True)
    return [TuneReport(step=int(step), loss=float(loss)) for step, loss in pairs if step > 0]


def retry_while_away(ask: Callable[[], Answer]) -> Answer:
    """Ask the store, and wait for it while it is away."""
    while True:
        try:
            return ask()
        except StoreError as error:
            log.warning("database unreachable, trying again", error=str(error))
            time.sleep(AWAY_SECONDS)


@cache
def _database(url: str) -> Database:
    """Return one pool of connections a process: Tune uses it for one trial after another."""
    return Database(url)
