"""Growth: the runs that an experiment gets while it goes, each once, in the transaction that ends a run.

    a run ends ─► its experiment's row is locked ─► what its kind says that follows is queued
                                                 ├► of a sequential comparison the next seeds of who is undecided
                                                 └► of a campaign's try its verdict, or its next workload

Of two processes that end the last two runs of a candidate at once, the second one waits at the experiment's row and
then sees both ended; one that is killed has ended no run and added none. Locks are taken in one order: runs, then
the experiment.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.analysis.comparison import added_runs
from orchestrator.errors import DamagedError, NotFoundError
from orchestrator.jobs import TERMINAL, ExperimentId, RunAction, RunId
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.kinds.tuning import TuningGroup, TuningRun
from orchestrator.records import RunFilter
from orchestrator.store import integrity, reads
from orchestrator.store.ids import validate_id
from orchestrator.store.notifications import tell_closed
from orchestrator.store.queue import campaigns
from orchestrator.store.queue.submission import RunLimits, insert_runs, run_limits
from orchestrator.store.queue.trials import HAS_DRIVER
from orchestrator.store.run_rows import RunRow
from orchestrator.store.tables import experiments, held_out_seen, is_in_sight, results, runs
from worker.records.result import Verdict


def grow(connection: Connection, ended: Sequence[RunRow], now: float) -> None:
    """Queue what follows for the candidates whose runs these are; they have just ended, locked by this transaction.

    Other candidates are left alone: of a cancelled tuning only those go on whose runs are tried again.
    """
    for row in _lock_experiments(connection, {run.experiment_id for run in ended}, experiments.c.growing & ~HAS_DRIVER):
        with held_out_seen():
            _follow_up(connection, row, [run.id for run in ended if run.experiment_id == row.id], now)


def reopen(connection: Connection, revived_in: Iterable[ExperimentId], now: float) -> None:
    """Let experiments that were closed go on: some of their runs, locked by this transaction, are retried."""
    for row in _lock_experiments(connection, revived_in, ~experiments.c.growing):
        with suppress(DamagedError):
            spec = integrity.experiment_spec(row.spec, row.spec_hash)
            if spec.grows() and _may_still_grow(connection, row, spec, now):
                connection.execute(sa.update(experiments).where(experiments.c.id == row.id).values(growing=True))


def steer_growth(connection: Connection, experiment_id: str, action: RunAction, now: float) -> None:
    """A cancel lets nothing be added from here on, a pause lets it wait for a resume. Raises `NotFoundError`.

    To be committed before the action on the runs: then none can slip in behind the ones that were found.
    """
    mine = experiments.c.id == validate_id(experiment_id)
    grew = connection.execute(sa.select(experiments.c.growing).where(mine, is_in_sight)).scalar_one_or_none()
    if grew is None:
        raise NotFoundError(f"there is no experiment {experiment_id!r}")
    over = bool(grew) and action is RunAction.CANCEL
    revision = experiments.c.revision + (1 if over else 0)  # a cancelled sweep may have no run that changes
    connection.execute(sa.update(experiments).where(mine).values({**GROWTH_AFTER[action], "revision": revision}))
    if over:
        tell_closed(connection, ExperimentId(experiment_id), now)


GROUP = (runs.c.candidate, runs.c.model, runs.c.steps_total)
"""Whose runs are tuned together, as `TuningGroup` has it."""
GROWTH_AFTER: dict[RunAction, dict[str, object]] = {
    RunAction.CANCEL: {"growing": False, "paused": False},
    RunAction.PAUSE: {"paused": experiments.c.growing},
    RunAction.RESUME: {"paused": False},
}
"""What an action on a whole experiment means for the runs that it has not got yet."""


def _lock_experiments(
    connection: Connection, ids: Iterable[ExperimentId], condition: sa.ColumnElement[bool]
) -> Sequence[sa.Row[Any]]:
    """Those of the experiments for which the condition holds, locked until the transaction ends."""
    query: sa.Select[Any] = sa.select(
        experiments.c.spec,
        *[experiments.c[name] for name in ("id", "number", "spec_hash", "paused", "created_at", "trace_parent")],
    )
    found = query.where(experiments.c.id.in_(sorted(ids)), condition).order_by(experiments.c.number)
    # NO KEY: other transactions refer to the row by foreign keys meanwhile, and must not wait nor deadlock for that.
    return connection.execute(found.with_for_update(key_share=True)).all()


def _follow_up(connection: Connection, row: sa.Row[Any], ended: Collection[RunId], now: float) -> None:
    try:
        spec = integrity.experiment_spec(row.spec, row.spec_hash)
    except DamagedError:  # the end of a run must be taken down all the same; what would follow, nobody knows any more
        connection.execute(sa.update(experiments).where(experiments.c.id == row.id).values(growing=False))
        return
    groups = _tuning_groups(connection, row.number, ended)
    planned = [run for group, known in groups.items() for run in spec.follow_up_runs(group, known)]
    _queue_runs(connection, row, spec, planned, ended, now)
    if spec.adds_seeds():
        _queue_runs(connection, row, spec, _next_seeds(connection, row, spec), ended, now)
    if isinstance(spec, ComparisonSpec) and spec.tries_improvement():
        with suppress(DamagedError):  # the end of a run must be taken down whatever of its campaign can be read
            campaigns.follow_try(connection, row.number, now)
    if not _may_still_grow(connection, row, spec, now):
        connection.execute(sa.update(experiments).where(experiments.c.id == row.id).values(growing=False))


def _next_seeds(connection: Connection, row: sa.Row[Any], spec: ExperimentSpec) -> tuple[PlannedRun, ...]:
    """What a look adds, from all runs as of now; nothing before any is judged."""
    judged = sa.select(runs.c.id).where(runs.c.experiment_number == row.number, runs.c.seed.in_(spec.seeds)).limit(1)
    if connection.execute(judged).first() is None:
        return ()
    of_all = reads.run_page(connection, where=RunFilter(experiment_id=row.id), sort=None, limit=None, after=None)
    return added_runs(reads.experiment(connection, row.id), of_all)


def _queue_runs(
    connection: Connection,
    row: sa.Row[Any],
    spec: ExperimentSpec,
    planned: Sequence[PlannedRun],
    ended: Collection[RunId],
    now: float,
) -> None:
    if planned:
        last = sa.select(sa.func.max(runs.c.position)).where(runs.c.experiment_number == row.number)
        first = int(connection.execute(last).scalar_one()) + 1
        limits = _limits_of_follow_ups(connection, spec, row.created_at, ended, now)
        insert_runs(connection, row, spec, planned, now, first=first, limits=limits)


def _limits_of_follow_ups(
    connection: Connection, spec: ExperimentSpec, submitted_at: float, ended: Collection[RunId], now: float
) -> RunLimits:
    """What limits the runs that follow; no deadline that is over where a user's retry has lifted it from these."""
    limits = run_limits(spec, submitted_at)
    if limits["deadline_at"] is None or limits["deadline_at"] > now:
        return limits
    still_limited = sa.select(runs.c.id).where(runs.c.id.in_(ended), runs.c.deadline_at.is_not(None)).limit(1)
    if connection.execute(still_limited).first() is not None:
        return limits
    return {**limits, "deadline_at": None}


