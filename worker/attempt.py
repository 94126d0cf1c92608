"""An attempt from hello to its end, as the scheduler's actor calls it: in a fresh process, with a lease token.

    hello ──► run ──► finish    the run has a result
                 ├──► stopped   a cancel or a pause was obeyed
                 └──► fail      it broke down; the service decides whether another attempt is made

torch is imported after the hello, so heartbeats hold the lease while it loads.
"""

import logging
import os
import shutil
import traceback
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from worker.distributed.mailbox import StopFile
from worker.errors import (
    LeaseRevokedError,
    RunStoppedError,
    ServiceUnavailableError,
    TerminatedError,
    WorkerError,
    is_disk_full,
)
from worker.meters.clock import DeviceClock
from worker.records.protocol import Assignment, Failure, FailureKind
from worker.reporting.client import ServiceClient
from worker.reporting.http import HttpReporter
from worker.reporting.log import FOLDER, log_path, log_to_file
from worker.reporting.remote_logs import copy_logs_at_end
from worker.reporting.reporter import Reporter
from worker.termination import Termination

if TYPE_CHECKING:
    from worker.distributed.process_group import ProcessGroup

logger = logging.getLogger(__name__)

MESSAGE_CHARACTERS: Final = 4_000
"""Length of a failure's message that the protocol allows."""


class AttemptExit(StrEnum):
    """The end of an attempt, for the scheduler's log; the service knows it already, or cannot be reached."""

    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    TERMINATED = "terminated"
    """SIGTERM: a checkpoint was written and the interruption reported, so that another attempt goes on."""
    FAILED = "failed"
    LEASE_LOST = "lease_lost"
    UNREACHABLE = "unreachable"
    """The service was away for too long; the lease runs out and another attempt follows."""
    REFUSED = "refused"
    """The service understood the reports in another way than they were meant: versions differ."""


def execute(
    service_url: str,
    run_id: str,
    attempt: int,
    token: str,
    *,
    group: "ProcessGroup | None" = None,
    clock: DeviceClock | None = None,
) -> str:
    """Carry out an attempt; returns an `AttemptExit`'s value and raises nothing that training code can raise.

    `group` is this process's place where several train together, as rank 0; `clock` began when the device was
    taken, by default now.
    """
    clock = clock or DeviceClock()
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it would log a line a heartbeat
    try:
        with ServiceClient(service_url, run_id, attempt, token) as service:
            return _attempt(service, clock, group).value
    except LeaseRevokedError as error:
        logger.warning("run %s, attempt %d: %s", run_id, attempt, error)
        return AttemptExit.LEASE_LOST.value
    except ServiceUnavailableError as error:
        logger.error("run %s, attempt %d: %s", run_id, attempt, error)
        return AttemptExit.UNREACHABLE.value
    except WorkerError as error:  # what is left when even the failure could not be reported
        logger.error("run %s, attempt %d: %s", run_id, attempt, error)
        return AttemptExit.REFUSED.value


def _attempt(service: ServiceClient, clock: DeviceClock, group: "ProcessGroup | None") -> AttemptExit:
    assignment = service.hello()
    if assignment.spec.resources.gpus == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # schedulers leave it unset, and a CPU run must not touch a GPU
    log = log_path(Path(assignment.run_folder), assignment.attempt)
    with copy_logs_at_end(assignment), log_to_file(log):
        return _carry_out(assignment, service, clock, group)


def _carry_out(
    assignment: Assignment, service: ServiceClient, clock: DeviceClock, group: "ProcessGroup | None"
) -> AttemptExit:
    logger.info("run %s, attempt %d: begins in process %d", assignment.run_id, assignment.attempt, os.getpid())
    with HttpReporter(
        service,
        assignment.spec,
        attempt=assignment.attempt,
        run_folder=Path(assignment.run_folder),
        heartbeat_seconds=assignment.heartbeat_seconds,
        clock=clock,
        # Heartbeats come before the checkpoint is read; progress must not seem to start again meanwhile.
        first_step=assignment.checkpoint.step if assignment.checkpoint else 0,
    ) as reporter:
        try:
            _run(assignment, reporter, clock, group)
        except (LeaseRevokedError, ServiceUnavailableError):
            raise  # nobody is there to be told
        except RunStoppedError as stop:
            reporter.finish(stop.stopped)
            return AttemptExit.STOPPED
        except Exception as error:  # whatever breaks a run must reach the service in words
            if isinstance(error, WorkerError):
                logger.error("the run ends without a result: %s", error)
                message = str(error)[:MESSAGE_CHARACTERS]
            else:
                logger.error("the run broke down", exc_info=error)
                message = "".join(traceback.format_exception(error))[-MESSAGE_CHARACTERS:]
            reporter.finish(Failure(kind=failure_kind(error), message=message, device_seconds=clock.seconds()))
            return AttemptExit.TERMINATED if isinstance(error, TerminatedError) else AttemptExit.FAILED
    forget_checkpoints(Path(assignment.run_folder))
    return AttemptExit.SUCCEEDED


def forget_checkpoints(run_folder: Path) -> None:
    """Delete the checkpoints of a run with a recorded result, which would fill the disk. Logs stay."""
    for path in run_folder.iterdir():
        if path.name == FOLDER:
            continue
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _run(assignment: Assignment, reporter: Reporter, clock: DeviceClock, group: "ProcessGroup | None") -> None:
    termination = Termination()
    if group is not None and group.mailbox is not None:
        group.mailbox.begin()  # heartbeats come from here now
        termination = StopFile(group.mailbox)
    # A SIGTERM while torch loads waits for the first step, where the run can leave in order.
    with termination:
        from worker.run import Folders, run  # loads torch

    run(
        assignment.spec,
        reporter,
        Folders.from_assignment(assignment),
        assignment.checkpoint,
        clock=clock,
        termination=termination,
        micro_batch_sequences=assignment.micro_batch_sequences,
        retried_smaller=True,
        group=group,
    )


def failure_kind(error: Exception) -> FailureKind:
    """Return the kind of a failure: disk, network and memory errors may pass, a full disk is not the run's fault; any
    other error would recur."""
    if isinstance(error, WorkerError):
        return error.kind
    if is_disk_full(error):
        return FailureKind.STORAGE_FULL
    passing = isinstance(error, OSError | MemoryError)
    return FailureKind.INFRASTRUCTURE if passing else FailureKind.PROGRAM
