"""The read side: experiments, runs, attempts and events as the records that users see. Nothing here writes."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar, Unpack

import sqlalchemy as sa
from pydantic import BaseModel
from sqlalchemy.engine import Connection

from orchestrator.annotations import Note
from orchestrator.errors import DamagedError, DeletedError, NotFoundError
from orchestrator.jobs import LIVE, TERMINAL, RunStatus
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.records import (
    AnyExperiment,
    DamagedExperiment,
    ExperimentRecord,
    Progress,
    RunFilter,
    RunRecord,
    StateCounts,
)
from orchestrator.store import annotations, integrity
from orchestrator.store.ids import experiment_not_found, run_not_found, validate_id
from orchestrator.store.tables import (
    change_counters,
    experiments,
    is_deleted,
    is_kept,
    results,
    run_specs,
    runs,
)
from worker.records.result import Verdict
from worker.schema import trust_stored_names

Found = TypeVar("Found")
Record = TypeVar("Record", bound=BaseModel)
RUN_COLUMNS = tuple(runs.c[name] for name in RunRecord.model_fields if name in runs.c)


def experiment(connection: Connection, experiment_id: str) -> ExperimentRecord:
    """Return an experiment. Raises `NotFoundError`, `DeletedError`, and `DamagedError` if its specification cannot
    be read."""
    return _require_intact(any_experiment(connection, experiment_id))


def any_experiment(connection: Connection, experiment_id: str, *, deleted_too: bool = False) -> AnyExperiment:
    """Return an experiment, damaged or not. Raises `NotFoundError`, and `DeletedError` for a deleted one unless those
    are wanted, too."""
    row = connection.execute(_EXPERIMENT, {"this": validate_id(experiment_id)}).one_or_none()
    if row is None:
        raise experiment_not_found(connection, experiment_id)
    if row.deleted_at is not None and not deleted_too:
        raise deleted_error(row.id, row.undo_until)
    return _experiment_records(connection, [row])[0]


def experiment_of_key(connection: Connection, key: str) -> ExperimentRecord | None:
    """Return the newest experiment of that idempotency key, or of one that goes on with `-` behind it."""
    column = experiments.c.idempotency_key
    has_key = (column == key) | column.startswith(f"{key}-", autoescape=True)
    query = _EXPERIMENTS.where(has_key, ~is_deleted).order_by(experiments.c.number.desc())
    row = connection.execute(query).first()
    return None if row is None else _require_intact(_experiment_records(connection, [row])[0])


def clone_family(connection: Connection, experiment_id: str, key: str | None) -> tuple[ExperimentSpec, ...]:
    """Return the specifications, as far as they can be read, of the experiment, of what it was cloned from and of all
    clones of these, deleted ones too. If there is an experiment of this idempotency key, as they were when it was
    submitted: whoever asks again gets the same answer."""
    clone, source = experiments.c.id, experiments.c.cloned_from
    is_clone: sa.ColumnElement[bool] = source.is_not(None)
    if key is not None:
        newest_number = sa.select(experiments.c.number).where(experiments.c.idempotency_key == key).scalar_subquery()
        is_clone &= experiments.c.number < sa.func.coalesce(newest_number, experiments.c.number + 1)
    both_ways = sa.union_all(
        sa.select(clone.label("one"), source.label("other")).where(is_clone),
        sa.select(source.label("one"), clone.label("other")).where(is_clone),
    ).subquery()
    family = sa.select(sa.literal(experiment_id, sa.Text).label("id")).cte(recursive=True)
    family = family.union(sa.select(both_ways.c.other).join(family, family.c.id == both_ways.c.one))
    query = sa.select(experiments.c.spec, experiments.c.spec_hash).where(clone.in_(sa.select(family.c.id)))
    specs = []
    for row in connection.execute(query):
        with suppress(DamagedError):
            specs.append(integrity.experiment_spec(row.spec, row.spec_hash))
    return tuple(specs)


def experiment_page(
    connection: Connection, limit: int, before: str | None, labels: Collection[str] = (), *, deleted: bool = False
) -> tuple[AnyExperiment, ...]:
    """Return experiments that have all of these labels, newest first, or the deleted ones among them; with `before`,
    those older than that one. Raises `NotFoundError`."""
    # The few deleted ones by their index: in the order of submissions all others would be looked at for them.
    query = _EXPERIMENTS.where(experiments.c.number.in_(_DELETED) if deleted else ~is_deleted)
    query = query.where(*annotations.has_labels(experiments, labels))
    query = query.order_by(experiments.c.number.desc()).limit(limit)
    if before is not None:
        # A page goes on behind one that has been deleted since.
        row = connection.execute(_NUMBER, {"this": validate_id(before)}).one_or_none()
        if row is None:
            raise NotFoundError(f"there is no experiment {before!r}")
        query = query.where(experiments.c.number < row.number)
    return _experiment_records(connection, connection.execute(query).all())


def several_experiments(connection: Connection, experiment_ids: Sequence[str]) -> tuple[AnyExperiment, ...]:
    """Return experiments in the order of these ids, damaged or not; one that there is not is left out."""
    wanted = [validate_id(experiment_id) for experiment_id in experiment_ids]
    query = _EXPERIMENTS.where(experiments.c.id.in_(wanted), ~is_deleted)
    by_id = {record.id: record for record in _experiment_records(connection, connection.execute(query).all())}
    return tuple(by_id[experiment_id] for experiment_id in experiment_ids if experiment_id in by_id)


def run(connection: Connection, run_id: str) -> RunRecord:
    """Return a run. Raises `NotFoundError`."""
    row = connection.execute(_RUN, {"this": validate_id(run_id)}).one_or_none()
    if row is None:
        raise missing_run_error(connection, run_id)
    return _run_record(row)


def missing_run_error(connection: Connection, run_id: str) -> NotFoundError:
    """Return the reason why there is no such run: it never was, or its experiment is deleted."""
    query = sa.select(experiments.c.id, experiments.c.undo_until).join(runs, runs.c.experiment_id == experiments.c.id)
    deleted = connection.execute(query.where(runs.c.id == validate_id(run_id), is_deleted)).one_or_none()
    if deleted is not None:
        return deleted_error(deleted.id, deleted.undo_until)
    return run_not_found(connection, run_id)


def run_page(
    connection: Connection,
    *,
    sort: str | None = None,
    limit: int | None = None,
    after: str | None = None,
    **where: Unpack[RunFilter],
) -> tuple[RunRecord, ...]:
    """Return runs that pass the filter; with `after`, those behind that run. `sort` is one of `SORT_KEYS`, with `-`
    before it the largest first. Ties, and everything without it, have the runs of newer experiments first, each
    experiment's by position.

    Raises `NotFoundError` for an experiment or run that does not exist.
    """
    # The page is found on the narrow rows first; specs and results are joined to the page only.
    page = sa.select(runs.c.id).where(*_conditions(connection, where)).order_by(*_order(sort))
    if after is not None:
        page = page.where(_page_condition(connection, after, sort, where.get("experiment_id")))
    chosen = page.limit(limit).subquery()
    query = _run_query().join(chosen, chosen.c.id == runs.c.id).order_by(*_order(sort))
    return tuple(_run_record(row) for row in connection.execute(query))


def records_of_run(
    connection: Connection, run_id: str, record: type[Record], table: sa.Table, *order: str
) -> tuple[Record, ...]:
    """Return the rows of a run in a table whose columns are called as the record's fields. Raises `NotFoundError`."""
    require_run(connection, run_id)
    query = sa.select(*(table.c[name] for name in record.model_fields)).where(table.c.run_id == run_id)
    ordered = query.order_by(*(table.c[name] for name in order))
    return tuple(record(**row._mapping) for row in connection.execute(ordered))