def _tuning_groups(connection: Connection, number: int, ended: Collection[RunId]) -> dict[TuningGroup, list[TuningRun]]:
    """All runs of the groups of these runs, as of now: asked after the lock, so that no end is missed."""
    concerned = sa.select(*GROUP).where(runs.c.id.in_(ended))
    query = (
        sa.select(*GROUP, runs.c.lr, runs.c.seed, runs.c.status, results.c.verdict, results.c.final_val_loss)
        .select_from(runs.outerjoin(results, results.c.run_id == runs.c.id))
        .where(runs.c.experiment_number == number, sa.tuple_(*GROUP).in_(concerned))
        .order_by(runs.c.position)
    )
    found: dict[TuningGroup, list[TuningRun]] = {}
    for row in connection.execute(query):
        verdict = None if row.verdict is None else Verdict(row.verdict)
        run = TuningRun(
            lr=row.lr, seed=row.seed, ended=row.status in TERMINAL, verdict=verdict, loss=row.final_val_loss
        )
        group = TuningGroup(candidate=row.candidate, model=row.model, steps=row.steps_total)
        found.setdefault(group, []).append(run)
    return found


def _may_still_grow(connection: Connection, row: sa.Row[Any], spec: ExperimentSpec, now: float) -> bool:
    """Whether anything can follow by itself: a run of phase 1 has not ended, and its group has no phase 2 yet; where
    seeds are added, any run has not ended; a sweep's driver may add trials until its deadline.

    A group whose runs have all ended gets more only in the transaction that ended the last of them.
    """
    mine = runs.c.experiment_number == row.number
    if spec.has_driver:
        deadline_at = run_limits(spec, row.created_at)["deadline_at"]
        count = connection.execute(sa.select(sa.func.count()).where(mine)).scalar_one()
        return (deadline_at is None or now < deadline_at) and count < spec.run_count()
    if spec.adds_seeds():
        query = sa.select(runs.c.id).where(mine, runs.c.status.not_in(TERMINAL)).limit(1)
        return connection.execute(query).first() is not None
    in_phase_two = runs.c.seed.in_(spec.seeds)
    waiting = mine & ~in_phase_two & runs.c.status.not_in(TERMINAL)
    done = sa.select(*GROUP).where(mine, in_phase_two)
    query = sa.select(runs.c.id).where(waiting, sa.tuple_(*GROUP).not_in(done)).limit(1)
    return connection.execute(query).first() is not None
