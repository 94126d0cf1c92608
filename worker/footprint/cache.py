"""What training needs, for predictions: footprints of single optimizers, counted in another process and kept.

FootprintCache.count(keys) ─► process.count_footprints ─► exact bytes on `meta`   (seconds, once)
"""

import json
import subprocess
from collections.abc import Sequence
from threading import BoundedSemaphore, Lock, Thread
from typing import NamedTuple

from optim.catalog import Scalar
from worker.footprint import process
from worker.records.footprint import Footprint
from worker.records.result import Record

MOST_KEPT = 256
MOST_WAITING = 2
"""Callers that wait for a count, each on a thread that workers' reports need; others are answered at once."""


class OptimizerOptions(NamedTuple):
    """An optimizer with its options, as JSON so that it can be a key."""

    optimizer: str
    options: str

    @classmethod
    def from_fields(cls, optimizer: str, options: dict[str, Scalar]) -> "OptimizerOptions":
        """From a candidate's fields."""
        return cls(optimizer, json.dumps(options, sort_keys=True))


class FootprintBytes(Record):
    """What training one model with one optimizer keeps, to the byte."""

    parameters: int
    parameter_bytes: int
    gradient_bytes: int
    state_bytes: int | None
    """Null where the optimizer cannot be counted without running it."""


FootprintKey = tuple[str, OptimizerOptions]
"""A model of the catalog, and an optimizer."""


class FootprintCache:
    """Footprints that were counted once. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[FootprintKey, FootprintBytes] = {}
        self._at_work: set[FootprintKey] = set()
        self._lock = Lock()
        self._one_at_a_time = Lock()
        self._waiters = BoundedSemaphore(MOST_WAITING)

    def count(self, keys: Sequence[FootprintKey], *, wait: bool = True) -> dict[FootprintKey, FootprintBytes]:
        """The need of each; those that cannot be counted are left out.

        Without `wait` only what is known is answered, and the rest is counted meanwhile, for the next one who asks.
        """
        with self._lock:
            missing = [each for each in keys if each not in self._known]
            new = [each for each in missing if each not in self._at_work]
            self._at_work.update(missing)
        if missing and wait and self._waiters.acquire(blocking=False):
            try:
                self._count(missing)
            finally:
                self._waiters.release()
        elif new:
            Thread(target=self._count, args=(new,), daemon=True, name="footprints").start()
        with self._lock:
            return {each: self._known[each] for each in keys if each in self._known}

    def _count(self, keys: Sequence[FootprintKey]) -> None:
        with self._one_at_a_time:
            missing = [each for each in keys if each not in self._known]
            found = _count_in_process(missing) if missing else {}
            with self._lock:
                if len(self._known) > MOST_KEPT:
                    self._known.clear()
                self._known |= found
                self._at_work.difference_update(keys)


def _count_in_process(keys: Sequence[FootprintKey]) -> dict[FootprintKey, FootprintBytes]:
    """Those that could be counted: a prediction without its memory is better than none, and another time may do."""
    asked = [
        process.FootprintQuestion(model=model, optimizers=(wanted.optimizer,), options=json.loads(wanted.options))
        for model, wanted in keys
    ]
    try:
        answers = process.count_footprints(asked)
    except (OSError, subprocess.SubprocessError):
        return {}
    return {key: _footprint_bytes(each.footprint) for key, each in zip(keys, answers, strict=True) if each.footprint}


def _footprint_bytes(found: Footprint) -> FootprintBytes:
    return FootprintBytes(
        parameters=found.parameters,
        parameter_bytes=found.parameter_bytes,
        gradient_bytes=found.gradient_bytes,
        state_bytes=found.optimizers[0].state_bytes,
    )
