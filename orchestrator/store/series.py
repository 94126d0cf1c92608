"""Series: the points of a run, in compressed chunks keyed by attempt.

    append: batch ─► one small chunk;   every 32nd ─► the small ones become one chunk;   end of the attempt ─► likewise
    read:   all chunks of all attempts, only the fields that are asked for ─► for each step, the newest attempt's row

A row per point would be slow (0.24 M points/s against 7.8 M), a row per batch would be many rows: a worker that reports
every second leaves one chunk for about half a minute, and a chunk is left alone once it has 1,000 points.

What the probes of a run saw, its observations, are one compressed row for each (attempt, step, probe); what the model
wrote at evaluations, its samples, one for each (attempt, step).
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
import sqlalchemy as sa
import structlog
import zstandard
from sqlalchemy.engine import Connection

from orchestrator.columns import FIELDS, STEP, Array, Columns, merge_attempts
from orchestrator.errors import DamagedError
from orchestrator.store import integrity
from orchestrator.store.database import insert
from orchestrator.store.ids import id_slices
from orchestrator.store.tables import attempts, chunks, observations, samples
from worker.records.result import Observation, TextSamples

log = structlog.get_logger(__name__)

FULL_POINTS = 1_000
"""A chunk of so many points is not merged any more: reading is then bound by points, not by rows."""
MERGE_BATCHES = 32
"""Small chunks are merged so often: at most 31 are left to read, and a point is rewritten a few times, not always."""

ROWS_AT_ONCE = 64
"""Chunks in memory while many runs are read, a chunk being some 100 kB at most."""
COMPRESSION_LEVEL = 3
"""zstd's default: of the levels up to 9 none made float64 losses more than a few percent smaller."""


def encode(columns: Columns) -> bytes:
    """Return the bytes of some rows: each field compressed by itself.

        {"points": 1000, "columns": {"step": 1620, "train_loss": 5310, …}}   a line: the length of each frame, in order
        zstd(float64 …) zstd(float64 …) …                                    a column of nothing but nulls is left out

    A chart reads two fields of a dozen: only those are decompressed.
    """
    compress = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL).compress
    frames = {
        name: compress(column.astype("<f8", copy=False).tobytes())
        for name, column in {STEP: columns.step, **columns.values}.items()
        if not np.isnan(column).all()
    }
    header = {"points": len(columns), "columns": {name: len(frame) for name, frame in frames.items()}}
    return b"".join([json.dumps(header, separators=(",", ":")).encode(), b"\n", *frames.values()])


def decode(chunks: Iterable[bytes], fields: Iterable[str]) -> Columns:
    """Return steps and the asked fields of all chunks, one behind the other; NaN where a chunk does not have the
    field."""
    decompress = zstandard.ZstdDecompressor().decompress
    opened = [(chunk, *_frames(chunk)) for chunk in chunks]

    def column(name: str) -> Array:
        if not any(name in frames for _, _, frames in opened):  # most fields, nearly always
            return np.full(sum(points for _, points, _ in opened), np.nan)
        return np.concatenate(
            [
                np.frombuffer(decompress(chunk[frames[name]])) if name in frames else np.full(points, np.nan)
                for chunk, points, frames in opened
            ]
        )

    whole = {name: column(name) for name in dict.fromkeys((STEP, *fields))}
    return Columns(step=whole.pop(STEP), values=whole)


def _frames(chunk: bytes) -> tuple[int, dict[str, slice]]:
    """Return the points of a chunk, and where each field's frame is."""
    offset = chunk.index(b"\n") + 1
    header = json.loads(chunk[:offset])
    frames: dict[str, slice] = {}
    for name, length in header["columns"].items():
        frames[name] = slice(offset, offset + length)
        offset += length
    return header["points"], frames


def chunk_row(run_id: str, attempt: int, sequence: int, columns: Columns) -> dict[str, Any]:
    """Return the row of `chunks` that these points of one attempt make, encoded before any lock is taken."""
    data = encode(columns)
    return {
        "run_id": run_id,
        "attempt": attempt,
        "sequence": sequence,
        "points": len(columns),
        "last_step": int(columns.step.max()),
        "data": data,
        "checksum": integrity.checksum(data),
    }


