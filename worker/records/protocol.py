"""The words that a worker and the service exchange over HTTP about one attempt.

    POST /v1/attempts/{run_id}/{attempt}/hello       {}                → Assignment      leased  → running
    POST /v1/attempts/{run_id}/{attempt}/heartbeat   Heartbeat         → HeartbeatReply  running → running
    POST /v1/attempts/{run_id}/{attempt}/points      PointsBatch       → 204             idempotent by `sequence`
    POST /v1/attempts/{run_id}/{attempt}/checkpoint  CheckpointNotice  → 204
    POST /v1/attempts/{run_id}/{attempt}/finish      Result            → 204             running → succeeded
    POST /v1/attempts/{run_id}/{attempt}/stopped     Stopped           → 204             cancelling → cancelled, …
    POST /v1/attempts/{run_id}/{attempt}/fail        Failure           → 204             running → retry_wait | failed

Every request carries `Authorization: Bearer <lease token>`. 409 means that the lease is gone: the worker stops at
once and writes nothing more. Repeating a request that was already accepted, with the same token, is answered as the
first time was.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import ConfigDict, Field

from worker.records.columns import PointColumns
from worker.records.result import Finite, Observation, Point, Record, Result, Seconds, StoredText, TextSamples, Whole
from worker.schema import WHOLE_NUMBER, omit_default
from worker.spec.run import RunSpec


class CheckpointNotice(Record):
    """A checkpoint that is complete on disk."""

    model_config = ConfigDict(extra="ignore")  # notices of earlier versions say a validation loss, too

    step: Whole
    path: StoredText
    """The path on the worker's machine; once it is copied to a remote folder, its URL there."""
    size_bytes: Whole
    sha256: StoredText
    attempt: Whole | None = None
    """The attempt that wrote it; null of those that were written before this was noted."""

    def rank(self) -> tuple[int, int]:
        """Return (attempt, step), which is greater for the later of two checkpoints."""
        return self.attempt or 0, self.step


class Assignment(Record):
    """The assignment of an attempt to a worker."""

    run_id: str
    attempt: int
    spec: RunSpec
    lease_seconds: Finite
    """The lease ends this long after the last heartbeat that the service has seen."""
    heartbeat_seconds: Finite
    run_folder: str
    """Checkpoints and spooled reports of this run."""
    dataset_folder: str
    """Prepared token shards, shared by all runs."""
    checkpoint: CheckpointNotice | None = None
    """The newest checkpoint of earlier attempts."""
    counted_steps: dict[int, Whole] = Field(default={})
    """The last step that counts of each earlier attempt with checkpoints: later attempts went on from there or from
    before, and anything behind it is void."""
    micro_batch_sequences: int | None = None
    """Instead of the specification's, since an earlier attempt ran out of memory."""
    checkpoint_url: str | None = None
    """The run's remote folder, which checkpoints are copied to."""
    dataset_url: str | None = None
    """The remote folder of prepared data, which are fetched from there where they are missing."""


class Command(StrEnum):
    """The command of the service to a running attempt."""

    CONTINUE = "continue"
    CANCEL = "cancel"
    PAUSE = "pause"
    STOP_EARLY = "stop_early"
    """Finish with what there is: the answer is a result, not a `Stopped`."""


NOTE_CHARACTERS: Final = 1_000
"""Length of an attempt's note on itself."""


class Heartbeat(Record):
    """A sign of life with the progress so far."""

    step: Whole = 0
    device_seconds: Seconds = 0.0
    """Time that this attempt has held its device so far."""
    note: Annotated[str, Field(max_length=NOTE_CHARACTERS)] | None = None
    """A note on this attempt for people; the last one stays with it."""


class HeartbeatReply(Record):
    """The service's answer to a sign of life."""

    command: Command = Command.CONTINUE


class PointsBatch(Record):
    """Points in the order of their steps; `sequence` counts the batches of one attempt from 0."""

    sequence: Annotated[int, Field(ge=0, le=2**31 - 1), WHOLE_NUMBER]
    columns: PointColumns
    """The points, field by field."""
    observations: Annotated[tuple[Observation, ...], Field(max_length=10_000)] = ()
    """The observations of probes at steps up to the last of these points."""
    samples: Annotated[tuple[TextSamples, ...], Field(max_length=1_000)] = omit_default(())
    """The texts of the model at those steps."""

    @classmethod
    def from_points(
        cls, sequence: int, points: Iterable[Point], seen: Iterable[Observation | TextSamples] = ()
    ) -> Self:
        """Return a batch of points that are at hand as records, with what was seen at their steps."""
        every = tuple(seen)
        return cls(
            sequence=sequence,
            columns=PointColumns.from_points(points),
            observations=tuple(report for report in every if isinstance(report, Observation)),
            samples=tuple(report for report in every if isinstance(report, TextSamples)),
        )

    @property
    def points(self) -> tuple[Point, ...]:
        """The points as records."""
        return self.columns.points()

    def body(self) -> bytes:
        """Return the batch as it is sent and spooled."""
        return self.model_dump_json(exclude_none=True).encode()


class Stopped(Record):
    """The attempt obeyed a command: it wrote a checkpoint and left."""

    command: Command
    step: Whole
    device_seconds: Seconds


class FailureKind(StrEnum):
    """The reason why an attempt broke down."""

    INFRASTRUCTURE = "infrastructure"
    """Disk, network or process trouble: another attempt may succeed."""
    PROGRAM = "program"
    """An exception in training code: another attempt would meet it again."""
    INTERRUPTED = "interrupted"
    """Its process was asked to end (SIGTERM) and wrote a checkpoint: another attempt goes on, without a failure."""
    STORAGE_FULL = "storage_full"
    """A disk of the worker's machine has no room; no failure of the run, which is tried again after a while."""
    OUT_OF_MEMORY = "out_of_memory"
    """The device has no room for a step with this micro-batch: another attempt takes half of it."""


class Failure(Record):
    """The attempt ended without a result and without a command."""

    kind: FailureKind
    message: Annotated[str, Field(max_length=4_000)]
    device_seconds: Seconds


LastWord = Result | Stopped | Failure
"""How an attempt ends, by its worker."""
