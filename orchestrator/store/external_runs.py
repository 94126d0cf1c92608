"""External runs in the database: lines of spools in, runs, experiments and series out.

    a batch of lines ─► what of it is new ─► the newest chunk of its spool grows; the run's row sums its metrics up

A spool's lines have numbers, and so many from its beginning are kept: what comes again is skipped, what would leave a
gap is not taken, and the answer says from where on to send. So a spool may be sent any number of times, by any number
of processes. Nothing here has a lease, or is ever queued.

Each spool of a logged run is a session of its training (`orchestrator/sessions.py`): what was logged of steps that a
later session went back behind is left out.
"""

import json
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any, Final

import sqlalchemy as sa
import zstandard
from pydantic import JsonValue
from sqlalchemy.engine import Connection

from orchestrator.annotations import LabelChange, changed_labels
from orchestrator.errors import ConflictError, DamagedError, NotFoundError
from orchestrator.external_runs import (
    LOGGED,
    LONGEST_SUMMARY,
    MOST_VALUES,
    ExternalExperiment,
    ExternalRun,
    ExternalSeries,
    ExternalState,
    LinesBatch,
    LinesReceipt,
    MetricSummary,
    RunHeader,
    SpoolLine,
)
from orchestrator.sessions import SourcePoint, join_sessions
from orchestrator.store import integrity
from orchestrator.store.annotations import has_labels
from orchestrator.store.database import Database, insert
from orchestrator.store.ids import external_experiment_not_found, new_id, validate_id
from orchestrator.store.notifications import count_change
from orchestrator.store.tables import external_chunks, external_experiments, external_runs

FULL_CHARACTERS: Final = 2**16
"""A chunk with so much text does not grow any more: each batch rewrites no more of what is there."""
ROWS_AT_ONCE: Final = 500
"""Removed in one transaction, since others want to write meanwhile."""
STORED: Final[dict[str, Any]] = {
    "config": dict[str, JsonValue],
    "tags": tuple[str, ...],
    "metrics": dict[str, MetricSummary],
}
"""Columns of JSON of a run, and what they are read as."""
UNREADABLE: Final[dict[str, Any]] = {"config": {}, "tags": (), "metrics": {}, "state": ExternalState.FAILED}
"""The mark of an unreadable field."""


def read_state(word: str) -> ExternalState:
    """Return the state of a run. Raises `DamagedError`."""
    if word not in set(ExternalState):
        raise DamagedError(f"is {word!r}, which is none of {', '.join(ExternalState)}")
    return ExternalState(word)


def _intact(row: Any, name: str) -> Any:
    """Return a column of JSON of a run that goes on. Raises `DamagedError`."""
    try:
        integrity.stored(STORED[name], row._mapping[name])
    except DamagedError as error:
        raise DamagedError(
            f"the stored {name} of external run {row.id} {error}; delete the run, and send it again"
        ) from error
    return json.loads(row._mapping[name])


