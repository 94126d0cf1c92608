"""An attempt by a group, as each of its processes goes through it. Whoever starts them has made torch's process group.

rank 0    attempt.execute: hello, lease, reports, checkpoints; its outcome is the attempt's, left in the mailbox
others    the same training without a service; a fault of theirs is left in the mailbox
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from worker.attempt import MESSAGE_CHARACTERS, execute, failure_kind
from worker.distributed.mailbox import RankFault, RankMailbox, StopFile
from worker.distributed.process_group import ProcessGroup, is_exchange_fault
from worker.errors import RunStoppedError, TerminatedError
from worker.meters.clock import DeviceClock
from worker.records.protocol import Assignment
from worker.reporting.log import log_path, log_to_file
from worker.reporting.reporter import Reporter
from worker.run import Folders, run
from worker.training.device import is_out_of_memory

logger = logging.getLogger(__name__)

BROKEN_OFF: Final = 1
"""The exit code of a process that leaves before the others do."""


def lead(service_url: str, assignment: Assignment, token: str, group: ProcessGroup, clock: DeviceClock) -> None:
    """Carry out the attempt as rank 0; ends the process if the others have to be notified."""
    assert group.mailbox is not None
    outcome = execute(service_url, assignment.run_id, assignment.attempt, token, group=group, clock=clock)
    group.mailbox.report_outcome(outcome)
    _leave(group)


def follow(assignment: Assignment, group: ProcessGroup) -> None:
    """Train with the first process until it says stop, or to the end; ends the process where that goes wrong."""
    assert group.mailbox is not None
    if assignment.spec.resources.gpus == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with log_to_file(log_path(Path(assignment.run_folder), assignment.attempt, group.rank)):
        logger.info("process %d of %d: begins as %d", group.rank, group.size, os.getpid())
        folders = Folders.from_assignment(assignment)
        attend(group.mailbox, group, lambda: _train(assignment, folders, group))
    _leave(group)


def attend(mailbox: RankMailbox, group: ProcessGroup, train: Callable[[], object]) -> None:
    """Train as one of the others; whatever breaks it is left in the mailbox."""
    try:
        train()
    except (RunStoppedError, TerminatedError) as stop:
        logger.info("%s", stop)
    except Exception as error:  # the first process has to tell the service what it was
        logger.error("process %d breaks down", group.rank, exc_info=error)
        if not is_exchange_fault(error):  # else another one has left word, or was killed
            mailbox.report_fault(_fault(error, group.rank))


def _train(assignment: Assignment, folders: Folders, group: ProcessGroup) -> None:
    assert group.mailbox is not None
    termination = StopFile(group.mailbox)
    run(
        assignment.spec,
        Reporter(),
        folders,
        assignment.checkpoint,
        termination=termination,
        micro_batch_sequences=assignment.micro_batch_sequences,
        group=group,
    )


def _fault(error: Exception, rank: int) -> RankFault:
    return RankFault(
        rank=rank,
        kind=failure_kind(error),
        out_of_memory=is_out_of_memory(error),
        message=(str(error) or type(error).__name__)[: MESSAGE_CHARACTERS // 2],
    )


def _leave(group: ProcessGroup) -> None:
    """Return where all do; else end the process at once: its connections break, and the others look for the reason."""
    if not group.ended_together:
        logging.shutdown()
        os._exit(BROKEN_OFF)
