"""An attempt by a crew, as each of its processes goes through it. Whoever starts them has made torch's process group.

rank 0    attempt.execute: hello, lease, reports, checkpoints; its word is the attempt's, left in the crew's folder
others    the same training without a service; a fault of theirs is left in the folder
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from worker.attempt import MESSAGE_CHARACTERS, execute, failure_kind
from worker.distributed.mailbox import CrewFault, CrewFolder, LeaveNote
from worker.distributed.process_group import Crew, is_exchange_fault
from worker.errors import RunStoppedError, TerminatedError
from worker.meters.clock import DeviceClock
from worker.records.protocol import Assignment
from worker.reporting.log import log_path, logged_to
from worker.reporting.reporter import SilentReporter
from worker.run import Folders, run
from worker.training.device import is_out_of_memory

logger = logging.getLogger(__name__)

BROKEN_OFF: Final = 1
"""The exit code of a process that leaves before the others do."""


def lead(service_url: str, assignment: Assignment, token: str, crew: Crew, clock: DeviceClock) -> None:
    """Carry out the attempt as the crew's first process; ends the process where the others have to be told so."""
    assert crew.folder is not None
    word = execute(service_url, assignment.run_id, assignment.attempt, token, crew=crew, clock=clock)
    crew.folder.end(word)
    _leave(crew)


def follow(assignment: Assignment, crew: Crew) -> None:
    """Train with the first process until it says stop, or to the end; ends the process where that goes wrong."""
    assert crew.folder is not None
    if assignment.spec.resources.gpus == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with logged_to(log_path(Path(assignment.run_folder), assignment.attempt, crew.rank)):
        logger.info("process %d of %d: begins as %d", crew.rank, crew.size, os.getpid())
        folders = Folders.of(assignment)
        attend(crew.folder, crew, lambda: _train(assignment, folders, crew))
    _leave(crew)


def attend(folder: CrewFolder, crew: Crew, train: Callable[[], object]) -> None:
    """Train as one of the others; whatever breaks it is left in the folder."""
    try:
        train()
    except (RunStoppedError, TerminatedError) as stop:
        logger.info("%s", stop)
    except Exception as error:  # the first process has to tell the service what it was
        logger.error("process %d breaks down", crew.rank, exc_info=error)
        if not is_exchange_fault(error):  # else another one has left word, or was killed
            folder.report(_fault(error, crew.rank))


def _train(assignment: Assignment, folders: Folders, crew: Crew) -> None:
    assert crew.folder is not None
    note = LeaveNote(crew.folder)
    run(
        assignment.spec,
        SilentReporter(),
        folders,
        assignment.checkpoint,
        termination=note,
        micro_batch_sequences=assignment.micro_batch_sequences,
        keep_best=assignment.keep_best,
        crew=crew,
    )


def _fault(error: Exception, rank: int) -> CrewFault:
    return CrewFault(
        rank=rank,
        kind=failure_kind(error),
        out_of_memory=is_out_of_memory(error),
        message=(str(error) or type(error).__name__)[: MESSAGE_CHARACTERS // 2],
    )


def _leave(crew: Crew) -> None:
    """Return where all do; else end the process at once: its connections break, and the others look for the reason."""
    if not crew.ended_together:
        logging.shutdown()
        os._exit(BROKEN_OFF)
