"""Deletion: an experiment is marked, can be restored for a while, and is then removed for good, some runs at a time.

    delete ─► hidden everywhere, all rows there ─► restore                    (until `undo_until`)
                                          └──────► claimed ─► runs ─► its own row     (killed: taken up again)

What is claimed cannot be restored any more, so that nothing comes back without its files.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from orchestrator.errors import ConflictError
from orchestrator.jobs import TERMINAL, ExperimentId
from orchestrator.store.database import DAY_SECONDS, Database, insert
from orchestrator.store.ids import validate_id
from orchestrator.store.notifications import count_change
from orchestrator.store.run_rows import lock_experiment
from orchestrator.store.tables import (
    attempts,
    audit,
    checkpoints,
    chunks,
    events,
    experiments,
    is_deleted,
    observations,
    outbox,
    removed,
    results,
    run_specs,
    runs,
    samples,
    webhook_messages,
    webhooks,
)
from worker.words import pluralize

ADDRESS = "housekeeping"
"""The author of final removals in the audit log."""
RUN_TABLES = (outbox, chunks, observations, samples, checkpoints, results, events, run_specs, attempts)
"""The tables that refer to runs, and to attempts before these."""


def delete(database: Database, connection: Connection, experiment_id: str, *, undo_seconds: float) -> None:
    """Mark an experiment as deleted; one that is already stays as it is. Until the transaction ends it is locked.

    Raises `NotFoundError`, and `ConflictError` while a run of it has not ended, or more may be added.
    """
    in_experiment = runs.c.experiment_number.in_(
        sa.select(experiments.c.number).where(experiments.c.id == validate_id(experiment_id))
    )
    # Runs first, then the experiment, as everybody locks them: whoever retries a run has done so before, or finds
    # the experiment deleted after.
    locking = sa.select(runs.c.status).where(in_experiment).order_by(runs.c.id).with_for_update()
    active = sum(status not in TERMINAL for status in connection.execute(locking).scalars())
    row = lock_experiment(connection, experiment_id)
    if row.deleted_at is not None:
        return
    if active or row.growing:
        going_on = f"{pluralize(active, 'run')} of experiment {row.id} {'have' if active > 1 else 'has'} not ended"
        trouble = going_on if active else f"experiment {row.id} may still get runs"
        raise ConflictError(f"{trouble}; cancel it first (`adapm-bench cancel {row.id}`)")
    now = database.read_clock(connection)
    _mark(connection, row.number, deleted_at=now, undo_until=now + undo_seconds)


def restore(database: Database, connection: Connection, experiment_id: str) -> None:
    """Undo a deletion; one that is not deleted stays as it is. Raises `NotFoundError`, and `ConflictError` if the
    time to undo has passed."""
    row = lock_experiment(connection, experiment_id)
    if row.deleted_at is None:
        return
    if row.undo_until is None or row.undo_until <= database.read_clock(connection):
        raise ConflictError(f"the time to restore experiment {row.id} has passed; it is being removed for good")
    _mark(connection, row.number, deleted_at=None, undo_until=None)


def claim_removals(database: Database) -> tuple[ExperimentId, ...]:
    """Return the experiments that are to be removed for good: from here on none of them can be restored.

    One whose device-hours still count for a key's quota stays for that long: deleting gives nothing back.
    """
    now = database.now()
    counted = sa.exists().where(
        attempts.c.run_id == runs.c.id,
        runs.c.experiment_number == experiments.c.number,
        attempts.c.key_id.is_not(None),
        attempts.c.ended_at > now - DAY_SECONDS,
    )
    due = is_deleted & (experiments.c.undo_until <= now) & ~counted
    ready = is_deleted & experiments.c.undo_until.is_(None)
    query = sa.select(experiments.c.id).where(due | ready).order_by(experiments.c.number)
    with database.reading() as connection:  # a look that takes no lock, since most looks find nothing
        if connection.execute(query.limit(1)).first() is None:
            return ()
    with database.writing() as connection:
        connection.execute(sa.update(experiments).where(due).values(undo_until=None))
        claimed = connection.execute(query.where(ready)).scalars()
        return tuple(ExperimentId(id) for id in claimed)


def runs_left(database: Database, experiment_id: str, limit: int) -> tuple[str, ...]:
    """Return the first runs of an experiment that are still there."""
    query = sa.select(runs.c.id).where(runs.c.experiment_id == experiment_id).order_by(runs.c.id).limit(limit)
    with database.reading() as connection:
        return tuple(connection.execute(query).scalars())


def has_begun(database: Database, experiment_id: str) -> bool:
    """Return whether an attempt of an experiment's runs has begun: from then on there may be files of it."""
    in_experiment = attempts.c.run_id.in_(sa.select(runs.c.id).where(runs.c.experiment_id == experiment_id))
    query = sa.select(attempts.c.run_id).where(in_experiment, attempts.c.started_at.is_not(None)).limit(1)
    with database.reading() as connection:
        return connection.execute(query).first() is not None


