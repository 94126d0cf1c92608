"""The largest micro-batch that the memory holds, found by real steps on a rehearsal of the run that is thrown away.

    candidates   the sizes that cut the batch as evenly as can be into 1, 2, 3, … micro-batches
    trial        two steps of up to two micro-batches, so that gradients and optimizer state are there as in training

The training itself is built afterwards, so that nothing of it has been touched; the random states are put back.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from worker.models import reset_compiler
from worker.training.device import (
    MemoryCap,
    OverMemoryCapError,
    free_memory,
    is_out_of_memory,
    load_random_state,
    random_state,
)
from worker.training.step import Stepper
from worker.words import pluralize

logger = logging.getLogger(__name__)

MicroBatchTrial = Callable[[int], int]
"""Micro-batch → peak bytes of its steps; raises an out-of-memory error where they do not fit."""

_MARGIN: Final = 1.05
"""A size is not even tried where two smaller ones foretell this much more than the limit: a CPU's memory must not run
out for a trial. Memory is linear in the micro-batch."""


def candidates(batch_sequences: int) -> tuple[int, ...]:
    """Return the sizes that cut a batch into 1, 2, 3, … micro-batches as evenly as can be, ascending."""
    return tuple(sorted({-(-batch_sequences // pieces) for pieces in range(1, batch_sequences + 1)}))


def next_smaller(batch_sequences: int, micro_batch_sequences: int) -> int | None:
    """Return the next smaller candidate, None if there is none."""
    return max((size for size in candidates(batch_sequences) if size < micro_batch_sequences), default=None)


def largest_fitting_size(sizes: Sequence[int], trial: MicroBatchTrial, limit_bytes: int | None) -> int:
    """Return the largest of the ascending sizes that fits, by doubling and bisection.

    Args:
        sizes: Ascending.
        trial: What a size needs.
        limit_bytes: No size is tried that is foretold to need clearly more; None if a trial cannot do harm.

    Raises:
        OverMemoryCapError: not even the smallest one fits.
    """
    peaks: dict[int, int] = {}
    fits, fails, tried_whole = -1, len(sizes), False
    while fits + 1 < fails:
        probe = min(2 * fits + 1, len(sizes) - 1) if fails == len(sizes) and fits >= 0 else (fits + fails) // 2
        probe = 0 if fits < 0 else probe
        size = sizes[probe]
        tried_whole = tried_whole or size == sizes[-1]
        peak_bytes = None if _is_foretold_over(size, peaks, limit_bytes) else _peak_or_none(trial, size)
        if peak_bytes is None:
            fails = probe
        else:
            fits, peaks[size] = probe, peak_bytes
    # The whole batch at once may need less than its half: no gradients are there in its forward pass.
    harmless = limit_bytes is None or (len(peaks) > 1 and not _is_foretold_over(sizes[-1], peaks, limit_bytes))
    if not tried_whole and harmless and _peak_or_none(trial, sizes[-1]) is not None:
        return sizes[-1]
    if fits < 0:
        raise OverMemoryCapError(f"not even a micro-batch of {pluralize(sizes[0], 'sequence')} fits into the memory.")
    return sizes[fits]


class TrialSteps:
    """Trials on a model, optimizer and task of their own."""

    def __init__(self, build: Callable[[], Stepper], cap: MemoryCap) -> None:
        """`build` makes a fresh stepper, with all that it needs, on the run's device."""
        self._build = build
        self._limit_bytes = cap.trial_limit_bytes()
        self._stepper: Stepper | None = None

    def largest_micro_batch(self, batch_sequences: int) -> int:
        """Return the largest micro-batch for that batch; leaves no memory behind and the random states as they were."""
        random_states = random_state()
        try:
            return largest_fitting_size(candidates(batch_sequences), self._trial, self._limit_bytes)
        finally:
            self._stepper = None
            free_memory()
            load_random_state(random_states)

    def _trial(self, micro_batch_sequences: int) -> int:
        if self._stepper is None:
            self._stepper = self._build()
        stepper = self._stepper
        stepper.micro_batch_sequences = micro_batch_sequences
        try:
            meter = stepper.breakdown_meter()
            for step in range(2):  # the first brings the optimizer's whole state
                stepper.take(step, meter, most_micro_batches=2)
            peak_bytes = meter.result(2, micro_batch_sequences).peak_bytes
        except (RuntimeError, MemoryError):
            self._stepper = None  # an update that broke off leaves a state that no further step may rely on
            raise
        finally:
            reset_compiler()  # after eight shapes torch.compile gives up, and the training would not be compiled
        if self._limit_bytes is not None and peak_bytes > self._limit_bytes:
            raise OverMemoryCapError(f"{peak_bytes} bytes are over the limit of {self._limit_bytes}.")
        return peak_bytes


def _peak_or_none(trial: MicroBatchTrial, size: int) -> int | None:
    """Return the peak of a trial, None if memory ran out."""
    try:
        peak_bytes = trial(size)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        peak_bytes = None
    if peak_bytes is None:  # outside of the handler: the error holds on to the tensors of the steps
        free_memory()
    outcome = f"{peak_bytes} bytes" if peak_bytes else "out of memory"
    logger.info("a micro-batch of %s: %s", pluralize(size, "sequence"), outcome)
    return peak_bytes


def _is_foretold_over(size: int, peaks: dict[int, int], limit_bytes: int | None) -> bool:
    """Return whether the line through the two largest known sizes lies clearly above the limit."""
    if limit_bytes is None or len(peaks) < 2:
        return False
    (small, small_bytes), (large, large_bytes) = sorted(peaks.items())[-2:]
    foretold_bytes = large_bytes + (size - large) * (large_bytes - small_bytes) / (large - small)
    return foretold_bytes > _MARGIN * limit_bytes
