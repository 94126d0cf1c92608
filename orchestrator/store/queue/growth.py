"""Growth: the runs that an experiment gets while it goes, each once.

    a run ends ─► its experiment notes it (in that transaction, and nothing more)
    `orchestrator/services/follow_ups.py` ─► reads the experiments with ends since the last look ─► asks their tuners
                                             for the next runs ─► `add_runs`, if no other run has ended meanwhile

The column `news` grows, in absolute value, whenever runs of the experiment end; it is negative once they are handled.
Of two processes that handle the same ends one adds runs, however late the other one comes; a killed one has added none,
and the ends remain.
Locks are taken in one order: runs, then the experiment.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.errors import DamagedError, NotFoundError
from orchestrator.jobs import ExperimentId, RunAction
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.registry import KINDS, ExperimentSpec
from orchestrator.store import integrity
from orchestrator.store.ids import validate_id
from orchestrator.store.notifications import notify_closed
from orchestrator.store.queue.submission import RunLimits, insert_runs, run_limits
from orchestrator.store.run_rows import RunRow
from orchestrator.store.tables import experiments, runs

HANDLED = -sa.func.abs(experiments.c.news)
HAS_DRIVER = experiments.c.kind.in_([name for name, kind in KINDS.items() if kind.has_driver])
"""Whether it is a sweep, whose runs its driver adds (`trials.py`), not `add_runs`."""


@dataclass(frozen=True, kw_only=True)
class News:
    """An experiment with ends of runs since the last look."""

    experiment_id: ExperimentId
    count: int


def note_ended(connection: Connection, ended: Iterable[RunRow]) -> None:
    """Note in their experiments that these runs, locked by this transaction, have ended."""
    connection.execute(_NOTE, {"ids": sorted({run.experiment_id for run in ended})})


def read_news(connection: Connection) -> tuple[News, ...]:
    """Return the experiments with ends since the last look, the oldest first."""
    query = sa.select(experiments.c.id, experiments.c.news).where(experiments.c.news > 0)
    rows = connection.execute(query.order_by(experiments.c.number))
    return tuple(News(experiment_id=ExperimentId(row.id), count=row.news) for row in rows)


def add_runs(
    connection: Connection,
    news: News,
    spec: ExperimentSpec,
    planned: Sequence[PlannedRun],
    now: float,
    *,
    goes_on: bool,
) -> bool:
    """Queue the planned runs and mark the ends as handled; return False, and do nothing, if another run has ended
    meanwhile or the experiment was cancelled. Unless it goes on, close the experiment, which notifies its watchers."""
    statement = sa.update(experiments).where(experiments.c.id == news.experiment_id, experiments.c.news == news.count)
    if connection.execute(statement.values(news=HANDLED)).rowcount != 1:
        return False
    columns = [experiments.c[name] for name in ("number", "paused", "created_at", "growing")]
    row = connection.execute(sa.select(*columns).where(experiments.c.id == news.experiment_id)).one()
    if not row.growing:
        return False
    if planned:
        last = sa.select(sa.func.max(runs.c.position)).where(runs.c.experiment_number == row.number)
        first = int(connection.execute(last).scalar_one()) + 1
        limits = _limits_of_follow_ups(connection, spec, row, now)
        id = news.experiment_id
        insert_runs(connection, id, row.number, spec, planned, now, limits=limits, first=first, paused=row.paused)
    if not goes_on:
        close(connection, news.experiment_id, now)
    return True


def close(connection: Connection, experiment_id: ExperimentId, now: float) -> None:
    """Let an experiment get no more runs; its revision notifies watchers, because no run need change with it."""
    statement = sa.update(experiments).where(experiments.c.id == experiment_id)
    connection.execute(statement.values(growing=False, paused=False, news=HANDLED, revision=experiments.c.revision + 1))
    notify_closed(connection, experiment_id, now)


def reopen(connection: Connection, revived_in: Iterable[ExperimentId], now: float) -> None:
    """Let experiments that were closed go on: some of their runs, locked by this transaction, are retried."""
    names = ("id", "number", "spec_hash", "created_at")
    query = sa.select(experiments.c.spec, *(experiments.c[name] for name in names)).where(
        experiments.c.id.in_(sorted(revived_in)), ~experiments.c.growing
    )
    # NO KEY: other transactions refer to the row by foreign keys meanwhile, and must not wait nor deadlock for that.
    for row in connection.execute(query.order_by(experiments.c.number).with_for_update(key_share=True)).all():
        with suppress(DamagedError):
            spec = integrity.experiment_spec(row.spec, row.spec_hash)
            if spec.grows() and (not spec.has_driver or _may_get_trials(connection, row, spec, now)):
                connection.execute(sa.update(experiments).where(experiments.c.id == row.id).values(growing=True))


def _may_get_trials(connection: Connection, row: sa.Row[Any], spec: ExperimentSpec, now: float) -> bool:
    """Return whether a sweep has trials left, and time."""
    deadline_at = run_limits(spec, row.created_at)["deadline_at"]
    count = sa.select(sa.func.count()).where(runs.c.experiment_number == row.number)
    return (deadline_at is None or now < deadline_at) and connection.execute(count).scalar_one() < spec.run_count()


def steer_growth(connection: Connection, experiment_id: str, action: RunAction, now: float) -> None:
    """Let a cancel add nothing from here on, and a pause wait for a resume. Raises `NotFoundError`.

    To be committed before the action on the runs: then none can slip in behind the ones that were found.
    """
    condition = experiments.c.id == validate_id(experiment_id)
    grew = connection.execute(sa.select(experiments.c.growing).where(condition)).scalar_one_or_none()
    if grew is None:
        raise NotFoundError(f"there is no experiment {experiment_id!r}")
    is_over = bool(grew) and action is RunAction.CANCEL
    revision = experiments.c.revision + (1 if is_over else 0)  # a cancelled sweep may have no run that changes
    connection.execute(sa.update(experiments).where(condition).values({**GROWTH_AFTER[action], "revision": revision}))
    if is_over:
        notify_closed(connection, ExperimentId(experiment_id), now)


GROWTH_AFTER: dict[RunAction, dict[str, object]] = {
    RunAction.CANCEL: {"growing": False, "paused": False, "news": HANDLED},
    RunAction.PAUSE: {"paused": experiments.c.growing},
    RunAction.RESUME: {"paused": False},
}
"""The consequences of an action on a whole experiment for its future runs."""


def _limits_of_follow_ups(connection: Connection, spec: ExperimentSpec, row: sa.Row[Any], now: float) -> RunLimits:
    """Return the limits of the follow-up runs; without a deadline that is over if a user's retry has lifted it from a
    run."""
    limits = run_limits(spec, row.created_at)
    if (deadline_at := limits["deadline_at"]) is None or deadline_at > now:
        return limits
    lifted = sa.select(runs.c.id).where(runs.c.experiment_number == row.number, runs.c.deadline_at.is_(None)).limit(1)
    return limits if connection.execute(lifted).first() is None else {**limits, "deadline_at": None}


# The statement of the hot path, built once.

_NOTE = (
    sa.update(experiments)
    .where(experiments.c.id.in_(sa.bindparam("ids", expanding=True)), experiments.c.growing & ~HAS_DRIVER)
    .values(news=sa.func.abs(experiments.c.news) + 1)
)
