"""Points one by one: the readable twin of what travels in columns and is summed up in arrays."""

import json
import math
from collections.abc import Sequence

from worker.records.result import Point


def read(body: bytes) -> tuple[Point, ...]:
    """The points of a batch's JSON, each of them validated by itself."""
    columns = json.loads(body)["columns"]
    rows = [{name: values[row] for name, values in columns.items()} for row in range(len(columns["step"]))]
    return tuple(Point.model_validate_json(json.dumps(row)) for row in rows)


def latest(points: Sequence[Point]) -> dict[str, float]:
    """Return the newest points' values in a run's row: the losses, and the pace over this batch."""
    shown = {}
    for point in points:
        if point.train_loss is not None:
            shown["last_train_loss"] = point.train_loss
        if point.val_loss is not None:
            shown["last_val_loss"] = point.val_loss
    timed = [point for point in points if point.step_seconds and point.step]
    if timed:
        seconds = sum(point.step_seconds or 0.0 for point in timed)
        pace = timed[-1].tokens / timed[-1].step * len(timed) / seconds
        if pace < math.inf:
            shown["tokens_per_second"] = pace
    return shown