def append(connection: Connection, new: dict[str, Any]) -> None:
    """Add a new chunk, beyond `attempts.last_batch`, to the series of a run whose row is locked.

    Batches of an attempt come in order, so a number at or below the last accepted one is a repetition. A gap is let
    pass: a restored backup may lack what was accepted after it, which must not stop the run.
    """
    run_id, attempt, sequence = new["run_id"], new["attempt"], new["sequence"]
    connection.execute(_TAKE, {"this": run_id, "this_attempt": attempt, "number": sequence})
    connection.execute(_INSERT, new)
    if (sequence + 1) % MERGE_BATCHES == 0:
        merge_small_chunks(connection, run_id, attempt)


def merge_small_chunks(connection: Connection, run_id: str, attempt: int) -> None:
    """Merge the small chunks of an attempt into one; where one of them is damaged, all stay as they are."""
    small = (chunks.c.run_id == run_id) & (chunks.c.attempt == attempt) & (chunks.c.points < FULL_POINTS)
    rows = connection.execute(sa.select(chunks).where(small).order_by(chunks.c.sequence)).all()
    if len(rows) < 2 or len(_readable_chunks(rows, FIELDS)) < len(rows):
        return
    connection.execute(sa.delete(chunks).where(small))
    merged = decode([row.data for row in rows], FIELDS)
    connection.execute(_INSERT, chunk_row(run_id, attempt, rows[0].sequence, merged))


def read(connection: Connection, run_id: str, fields: Sequence[str] = FIELDS, after_step: int = -1) -> Columns:
    """Return the asked fields of a run's series beyond `after_step`: for each step, the row of the newest attempt that
    reached it."""
    query = sa.select(chunks).where(chunks.c.run_id == run_id)
    if after_step >= 0:
        query = query.where(chunks.c.last_step > min(after_step, 2**53))
    columns = _merge_chunks(connection.execute(query.order_by(chunks.c.attempt, chunks.c.sequence)).all(), fields)
    return columns.rows(slice(int(np.searchsorted(columns.step, after_step, side="right")), None))


def read_many(connection: Connection, run_ids: Sequence[str], fields: Sequence[str]) -> Iterator[tuple[str, Columns]]:
    """Yield the columns of many runs like `read`, one in memory at a time; runs without points are left out."""
    for id_slice in id_slices(run_ids):
        rows = connection.execute(_OF_RUNS, {"ids": id_slice}, execution_options={"yield_per": ROWS_AT_ONCE})
        for run_id, of_run in groupby(rows, key=attrgetter("run_id")):
            yield run_id, _merge_chunks(list(of_run), fields)


def newest_figures(columns: Columns) -> dict[str, object]:
    """Return the newest points' values for a run's row: the losses, and the pace over this batch."""
    shown: dict[str, object] = {}
    for name in {"train_loss", "val_loss"} & columns.values.keys():
        finite_rows = np.flatnonzero(np.isfinite(columns.values[name]))
        if finite_rows.size:
            shown[f"last_{name}"] = float(columns.values[name][finite_rows[-1]])
    seconds = columns.values.get("step_seconds", np.zeros(len(columns)))
    timed = np.flatnonzero((np.abs(seconds) > 0) & (columns.step > 0))  # not of a null, which is NaN
    if timed.size:
        tokens_per_step = float(columns.values["tokens"][timed[-1]] / columns.step[timed[-1]])
        tokens_per_second = tokens_per_step * timed.size / float(seconds[timed].sum())
        if math.isfinite(tokens_per_second):  # a step of 1e-320 s is not a pace
            shown["tokens_per_second"] = tokens_per_second
    return shown


def damaged_points(connection: Connection, run_id: str) -> int:
    """Return the number of a run's points in unreadable chunks."""
    rows = connection.execute(sa.select(chunks).where(chunks.c.run_id == run_id)).all()
    return int(sum(row.points for row in rows) - sum(row.points for row in _readable_chunks(rows, FIELDS)))


def _merge_chunks(rows: Sequence[Any], fields: Sequence[str]) -> Columns:
    """Return one run's chunks as columns, in the order of their attempts; damaged ones are left out."""
    rows = _readable_chunks(rows, fields)
    attempt = np.repeat([row.attempt for row in rows], [row.points for row in rows]).astype(np.int64)
    return merge_attempts(decode([row.data for row in rows], fields), attempt)


def _readable_chunks(rows: Sequence[Any], fields: Sequence[str]) -> list[Any]:
    """Return the chunks that can be read; what is wrong with the others is logged."""
    good = []
    for row in rows:
        try:
            check_chunk(row, fields)
            good.append(row)
        except DamagedError as error:
            log.warning("a chunk of a series is left out", run=row.run_id, sequence=row.sequence, fault=str(error))
    return good