def version(connection: Connection) -> int:
    """Return a number that grows with every visible change."""
    return int(connection.execute(sa.select(sa.func.sum(change_counters.c.value))).scalar_one() or 0)


def experiment_version(connection: Connection, experiment_id: str) -> int:
    """Return a number that grows with every visible change of one experiment. Raises `NotFoundError`."""
    row = require_experiment(connection, experiment_id)
    return int(row.revision) + int(connection.execute(_VERSION, {"number": row.number}).scalar_one() or 0)


def require_run(connection: Connection, run_id: str) -> None:
    """Raise `NotFoundError` unless there is such a run."""
    if connection.execute(_KEPT_RUN, {"this": validate_id(run_id)}).first() is None:
        raise missing_run_error(connection, run_id)


def deleted_error(experiment_id: str, undo_until: float | None) -> DeletedError:
    """Return the error that an experiment is deleted, with the way back."""
    message = f"experiment {experiment_id} was deleted"
    if undo_until is None:
        return DeletedError(f"{message} and is being removed for good", experiment_id)
    moment = datetime.fromtimestamp(undo_until, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return DeletedError(
        f"{message}; until {moment} `adapm-bench delete {experiment_id} --undo` brings it back", experiment_id
    )


def require_experiment(connection: Connection, experiment_id: str) -> sa.Row[Any]:
    """Return number and revision of an experiment; raises `NotFoundError`, and `DeletedError` if it is deleted."""
    row = connection.execute(_NUMBER, {"this": validate_id(experiment_id)}).one_or_none()
    if row is None:
        raise experiment_not_found(connection, experiment_id)
    if row.deleted_at is not None:
        raise deleted_error(experiment_id, row.undo_until)
    return row


def _conditions(connection: Connection, run_filter: RunFilter) -> Iterator[sa.ColumnElement[bool]]:
    filters = {name: wanted for name, wanted in run_filter.items() if wanted is not None}
    experiment_id = filters.pop("experiment_id", None)
    yield (
        is_kept
        if experiment_id is None
        else (runs.c.experiment_number == require_experiment(connection, str(experiment_id)).number)
    )
    for name, wanted in filters.items():
        yield runs.c[name] == (validate_id(wanted) if isinstance(wanted, str) else wanted)


def _order(sort: str | None) -> tuple[sa.ColumnElement[Any], ...]:
    usual = runs.c.experiment_number.desc(), runs.c.position.asc()
    if sort is None:
        return usual
    key = runs.c[sort.removeprefix("-")]
    return key.is_(None), key.desc() if sort.startswith("-") else key.asc(), *usual


def _page_condition(
    connection: Connection, run_id: str, sort: str | None, experiment_id: str | None
) -> sa.ColumnElement[bool]:
    """Return the condition of rows after a run in that order: its values are looked up, so that an id is the whole
    cursor."""
    key = runs.c[sort.removeprefix("-")] if sort is not None else sa.null()
    columns = runs.c.experiment_number, runs.c.position, runs.c.experiment_id, key
    row = connection.execute(sa.select(*columns).where(runs.c.id == validate_id(run_id))).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no run {run_id!r}")
    number, position, of_experiment, value = row
    if experiment_id not in (None, of_experiment):
        raise NotFoundError(f"experiment {experiment_id!r} has no run {run_id!r}, which a page could begin after")
    # The first term alone can use the index; the second one completes the order.
    later = sa.and_(
        runs.c.experiment_number <= number, sa.or_(runs.c.experiment_number < number, runs.c.position > position)
    )
    if sort is None:
        return later
    if value is None:
        return sa.and_(key.is_(None), later)
    is_beyond = key < value if sort.startswith("-") else key > value
    return sa.or_(key.is_(None), is_beyond, sa.and_(key == value, later))


def _run_query() -> sa.Select[Any]:
    specified = runs.outerjoin(run_specs, run_specs.c.run_id == runs.c.id)
    return sa.select(
        *RUN_COLUMNS,
        run_specs.c.spec,
        run_specs.c.checksum.label("spec_checksum"),
        results.c.result,
        results.c.checksum.label("result_checksum"),
        results.c.run_id.label("result_of"),
    ).select_from(specified.outerjoin(results, results.c.run_id == runs.c.id))


def _run_record(row: sa.Row[Any]) -> RunRecord:
    """Return the run; what of it cannot be read is null, and said."""
    values = dict(row._mapping)
    spec = _or_damage(integrity.run_spec, values["spec"], values.pop("spec_checksum"))
    checksum, has_result = values.pop("result_checksum"), values.pop("result_of") is not None
    lacks_result = not has_result and values["status"] is not RunStatus.SUCCEEDED
    result = None if lacks_result else _or_damage(integrity.result, values["result"], checksum)
    faults = [
        f"the stored {noun} of run {row.id} {damage}"
        for noun, damage in (("specification", spec), ("result", result))
        if isinstance(damage, DamagedError)
    ]
    values["spec"] = None if isinstance(spec, DamagedError) else spec
    values["result"] = None if isinstance(result, DamagedError) else result
    with trust_stored_names():
        return RunRecord(**values, damaged="; ".join(faults) or None)


def _or_damage(
    read: Callable[[object, int | None], Found], content: object, checksum: int | None
) -> Found | DamagedError:
    try:
        return read(content, checksum)
    except DamagedError as error:
        return error


def _require_intact(record: AnyExperiment) -> ExperimentRecord:
    if isinstance(record, DamagedExperiment):
        raise DamagedError(record.damaged)
    return record


def _experiment_records(connection: Connection, rows: Sequence[sa.Row[Any]]) -> tuple[AnyExperiment, ...]:
    numbers = [row.number for row in rows]
    totals = defaultdict[int, list[sa.Row[Any]]](list)  # a row for each state of an experiment's runs
    for row in connection.execute(_TOTALS, {"numbers": numbers}):
        totals[row.experiment_number].append(row)
    notes = annotations.read_notes(connection, rows)
    verdicts = _verdicts(connection, numbers)
    return tuple(
        _experiment_record(row, totals[row.number], verdicts.get(row.number, {}), notes.get(row.number)) for row in rows
    )


def _verdicts(connection: Connection, numbers: Sequence[int]) -> dict[int, dict[Verdict, int]]:
    """Return for each experiment the verdicts of its runs with a result, without those that converged."""
    verdicts_by_number: dict[int, dict[Verdict, int]] = {}
    for row in connection.execute(_VERDICTS, {"numbers": list(numbers)}):
        with suppress(ValueError):  # its run tells that it is damaged
            verdicts_by_number.setdefault(row.experiment_number, {})[Verdict(row.verdict)] = row.runs
    return verdicts_by_number


def _experiment_record(
    row: sa.Row[Any], totals: Sequence[sa.Row[Any]], verdicts: dict[Verdict, int], note: Note | None
) -> AnyExperiment:
    counts = StateCounts(
        total=sum(total.runs for total in totals),
        by_status={total.status: total.runs for total in totals},
        by_verdict=verdicts,
        growing=row.growing,
    )
    fields: dict[str, Any] = {
        "id": row.id,
        "name": row.name,
        "kind": row.kind,
        "spec_hash": row.spec_hash,
        "created_at": row.created_at,
        "ended_at": max((total.ended_at for total in totals), default=None) if counts.done() else None,
        "counts": counts,
        "key_id": row.key_id,
        "labels": row.labels,
        "note": note,
        "revision": row.revision,
        "cloned_from": row.cloned_from,
        "deleted_at": row.deleted_at,
        "undo_until": row.undo_until,
    }
    try:
        spec, refused = integrity.experiment_spec(row.spec, row.spec_hash), integrity.refusal(row.spec)
    except DamagedError as error:
        fields["progress"] = _progress(totals, growing=row.growing)
        return DamagedExperiment(**fields, damaged=f"the stored specification of experiment {row.id} {error}")
    progress = _progress(totals, growing=row.growing, steps_planned=spec.step_count())
    fields["spec_hash"] = integrity.hash_as_read(row.spec)
    with trust_stored_names():  # a record looks through its specification once more
        return ExperimentRecord(**fields, spec=spec, progress=progress, refused=refused)


def _progress(totals: Iterable[sa.Row[Any]], *, growing: bool, steps_planned: int = 0) -> Progress:
    """Return the progress and its speed. Steps that an ended run never took (diverged, cancelled) are no longer to be
    done; the planned steps of an experiment that grows count, so that its share never falls as runs are added."""
    by_status = {RunStatus(total.status): total for total in totals}
    steps_done = sum(int(total.steps) for total in by_status.values())
    steps_total = sum(
        int(total.steps if status in TERMINAL else total.steps_total) for status, total in by_status.items()
    )
    if growing:
        steps_total = max(steps_total, steps_planned)
    running = by_status.get(RunStatus.RUNNING)
    return Progress(
        steps_done=steps_done,
        steps_total=steps_total,
        tokens_per_second=None if running is None else running.tokens_per_second,
        seconds_left=_seconds_left(by_status, steps_total - steps_done, growing=growing),
    )


def _seconds_left(by_status: dict[RunStatus, sa.Row[Any]], steps_left: int, *, growing: bool) -> float | None:
    """Return steps left × device-seconds a step so far / devices at work now; null if nothing has run or nothing runs
    now, between two trials of a sweep for instance."""
    if all(status in TERMINAL for status in by_status):
        return None if growing else 0.0
    steps = sum(int(total.steps) for total in by_status.values())
    device_seconds = sum(float(total.device_seconds) for total in by_status.values())
    at_work = sum(int(total.processes) for status, total in by_status.items() if status in LIVE)
    if not steps or not device_seconds or not at_work:
        return None
    return steps_left * device_seconds / steps / at_work


# The statements of the hot path, built once: building one costs more than SQLite takes to carry it out.

_EXPERIMENTS = sa.select(experiments)
_EXPERIMENT = _EXPERIMENTS.where(experiments.c.id == sa.bindparam("this"))
_deleted = experiments.alias()
_DELETED = sa.select(_deleted.c.number).where(_deleted.c.deleted_at.is_not(None))
_NUMBER = sa.select(*(experiments.c[name] for name in ("number", "revision", "deleted_at", "undo_until"))).where(
    experiments.c.id == sa.bindparam("this")
)
_RUN = _run_query().where(runs.c.id == sa.bindparam("this"), is_kept)
_KEPT_RUN = sa.select(runs.c.id).where(runs.c.id == sa.bindparam("this"), is_kept)
_VERSION = sa.select(sa.func.sum(runs.c.version)).where(runs.c.experiment_number == sa.bindparam("number"))
_TOTALS = (
    sa.select(
        runs.c.experiment_number,
        runs.c.status,
        sa.func.count().label("runs"),
        sa.func.sum(runs.c.processes).label("processes"),
        sa.func.sum(runs.c.step).label("steps"),
        sa.func.sum(runs.c.steps_total).label("steps_total"),
        sa.func.sum(runs.c.device_seconds).label("device_seconds"),
        sa.func.sum(runs.c.tokens_per_second).label("tokens_per_second"),
        sa.func.max(runs.c.ended_at).label("ended_at"),
    )
    .where(runs.c.experiment_number.in_(sa.bindparam("numbers", expanding=True)))
    .group_by(runs.c.experiment_number, runs.c.status)
)
_VERDICTS = (
    sa.select(runs.c.experiment_number, results.c.verdict, sa.func.count().label("runs"))
    .join(results, results.c.run_id == runs.c.id)
    .where(
        runs.c.experiment_number.in_(sa.bindparam("numbers", expanding=True)),
        runs.c.status == RunStatus.SUCCEEDED,
        results.c.verdict != Verdict.CONVERGED.value,
    )
    .group_by(runs.c.experiment_number, results.c.verdict)
)
