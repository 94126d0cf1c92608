"""Growth: the runs that a tuned comparison gets while it goes, each once, in the transaction that ends a run.

    a run ends ─► its experiment's row is locked ─► what follows from its candidate's runs (`tuning.py`) is queued

Of two processes that end the last two runs of a candidate at once, the second one waits at the experiment's row and
then sees both ended; one that is killed has ended no run and added none. Locks are taken in one order: runs, then
the experiment.
"""

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.errors import NotFoundError
from orchestrator.experiments import Candidate, ComparisonSpec, PlannedRun, planned_run
from orchestrator.jobs import TERMINAL, ExperimentId
from orchestrator.store.moves import known_id
from orchestrator.store.submission import insert_runs
from orchestrator.store.tables import experiments, results, runs
from orchestrator.tuning import Trial, follow_up, settled
from worker.record import Verdict


def grow(connection: Connection, ended_in: Iterable[ExperimentId], now: float) -> None:
    """Queue the runs that follow in these experiments, whose ended runs are locked by this transaction."""
    query = sa.select(experiments.c.id, experiments.c.number, experiments.c.spec)
    growing: sa.Select[Any] = query.where(experiments.c.id.in_(sorted(ended_in)), experiments.c.growing).order_by(
        experiments.c.number
    )
    # NO KEY: other transactions refer to the row by foreign keys meanwhile, and must not wait nor deadlock for that.
    for row in connection.execute(growing.with_for_update(key_share=True)).all():
        _grow_one(connection, row, now)


def close(connection: Connection, experiment_id: str) -> None:
    """Let nothing be added from here on. Raises `NotFoundError`.

    To be committed before the runs are cancelled: then none can slip in behind the ones that were found.
    """
    mine = experiments.c.id == known_id(experiment_id)
    if connection.execute(sa.update(experiments).where(mine).values(growing=False)).rowcount == 0:
        raise NotFoundError(f"there is no experiment {experiment_id!r}")


def _grow_one(connection: Connection, row: sa.Row[Any], now: float) -> None:
    spec = ComparisonSpec.model_validate_json(row.spec)
    trials = _trials(connection, row.number)
    planned: list[PlannedRun] = []
    growing = False
    for candidate in spec.candidates:
        mine = trials.get(candidate.name(), [])
        following = _following(spec, candidate, mine)
        planned += following
        growing |= not settled(spec, [*mine, *(_planned_trial(each) for each in following)])
    if planned:
        first = sum(len(each) for each in trials.values())
        insert_runs(connection, ExperimentId(row.id), row.number, tuple(planned), now, rank=-spec.priority, first=first)
    if not growing:
        connection.execute(sa.update(experiments).where(experiments.c.id == row.id).values(growing=False))


def _trials(connection: Connection, number: int) -> dict[str, list[Trial]]:
    """All runs of the experiment by candidate, as of now: asked after the lock, so that no end is missed."""
    query = (
        sa.select(runs.c.candidate, runs.c.lr, runs.c.seed, runs.c.status, results.c.verdict, results.c.final_val_loss)
        .select_from(runs.outerjoin(results, results.c.run_id == runs.c.id))
        .where(runs.c.experiment_number == number)
    )
    found: dict[str, list[Trial]] = {}
    for row in connection.execute(query):
        verdict = None if row.verdict is None else Verdict(row.verdict)
        trial = Trial(lr=row.lr, seed=row.seed, ended=row.status in TERMINAL, verdict=verdict, loss=row.final_val_loss)
        found.setdefault(row.candidate, []).append(trial)
    return found


def _following(spec: ComparisonSpec, candidate: Candidate, trials: list[Trial]) -> list[PlannedRun]:
    return [planned_run(spec, candidate, lr, seed) for lr, seed in follow_up(spec, candidate, trials)]


def _planned_trial(run: PlannedRun) -> Trial:
    return Trial(lr=run.spec.optimizer.lr, seed=run.spec.seed, ended=False, verdict=None, loss=None)
