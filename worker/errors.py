"""The errors of `worker`: one root, a class for each kind of fault. Each message ends with the way out.

A training that diverges or runs out of device memory is not an error: it is a result with that verdict.
"""

import errno
from typing import Final

from worker.records.protocol import FailureKind, Stopped

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors of the system for an exhausted disk or quota: they pass once somebody makes room."""


def is_disk_full(error: BaseException) -> bool:
    """Return whether the system refused to write for want of room."""
    return isinstance(error, OSError) and error.errno in DISK_FULL


class WorkerError(Exception):
    """A run could not be trained, measured or reported."""

    kind = FailureKind.PROGRAM
    """Whether another attempt could succeed where this one broke down."""


class DataError(WorkerError):
    """A dataset could not be read, tokenised or cut into sequences."""


class CorruptShardError(DataError):
    """A prepared token shard is not what its manifest says."""


class HubError(DataError):
    """The Hugging Face hub, or a copy of it, cannot be read."""

    kind = FailureKind.INFRASTRUCTURE


class RemoteFolderError(WorkerError):
    """A folder that is not on this machine cannot be read or written."""

    kind = FailureKind.INFRASTRUCTURE


class StorageFullError(DataError):
    """The disk has no room for what is being prepared."""

    kind = FailureKind.STORAGE_FULL


class WeightsError(WorkerError):
    """Initial weights are missing, or are not those of the model."""


class DeviceError(WorkerError):
    """The run asks for a device that this process does not have."""


class OptimizerError(WorkerError):
    """The optimizer cannot be built for this model: a rule fits none of its blocks, for instance."""


class CheckpointError(WorkerError):
    """A checkpoint could not be written, or belongs to another run."""


class OutOfMemoryError(WorkerError):
    """The device has no room for a step with this micro-batch; half of it may fit."""

    kind = FailureKind.OUT_OF_MEMORY


class RankLostError(WorkerError):
    """Another process that trains the same run is gone: it was killed, or its machine is out of reach."""

    kind = FailureKind.INFRASTRUCTURE


class RankFaultError(WorkerError):
    """Another process that trains the same run broke down, and left word why."""

    def __init__(self, message: str, kind: FailureKind) -> None:
        super().__init__(message)
        self.kind = kind


class RankMemoryError(MemoryError):
    """Another process that trains the same run ran out of memory: the verdict is that of the run."""


class ServiceUnavailableError(WorkerError):
    """The service did not answer within the time that a worker waits for it."""

    kind = FailureKind.INFRASTRUCTURE


class ReportRefusedError(WorkerError):
    """A report can never be delivered: the service refused it as malformed, or it cannot be read back."""


class LeaseRevokedError(WorkerError):
    """The service gave the run to somebody else: this worker stops at once and writes nothing more."""


class TerminatedError(WorkerError):
    """The process was asked to leave (SIGTERM, Ctrl-C); it wrote a checkpoint, so another attempt goes on."""

    kind = FailureKind.INTERRUPTED


class RunStoppedError(WorkerError):
    """The service asked for a cancel or a pause; it was obeyed after a checkpoint."""

    def __init__(self, stopped: Stopped) -> None:
        super().__init__(f"stopped at step {stopped.step} on the command {stopped.command.value!r}")
        self.stopped = stopped