class ExternalRuns:
    """The runs of loops and tools outside of the bench, in a database. Thread-safe.

    Every method may raise `StoreError`; an experiment may be named by its id or by its name, and where there is none
    `NotFoundError` is raised.
    """

    def __init__(self, database: Database, *, most_runs: int) -> None:
        """Keep at most so many runs."""
        self._database = database
        self._most_runs = most_runs

    def append(self, run_id: str, batch: LinesBatch, *, by: str | None = None) -> LinesReceipt:
        """Keep the lines of a batch that are new, in one transaction. Raises `ConflictError` if the run is another
        experiment's or candidate's, or has another learning rate or seed; and where there is no room, or it is full."""
        with self._database.writing() as connection:
            now = self._database.read_clock(connection)
            if connection.execute(sa.select(external_runs.c.id).where(external_runs.c.id == run_id)).first() is None:
                _require_room(connection, run_id, self._most_runs)
            number, experiment_id = _experiment_of(connection, batch.run.experiment, by, now)
            row = _locked_run(connection, run_id, number, batch.run, now)
            condition = (external_chunks.c.run_id == run_id) & (external_chunks.c.part == batch.part)
            chunk = connection.execute(
                sa.select(external_chunks).where(condition).order_by(external_chunks.c.first_line.desc()).limit(1)
            ).one_or_none()
            received = 0 if chunk is None else chunk.first_line + chunk.lines
            new = batch.lines[received - batch.first_line :] if batch.first_line <= received else ()
            if row.lines + len(new) > MOST_VALUES:
                raise ConflictError(
                    f"external run {run_id} has {row.lines:,} lines, of at most {MOST_VALUES:,}; log less often"
                )
            changes: dict[str, Any] = {}
            if new:
                changes = (
                    _changes(row, new) | (_settings(row, batch.run) if chunk is None else {}) | {"updated_at": now}
                )
                _grow(connection, run_id, batch.part, chunk, new)
                if _may_go_back(connection, row, batch, chunk, new):
                    with suppress(DamagedError):  # then what is new is added to what was known
                        changes["metrics"] = json.dumps(_summaries(connection, row), sort_keys=True)
            summary = {**row._mapping, **changes}
            lengths = {name: len(summary[name]) for name in ("config", "tags", "metrics")}
            if (length := sum(lengths.values())) > LONGEST_SUMMARY:
                parts = ", ".join(f"{name} {count:,}" for name, count in lengths.items())
                raise ConflictError(
                    f"external run {run_id} would have {length:,} characters of settings and metrics as JSON "
                    f"({parts}), of at most {LONGEST_SUMMARY:,}; log fewer names, keep less in its config, or begin "
                    "another run"
                )
            if new:
                connection.execute(sa.update(external_runs).where(external_runs.c.id == run_id).values(changes))
                count_change(connection)
            return LinesReceipt(run_id=run_id, experiment_id=experiment_id, lines=received + len(new))

    def delete_run(self, run_id: str) -> ExternalRun:
        """Delete a run with its series, and its experiment if that was the last one; sending the spool again restores
        it. Raises `NotFoundError`."""
        with self._database.reading() as connection:
            run = find_run(connection, run_id)
        _delete(self._database, run.experiment_id, external_runs.c.id == run.id)
        return run

    def delete_experiment(self, experiment_id: str) -> ExternalExperiment:
        """Remove an experiment and its runs, for good. Raises `NotFoundError`."""
        with self._database.reading() as connection:
            experiment = find_experiment(connection, experiment_id)
        _delete(self._database, experiment.id, sa.true())
        return experiment

    def change_labels(self, experiment_id: str, change: LabelChange) -> ExternalExperiment:
        """Add labels and take some away. Raises `NotFoundError`, and `ConflictError` if they would be too many."""
        with self._database.writing() as connection:
            resolved_id, table = find_experiment(connection, experiment_id).id, external_experiments
            row = connection.execute(
                sa.select(table.c.labels).where(table.c.id == resolved_id).with_for_update()
            ).one_or_none()
            had = () if row is None else row.labels
            if (labels := changed_labels(had, change)) != had:
                connection.execute(sa.update(table).where(table.c.id == resolved_id).values(labels=labels))
                count_change(connection)
            return find_experiment(connection, resolved_id)

    def experiments(
        self, *, limit: int = 50, before: str | None = None, labels: Collection[str] = ()
    ) -> tuple[ExternalExperiment, ...]:
        """Return experiments that have all of these labels, the newest first; `before` is the last id of the page
        before. Raises `NotFoundError`."""
        with self._database.reading() as connection:
            table = external_experiments
            query = sa.select(table).where(*has_labels(table, labels)).order_by(table.c.number.desc()).limit(limit)
            if before is not None:
                number = connection.scalar(sa.select(table.c.number).where(table.c.id == validate_id(before)))
                if number is None:
                    raise NotFoundError(
                        f"there is no experiment of external runs {before!r}; begin with the first page"
                    )
                query = query.where(table.c.number < number)
            return _experiment_records(connection, connection.execute(query).all())

    def experiment(self, experiment_id: str) -> ExternalExperiment:
        """Return an experiment."""
        with self._database.reading() as connection:
            return find_experiment(connection, experiment_id)

    def runs(
        self, experiment_id: str, *, limit: int | None = None, after: str | None = None
    ) -> tuple[ExternalRun, ...]:
        """Return the runs of an experiment, the first that came first; with `after`, those behind that one."""
        with self._database.reading() as connection:
            this, asked = external_runs.c, find_experiment(connection, experiment_id).id
            query = _RUNS.where(external_experiments.c.id == asked).order_by(this.created_at, this.id).limit(limit)
            if after is not None:
                last = find_run(connection, after)
                query = query.where(sa.tuple_(this.created_at, this.id) > (last.created_at, last.id))
            return tuple(_run_record(row) for row in connection.execute(query))

    def run(self, run_id: str) -> ExternalRun:
        """Return a run."""
        with self._database.reading() as connection:
            return find_run(connection, run_id)

    def series(self, run_id: str, metrics: Collection[str] = (), *, most_values: int | None = None) -> ExternalSeries:
        """Return these metrics of a run, or all: the last logged value of each step. Raises `NotFoundError`,
        `ConflictError` for more than `most_values` values, and `DamagedError` if a chunk cannot be read."""
        with self._database.reading() as connection:
            record = find_run(connection, run_id)
            summaries = record.metrics
            names = summaries.keys() & set(metrics) if metrics else summaries.keys()
            count = sum(summaries[name].points for name in names)
            if most_values is not None and count > most_values:
                raise ConflictError(
                    f"external run {run_id} has {count:,} values of these {len(names):,} metrics, and one answer at "
                    f"most {most_values:,}; ask for fewer metrics at once, as in ?metric=NAME"
                )
            points_by_metric: dict[str, dict[int, float]] = {}
            for point in _read_sessions(connection, record)[1]:
                for name in point.metrics.keys() & names:
                    points_by_metric.setdefault(name, {})[point.step] = float(point.metrics[name])
            ascending = {name: sorted(points.items()) for name, points in sorted(points_by_metric.items())}
            return ExternalSeries(
                run_id=run_id,
                steps={name: tuple(step for step, _ in points) for name, points in ascending.items()},
                values={name: tuple(value for _, value in points) for name, points in ascending.items()},
            )


