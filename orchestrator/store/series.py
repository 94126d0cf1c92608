"""Series: the points of a run, in compressed chunks keyed by attempt.

    append: batch ─► one small chunk;   every 32nd ─► the small ones become one chunk;   end of the attempt ─► likewise
    read:   all chunks of all attempts ─► for each step, the newest attempt that reached it

A row a point would be slow (0.24 M points/s against 7.8 M), a row a batch would be many rows: a worker that reports
every second leaves one chunk for about half a minute, and a chunk is left alone once it has 1,000 points.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import sqlalchemy as sa
import zstandard
from sqlalchemy.engine import Connection

from orchestrator.store.tables import attempts, chunks
from worker.protocol import PointsBatch
from worker.record import Point

FULL_POINTS = 1_000
"""A chunk of so many points is not merged any more: reading is then bound by points, not by rows."""
MERGE_BATCHES = 32
"""Small chunks are merged so often: at most 31 are left to read, and a point is rewritten a few times, not always."""
COMPRESSION_LEVEL = 3
"""zstd's default: of the levels up to 9 none made float64 losses more than a few percent smaller."""
WHOLE_NUMBERS = frozenset({"step", "tokens", "host_rss_bytes"})
"""Fields that are integers; float64 keeps them exactly up to 2**53."""


def append(connection: Connection, run_id: str, attempt: int, batch: PointsBatch) -> bool:
    """Add a batch to the series of a run whose row is locked; False where it was accepted before.

    Batches of an attempt come in order, so a number at or below the last accepted one is a repetition. A gap is let
    pass: batches are not forced to disk, and what a power cut took must not stop the run.
    """
    mine = (attempts.c.run_id == run_id) & (attempts.c.attempt == attempt)
    newer = sa.update(attempts).where(mine, attempts.c.last_batch < batch.sequence)
    if connection.execute(newer.values(last_batch=batch.sequence)).rowcount == 0:
        return False
    _insert(connection, run_id, attempt, batch.sequence, batch.points)
    if (batch.sequence + 1) % MERGE_BATCHES == 0:
        seal(connection, run_id, attempt)
    return True


def seal(connection: Connection, run_id: str, attempt: int) -> None:
    """Merge the small chunks of an attempt into one."""
    small = (chunks.c.run_id == run_id) & (chunks.c.attempt == attempt) & (chunks.c.points < FULL_POINTS)
    query = sa.select(chunks.c.sequence, chunks.c.data).where(small).order_by(chunks.c.sequence)
    rows = connection.execute(query).all()
    if len(rows) < 2:
        return
    connection.execute(sa.delete(chunks).where(small))
    points = [point for row in rows for point in decode(row.data)]
    _insert(connection, run_id, attempt, rows[0].sequence, points)


def read(connection: Connection, run_id: str, after_step: int = -1) -> tuple[Point, ...]:
    """The points of a run in the order of their steps, beyond `after_step`: for each step those of the newest attempt
    that reached it."""
    query = sa.select(chunks.c.attempt, chunks.c.data).where(chunks.c.run_id == run_id)
    if after_step >= 0:
        query = query.where(chunks.c.last_step > min(after_step, 2**53))
    rows = connection.execute(query.order_by(chunks.c.attempt, chunks.c.sequence)).all()
    merged: dict[int, tuple[int, Point]] = {}
    for row in rows:
        for point in decode(row.data):
            earlier = merged.get(point.step)
            same_attempt = earlier is not None and earlier[0] == row.attempt
            merged[point.step] = (row.attempt, _joined(earlier[1], point) if earlier and same_attempt else point)
    return tuple(merged[step][1] for step in sorted(merged) if step > after_step)


def latest(points: Sequence[Point]) -> dict[str, object]:
    """What a run's row shows of its newest points: the losses, and the pace over this batch."""
    shown: dict[str, object] = {}
    for name in ("train_loss", "val_loss"):
        values = [value for point in points if (value := getattr(point, name)) is not None]
        if values:
            shown[f"last_{name}"] = values[-1]
    timed = [point for point in points if point.step_seconds and point.step]
    if timed:
        tokens_per_step = timed[-1].tokens / timed[-1].step
        shown["tokens_per_second"] = tokens_per_step * len(timed) / sum(point.step_seconds or 0.0 for point in timed)
    return shown


def encode(points: Iterable[Point]) -> bytes:
    """A chunk's bytes: zstd over one line of JSON that names the fields, then a float64 column each; NaN is null."""
    fields = tuple(Point.model_fields)
    rows = [[_number(getattr(point, name)) for name in fields] for point in points]
    columns = np.ascontiguousarray(np.array(rows, dtype="<f8").reshape(-1, len(fields)).T)
    header = json.dumps({"fields": fields, "points": len(rows)}).encode() + b"\n"
    return zstandard.compress(header + columns.tobytes(), COMPRESSION_LEVEL)


def decode(data: bytes) -> Iterator[Point]:
    """The points of a chunk; fields that did not exist when it was written are null."""
    header, _, body = zstandard.decompress(data).partition(b"\n")
    described = json.loads(header)
    fields = described["fields"]
    columns = np.frombuffer(body, dtype="<f8").reshape(len(fields), described["points"])
    lists = [_values(name, column) for name, column in zip(fields, columns, strict=True)]
    for values in zip(*lists, strict=True):
        # Not validated again: what is stored was validated when it came in.
        yield Point.model_construct(**dict(zip(fields, values, strict=True)))


def _insert(connection: Connection, run_id: str, attempt: int, sequence: int, points: Sequence[Point]) -> None:
    row = {
        "run_id": run_id,
        "attempt": attempt,
        "sequence": sequence,
        "points": len(points),
        "last_step": max(point.step for point in points),
        "data": encode(points),
    }
    connection.execute(sa.insert(chunks).values(row))


def _joined(earlier: Point, later: Point) -> Point:
    """Two reports of one step by one attempt (one of the training loss, one of the validation loss) as one point."""
    told = {name: value for name, value in later if value is not None}
    return earlier.model_copy(update=told)


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def _values(name: str, column: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> list[float | int | None]:
    values = column.tolist()
    if name in WHOLE_NUMBERS:
        return [None if value != value else int(value) for value in values]
    return [None if value != value else value for value in values]
