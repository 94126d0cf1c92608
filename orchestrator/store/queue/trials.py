"""Trials: the runs that a sweep's driver adds one after another, each once however often it is asked for.

    add (sweep, number) ─► the run at that position: a new one, or the one that an earlier driver had added

The number is the idempotency key, and the run's position in the experiment: a driver that is killed after it has added
a trial, and comes back, finds that trial. What the store holds is the truth, and Tune is notified of it.
"""

from dataclasses import dataclass

import sqlalchemy as sa

from orchestrator.jobs import TERMINAL, ExperimentId, RunId, RunStatus
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.sweep import SweepSpec
from orchestrator.store.database import Database
from orchestrator.store.notifications import count_change
from orchestrator.store.queue import growth
from orchestrator.store.queue.submission import insert_runs, run_limits
from orchestrator.store.run_rows import lock_experiment, lock_ids
from orchestrator.store.tables import experiments, results, runs
from worker.records.result import Verdict


@dataclass(frozen=True, kw_only=True)
class TrialState:
    """The state of a trial for its follower, which reads it again and again: cheap to read."""

    status: RunStatus
    version: int
    """Grows with every change; as long as it stays, nothing else has changed."""
    verdict: Verdict | None
    final_val_loss: float | None

    def has_ended(self) -> bool:
        """Return whether it can change no more by itself."""
        return self.status in TERMINAL


def live_sweeps(database: Database) -> tuple[ExperimentId, ...]:
    """Return the sweeps that may still get trials, paused ones last, the oldest first."""
    query = sa.select(experiments.c.id).where(growth.HAS_DRIVER, experiments.c.growing)
    with database.reading() as connection:
        return tuple(
            ExperimentId(id)
            for id in connection.execute(query.order_by(experiments.c.paused, experiments.c.number)).scalars()
        )


def add(database: Database, sweep_id: str, spec: SweepSpec, number: int, trial: PlannedRun) -> RunId | None:
    """Queue a trial, or find it where it is there already; None if the sweep takes no more (it was cancelled)."""
    with database.writing() as connection:
        sweep = lock_experiment(connection, sweep_id)
        conditions = runs.c.experiment_number == sweep.number, runs.c.position == number
        run_id = connection.execute(sa.select(runs.c.id).where(*conditions)).scalar_one_or_none()
        if run_id is not None or not sweep.growing:
            return None if run_id is None else RunId(run_id)
        now = database.read_clock(connection)
        limits, id = run_limits(spec, sweep.created_at), ExperimentId(sweep.id)
        insert_runs(connection, id, sweep.number, spec, (trial,), now, limits=limits, first=number, paused=sweep.paused)
        # From version 1 on: the sum over the runs is the experiment's version, and a page has to notice the new one.
        new = {"version": 1, "stop_early": False if spec.may_stop_early() else None}
        connection.execute(sa.update(runs).where(*conditions).values(new))
        count_change(connection)
        return RunId(f"{sweep_id}-{number:04d}")


def ask_to_stop(database: Database, run_id: str) -> bool:
    """Let a trial finish with what there is, as soon as its worker hears of it; False if it has ended, or may not.

    It stays as it is for everybody else: what it has measured becomes its result, with the verdict `stopped_early`.
    """
    with database.writing() as connection:
        locked_runs, _ = lock_ids(database, connection, [run_id])
        run = locked_runs.get(run_id)
        if run is None or run.status in TERMINAL or run.stop_early is None:
            return False
        stop = sa.update(runs).where(runs.c.id == run_id)
        connection.execute(stop.values(stop_early=True, version=runs.c.version + 1))
        count_change(connection)
        return True


def read_state(database: Database, run_id: str) -> TrialState:
    """Look at a trial."""
    columns = runs.c.status, runs.c.version, results.c.verdict, results.c.final_val_loss
    joined = runs.outerjoin(results, results.c.run_id == runs.c.id)
    query = sa.select(*columns).select_from(joined).where(runs.c.id == run_id)
    with database.reading() as connection:
        row = connection.execute(query).one()
    return TrialState(
        status=RunStatus(row.status),
        version=row.version,
        verdict=None if row.verdict is None else Verdict(row.verdict),
        final_val_loss=row.final_val_loss,
    )


def count_live(database: Database, sweep_id: str) -> int:
    """Return the number of trials that have not ended."""
    query = sa.select(sa.func.count()).where(runs.c.experiment_id == sweep_id, runs.c.ended_at.is_(None))
    with database.reading() as connection:
        return int(connection.execute(query).scalar_one())


def close(database: Database, sweep_id: str) -> None:
    """Close the sweep: no trial follows any more; may be repeated."""
    with database.writing() as connection:
        growth.close(connection, ExperimentId(sweep_id), database.read_clock(connection))