def check_chunk(row: Any, fields: Sequence[str], *, trusts_checksum: bool = True) -> None:
    """Raise `DamagedError` for a row of `chunks` that cannot be read. What a checksum vouches for is decoded only
    where that is not trusted."""
    data = integrity.chunk(row.data, row.checksum)
    if trusts_checksum and row.checksum is not None:
        return
    try:
        points = len(decode([data], fields))
    except Exception as error:  # whatever a decompressor makes of nonsense
        raise DamagedError(f"cannot be read ({type(error).__name__}: {error})") from error
    if points != row.points:
        raise DamagedError(f"has {points} points, and its row says {row.points}")


def append_reports(
    connection: Connection, run_id: str, attempt: int, observed: Sequence[Observation], written: Sequence[TextSamples]
) -> None:
    """Add the observations and samples of a batch; those that the attempt sent before stay as they are."""
    observed_json = [
        ({"step": observation.step, "probe": observation.probe}, json.dumps(observation.blocks))
        for observation in observed
    ]
    written_json = [({"step": texts.step}, texts.model_dump_json(include={"texts"})) for texts in written]
    for column, contents in ((observations.c.blocks, observed_json), (samples.c.texts, written_json)):
        rows = [
            {"run_id": run_id, "attempt": attempt, **key, column.name: data, "checksum": integrity.checksum(data)}
            for key, text in contents
            for data in [zstandard.compress(text.encode())]
        ]
        if rows:
            connection.execute(insert(connection, column.table).on_conflict_do_nothing(), rows)


def read_observations(
    connection: Connection, run_id: str, *, after_step: int = -1, most_steps: int | None = None
) -> tuple[Observation, ...]:
    """Return observations by step and probe, of at most so many steps beyond `after_step`, each that of the newest
    attempt; damaged ones are left out (`orchestrator/store/admin/maintenance.py` finds them)."""
    stored = _read_packed(connection, observations.c.blocks, run_id, after_step, most_steps)
    # Not validated again: what is stored was validated when it came in.
    return tuple(Observation.model_construct(step=row.step, probe=row.probe, blocks=blocks) for row, blocks in stored)


def read_samples(
    connection: Connection, run_id: str, *, after_step: int = -1, most_steps: int = 100
) -> tuple[TextSamples, ...]:
    """Return the model's texts at up to so many steps beyond `after_step`, each time by the newest attempt; damaged
    ones are left out."""
    stored = _read_packed(connection, samples.c.texts, run_id, after_step, most_steps)
    return tuple(TextSamples.model_validate({"step": row.step} | content) for row, content in stored)


def _read_packed(
    connection: Connection, column: sa.Column[Any], run_id: str, after_step: int, most_steps: int | None
) -> Iterator[tuple[sa.Row[Any], Any]]:
    """Yield the newest attempt's row of each step and probe, with the unpacked content of `column`, for at most
    `most_steps` steps beyond `after_step`."""
    table: Any = column.table
    of_run = (table.c.run_id == run_id) & (table.c.step > after_step)
    steps = sa.select(table.c.step).where(of_run).distinct().order_by(table.c.step).limit(most_steps)
    query = sa.select(table).where(of_run, table.c.step.in_(steps.scalar_subquery())).order_by(table.c.attempt)
    key = [primary.name for primary in table.primary_key if primary.name not in ("run_id", "attempt")]
    newest = {tuple(row._mapping[name] for name in key): row for row in connection.execute(query)}
    for position in sorted(newest):
        row = newest[position]
        try:
            content = integrity.unpack(row._mapping[column.name], row.checksum)
        except DamagedError as error:
            log.warning("a row is left out", table=table.name, run=run_id, key=position, error=str(error))
        else:
            yield row, content


def sampled_steps(connection: Connection, run_id: str) -> tuple[int, ...]:
    """Return the steps at which the model wrote."""
    query = sa.select(samples.c.step).where(samples.c.run_id == run_id).distinct().order_by(samples.c.step)
    return tuple(connection.execute(query).scalars())


# The statements, built once.

_OF_RUNS = (
    sa.select(chunks)
    .where(chunks.c.run_id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(chunks.c.run_id, chunks.c.attempt, chunks.c.sequence)
)
_INSERT = sa.insert(chunks)
_TAKE = (
    sa.update(attempts)
    .where(
        attempts.c.run_id == sa.bindparam("this"),
        attempts.c.attempt == sa.bindparam("this_attempt"),
    )
    .values(last_batch=sa.bindparam("number"))
)