def _experiment_of(connection: Connection, name: str, key_id: str | None, now: float) -> tuple[int, str]:
    """Return number and id of the experiment of that name, created if missing."""
    table = external_experiments
    # The row may be read by many at once; whoever deletes it meanwhile is waited for, and then it is made anew.
    query = sa.select(table.c.number, table.c.id).where(table.c.name == name).with_for_update(read=True, key_share=True)
    if (row := connection.execute(query).one_or_none()) is None:
        values = {"id": new_id(), "name": name, "created_at": now, "key_id": key_id}
        connection.execute(insert(connection, table).values(values).on_conflict_do_nothing(index_elements=["name"]))
        row = connection.execute(query).one()
    return int(row.number), str(row.id)


def _locked_run(connection: Connection, run_id: str, number: int, header: RunHeader, now: float) -> Any:
    """Return the run's row, made where there is none."""
    table = external_runs
    new_values = {
        "id": run_id,
        "experiment_number": number,
        **header.model_dump(include={"candidate", "lr", "seed", "workload", "source", "started_at"}),
        "config": json.dumps(header.config, sort_keys=True),
        "tags": json.dumps(header.tags),
        "state": ExternalState.RUNNING,
        "state_at": header.started_at,
        "created_at": now,
        "updated_at": now,
        "lines": 0,
        "torn_lines": 0,
        "metrics": "{}",
    }
    connection.execute(insert(connection, table).values(new_values).on_conflict_do_nothing(index_elements=["id"]))
    row = connection.execute(sa.select(table).where(table.c.id == run_id).with_for_update(of=table)).one_or_none()
    if row is None:
        raise ConflictError(f"external run {run_id} was deleted at this moment; send it again")
    for name in ("experiment_number", "candidate", "lr", "seed"):
        if row._mapping[name] != new_values[name]:
            field = "experiment" if name == "experiment_number" else name
            value = header.experiment if name == "experiment_number" else new_values[name]
            raise ConflictError(
                f"external run {run_id} has another {field} than {value!r}: a run that goes on tells what it told at "
                "its beginning; give another run another id"
            )
    return row