def remove_runs(database: Database, run_ids: Sequence[str]) -> None:
    """Remove runs with everything that is known of them; what counters count of them is kept as sums."""
    with database.writing() as connection:
        query = sa.select(runs.c.id).where(runs.c.id.in_(run_ids)).order_by(runs.c.id).with_for_update()
        present = connection.execute(query).scalars().all()  # another process may have been quicker
        if not present:
            return
        for subject, (count, seconds) in service_counts(connection, present).items():
            sums_so_far = insert(connection, removed).values(what=subject, count=count, seconds=seconds)
            new_sums = {name: removed.c[name] + sums_so_far.excluded[name] for name in ("count", "seconds")}
            connection.execute(sums_so_far.on_conflict_do_update(index_elements=["what"], set_=new_sums))
        for table in RUN_TABLES:
            connection.execute(sa.delete(table).where(table.c.run_id.in_(present)))
        connection.execute(sa.delete(runs).where(runs.c.id.in_(present)))


def remove_experiment(database: Database, experiment_id: str) -> bool:
    """Remove an experiment that has no runs any more, and write to the audit log; False if another process has."""
    with database.writing() as connection:
        query = sa.select(experiments.c.number).where(experiments.c.id == experiment_id).with_for_update()
        number = connection.execute(query).scalar_one_or_none()
        if number is None:
            return False
        connection.execute(sa.delete(outbox).where(outbox.c.experiment_id == experiment_id))
        of_it = sa.select(webhooks.c.id).where(webhooks.c.experiment_id == experiment_id)
        messages = (webhook_messages.c.experiment_id == experiment_id) | webhook_messages.c.webhook_id.in_(of_it)
        connection.execute(sa.delete(webhook_messages).where(messages))
        connection.execute(sa.delete(webhooks).where(webhooks.c.experiment_id == experiment_id))
        connection.execute(sa.delete(experiments).where(experiments.c.number == number))
        line = {"at": database.read_clock(connection), "address": ADDRESS, "action": "remove a deleted experiment"}
        connection.execute(sa.insert(audit), {**line, "target": f"/v1/experiments/{experiment_id}", "outcome": 200})
        return True


def service_counts(connection: Connection, run_ids: Sequence[str] | None = None) -> dict[str, tuple[int, float]]:
    """Return count and seconds of `attempts <outcome>`, `device`, `claim` (from a submission to the first lease) and
    `dispatch` (from a lease to the worker's hello): of these runs, or of all runs, removed ones included."""
    of_attempts: sa.ColumnElement[bool] = sa.true()
    of_runs: sa.ColumnElement[bool] = sa.true()
    totals: dict[str, tuple[int, float]] = {}
    if run_ids is None:
        rows = connection.execute(sa.select(removed.c.what, removed.c.count, removed.c.seconds))
        totals = {subject: (int(count), float(seconds)) for subject, count, seconds in rows}
    else:
        of_attempts, of_runs = attempts.c.run_id.in_(run_ids), runs.c.id.in_(run_ids)

    def add(subject: str, count: int, seconds: float | None) -> None:
        total = totals.get(subject, (0, 0.0))
        totals[subject] = total[0] + int(count), total[1] + float(seconds or 0.0)

    by_outcome = sa.select(attempts.c.outcome, sa.func.count()).where(of_attempts, attempts.c.outcome.is_not(None))
    for outcome, count in connection.execute(by_outcome.group_by(attempts.c.outcome)):
        add(f"attempts {outcome.value}", count, 0.0)
    held = sa.select(sa.func.sum(runs.c.device_seconds)).where(of_runs)
    add("device", 0, connection.execute(held).scalar_one())
    joined = attempts.join(runs, runs.c.id == attempts.c.run_id)
    for subject, seconds, condition in (
        ("claim", attempts.c.leased_at - runs.c.created_at, attempts.c.attempt == 1),
        ("dispatch", attempts.c.started_at - attempts.c.leased_at, attempts.c.started_at.is_not(None)),
    ):
        query = sa.select(sa.func.count(), sa.func.sum(seconds)).select_from(joined).where(of_attempts, condition)
        add(subject, *connection.execute(query).one())
    return totals


def _mark(connection: Connection, number: int, *, deleted_at: float | None, undo_until: float | None) -> None:
    statement = sa.update(experiments).where(experiments.c.number == number)
    revision = experiments.c.revision + 1
    connection.execute(statement.values(deleted_at=deleted_at, undo_until=undo_until, revision=revision))
    count_change(connection)