def _require_room(connection: Connection, run_id: str, most_runs: int) -> None:
    total = connection.execute(sa.select(sa.func.count()).select_from(external_runs)).scalar_one()
    if total >= most_runs:
        raise ConflictError(
            f"there is no room for external run {run_id}: {total:,} of {most_runs:,} are here; delete some, or have "
            "$ADAPM_BENCH_EXTERNAL_RUNS raised"
        )


def _delete(database: Database, experiment_id: str, condition: sa.ColumnElement[bool]) -> None:
    """Remove these runs of an experiment in short transactions, and the experiment once it has none. A spool's newest
    lines go first: a deletion that breaks off leaves the beginning of each, as an upload does that breaks off."""
    table, key = external_experiments, list(external_chunks.primary_key)
    is_full = True
    while is_full:
        with database.writing() as connection:
            # Whoever sends lines of its runs meanwhile waits for this row.
            query = sa.select(table.c.number).where(table.c.id == experiment_id).with_for_update()
            if (number := connection.execute(query).scalar_one_or_none()) is None:
                return  # another one has deleted it
            runs_of_it = external_runs.c.experiment_number == number
            ids = sa.select(external_runs.c.id).where(runs_of_it, condition)
            newest = sa.select(*key).where(external_chunks.c.run_id.in_(ids))
            newest = newest.order_by(*(column.desc() for column in key)).limit(ROWS_AT_ONCE)
            room = ROWS_AT_ONCE
            room -= connection.execute(sa.delete(external_chunks).where(sa.tuple_(*key).in_(newest))).rowcount
            if room:
                deletion = sa.delete(external_runs).where(external_runs.c.id.in_(ids.limit(room)))
                room -= connection.execute(deletion).rowcount
            is_full = not room
            if not is_full:
                has_runs = sa.exists().where(runs_of_it)
                connection.execute(sa.delete(table).where(table.c.number == number, ~has_runs))
            count_change(connection)


def _settings(row: Any, header: RunHeader) -> dict[str, object]:
    """Return the run's settings with those of a further spool: the newest value counts, and none is lost."""
    return {
        "config": json.dumps(_intact(row, "config") | header.config, sort_keys=True),
        "tags": json.dumps([*dict.fromkeys((*_intact(row, "tags"), *header.tags))]),
        "workload": header.workload or row.workload,
    }


def _grow(connection: Connection, run_id: str, part: str, chunk: Any, new: Sequence[SpoolLine | None]) -> None:
    """Put lines behind a spool's newest chunk, or into it where it is small."""
    text = "\n".join("null" if line is None else line.model_dump_json(exclude_defaults=True) for line in new)
    first, count = (0 if chunk is None else chunk.first_line + chunk.lines), len(new)
    with suppress(DamagedError):  # it stays as it is, and others are written behind it
        if chunk is not None and len(earlier_text := _content(chunk.data, chunk.checksum)) < FULL_CHARACTERS:
            key = (external_chunks.c.run_id == run_id) & (external_chunks.c.part == part)
            connection.execute(sa.delete(external_chunks).where(key, external_chunks.c.first_line == chunk.first_line))
            text = f"{earlier_text}\n{text}"
            first, count = chunk.first_line, chunk.lines + count
    data = zstandard.compress(text.encode())
    chunk_key = {"run_id": run_id, "part": part, "first_line": first}
    content = {"lines": count, "data": data, "checksum": integrity.checksum(data)}
    connection.execute(sa.insert(external_chunks).values(chunk_key | content))


def _changes(row: Any, new: Iterable[SpoolLine | None]) -> dict[str, object]:
    """Return the changes that these lines make in their run's row."""
    metrics: dict[str, dict[str, Any]] = _intact(row, "metrics")
    state, state_at, lines, torn = row.state, row.state_at, row.lines, row.torn_lines
    for line in new:
        lines += 1
        if line is None:
            torn += 1
            continue
        if line.state is not None and line.at >= state_at:
            state, state_at = line.state, line.at
        if line.step is not None:
            for name, value in line.metrics.items():
                _sum_up(metrics, name, line.step, value, line.at)
    metrics_json = json.dumps(metrics, sort_keys=True)
    return {"state": state, "state_at": state_at, "lines": lines, "torn_lines": torn, "metrics": metrics_json}


def _may_go_back(
    connection: Connection, row: Any, batch: LinesBatch, chunk: Any, new: Sequence[SpoolLine | None]
) -> bool:
    """Return whether new lines may leave out lines before them, or be left out: a metric is logged at an earlier step
    than before, or there are other sessions. Not then where the lines are of the newest session, beyond every step that
    is known, and of metrics that its newest chunk has."""
    if row.source != LOGGED:
        return False
    last = {name: summary["last_step"] for name, summary in _intact(row, "metrics").items()}
    highest = max(last.values(), default=-1)
    points = [(line.step, line.metrics) for line in new if line is not None and line.step is not None]
    for step, metrics in points:
        for name in metrics:
            if step < last.get(name, 0):
                return True
            last[name] = step
    is_of_other_part = (external_chunks.c.run_id == row.id) & (external_chunks.c.part != batch.part)
    if connection.execute(sa.select(external_chunks.c.part).where(is_of_other_part)).first() is None:
        return False
    lowest = min((step for step, _ in points), default=highest + 1)
    if chunk is None or lowest <= highest or batch.run.started_at < row.state_at:
        return True
    try:
        known_names = {name for line in read_chunk(chunk._mapping) for name in line.get("metrics", ())}
    except DamagedError:
        return True
    return not {name for _, metrics in points for name in metrics} <= known_names


def _summaries(connection: Connection, row: Any) -> dict[str, dict[str, Any]]:
    """Return the summary of every metric, from all lines. Raises `DamagedError`."""
    metrics: dict[str, dict[str, Any]] = {}
    sessions, points = _read_sessions(connection, row)
    metric_steps = {(name, point.step) for session in sessions for point in session for name in point.metrics}
    for point in points:
        for name, value in point.metrics.items():
            _sum_up(metrics, name, point.step, float(value), point.at)
            metric_steps.discard((name, point.step))
    for name, _ in (*metric_steps, *_differing_values(sessions)):
        if name in metrics:
            metrics[name]["left_out"] = metrics[name].get("left_out", 0) + 1
    return metrics


def _differing_values(sessions: Iterable[Sequence[SourcePoint]]) -> Iterator[tuple[str, int]]:
    """Yield the metrics and steps at which processes that logged at the same time have different values."""
    known_values: dict[tuple[str, int], tuple[float | str, float, float]] = {}  # with the times of their process
    for points in filter(None, sessions):
        begin, end = points[0].at, points[-1].at
        own_values = {(name, point.step): value for point in points for name, value in point.metrics.items()}
        for key, value in own_values.items():
            known_value, known_begin, known_end = known_values.get(key, (value, begin, end))
            if value != known_value and begin < known_end and known_begin < end:
                yield key
        known_values |= {key: (value, begin, end) for key, value in own_values.items()}


def _sum_up(metrics: dict[str, dict[str, Any]], name: str, step: int, value: float, moment: float) -> None:
    """Update a metric's summary: the last logged values of its lowest and of its highest step."""
    finite_value = value if math.isfinite(value) else None
    summary = metrics.setdefault(
        name,
        {"points": 0, "first_step": step, "first": finite_value, "first_at": moment}
        | {"last_step": step, "last": finite_value, "last_at": moment},
    )
    summary["points"] += 1
    if (-step, moment) >= (-summary["first_step"], summary["first_at"]):
        summary |= {"first_step": step, "first": finite_value, "first_at": moment}
    if (step, moment) >= (summary["last_step"], summary["last_at"]):
        summary |= {"last_step": step, "last": finite_value, "last_at": moment}


def find_experiment(connection: Connection, experiment_id: str) -> ExternalExperiment:
    """Return an experiment by its id or its name. Raises `NotFoundError`."""
    key, table = validate_id(experiment_id), external_experiments
    rows = connection.execute(sa.select(table).where((table.c.id == key) | (table.c.name == key))).all()
    matches = sorted(rows, key=lambda row: row.id != key)
    if not matches:
        raise external_experiment_not_found(connection, key)
    return _experiment_records(connection, matches[:1])[0]


def _experiment_records(connection: Connection, rows: Sequence[Any]) -> tuple[ExternalExperiment, ...]:
    table = external_runs
    counted = (
        sa.select(
            table.c.experiment_number,
            table.c.state,
            table.c.candidate,
            table.c.source,
            sa.func.count().label("runs"),
            sa.func.max(table.c.updated_at).label("updated_at"),
        )
        .where(table.c.experiment_number.in_([row.number for row in rows]))
        .group_by(table.c.experiment_number, table.c.state, table.c.candidate, table.c.source)
        .order_by(sa.func.min(table.c.created_at), table.c.candidate)
    )
    groups: dict[int, list[Any]] = {}
    for group in connection.execute(counted):
        groups.setdefault(group.experiment_number, []).append(group)
    return tuple(_experiment_record(row, groups.get(row.number, [])) for row in rows)


def _experiment_record(row: Any, groups: Sequence[Any]) -> ExternalExperiment:
    by_state: dict[ExternalState, int] = {}
    for group in groups:
        state = ExternalState(group.state) if group.state in set(ExternalState) else UNREADABLE["state"]
        by_state[state] = by_state.get(state, 0) + group.runs
    return ExternalExperiment(
        id=row.id,
        name=row.name,
        created_at=row.created_at,
        updated_at=max((group.updated_at for group in groups), default=row.created_at),
        key_id=row.key_id,
        runs=sum(by_state.values()),
        by_state=by_state,
        candidates=tuple(dict.fromkeys(group.candidate for group in groups)),
        sources=tuple(sorted({group.source for group in groups})),
        labels=row.labels,
    )


def find_run(connection: Connection, run_id: str) -> ExternalRun:
    """Return a run. Raises `NotFoundError`."""
    row = connection.execute(_RUNS.where(external_runs.c.id == validate_id(run_id))).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no external run {run_id!r}")
    return _run_record(row)


_RUNS = sa.select(
    external_runs,
    external_experiments.c.id.label("experiment_id"),
    external_experiments.c.name.label("experiment"),
).join(external_experiments, external_runs.c.experiment_number == external_experiments.c.number)


def _run_record(row: Any) -> ExternalRun:
    fields = {name: row._mapping[name] for name in ExternalRun.model_fields if name in row._mapping}
    faults = []
    readers = {name: partial(integrity.stored, kind) for name, kind in STORED.items()} | {"state": read_state}
    for name, read in readers.items():
        try:
            fields[name] = read(fields[name])
        except DamagedError as error:
            fields[name] = UNREADABLE[name]
            faults.append(f"the stored {name} of external run {row.id} {error}")
    return ExternalRun(**fields, damaged="; ".join(faults) or None)


def _read_sessions(connection: Connection, run: Any) -> tuple[list[list[SourcePoint]], list[SourcePoint]]:
    """Return (what each spool of a run logged, what of it counts: of two values of a step the later one). `run`
    has `id` and `source`. Raises `DamagedError`."""
    query = sa.select(external_chunks).where(external_chunks.c.run_id == run.id)
    parts: dict[str, list[SourcePoint]] = {}
    for row in connection.execute(query.order_by(external_chunks.c.first_line, external_chunks.c.part)):
        parts.setdefault(row.part, []).extend(
            SourcePoint(at=line["at"], step=line["step"], metrics=line["metrics"])
            for line in read_chunk(row._mapping)
            if "step" in line and "metrics" in line
        )
    sessions = list(parts.values())
    if run.source == LOGGED:
        return sessions, join_sessions(sessions, is_one_training=True)[0]
    # A spool of an import has what the one before had not, and corrections.
    return sessions, sorted((point for session in sessions for point in session), key=attrgetter("at"))


def read_chunk(row: sa.RowMapping) -> list[dict[str, Any]]:
    """Return the lines of a chunk that were not torn, as they were written: each was a `SpoolLine`, and figures that
    are not finite are texts. Raises `DamagedError`."""
    try:
        lines = json.loads(f"[{_content(row['data'], row['checksum']).replace(chr(10), ',')}]")
    except ValueError as error:
        raise DamagedError(f"cannot be read ({error})") from error
    return [line for line in lines if line is not None]


def _content(data: bytes, checksum: int) -> str:
    try:
        return zstandard.decompress(integrity.chunk(data, checksum)).decode()
    except zstandard.ZstdError as error:
        raise DamagedError(f"cannot be read ({error})") from error
