"""The actor of one attempt. Its process imports this file, so it imports nothing that a worker can do without.

    RayRunner ──execute──► AttemptActor ──► worker/fork_server.py ──► the process that trains

With the runner's imports, the database's among them, every attempt would begin later.
"""

import logging
import os
from typing import TYPE_CHECKING

from worker.fork_server import ForkRequest, ForkServerError, execute_in_fork
from worker.meters.clock import DeviceClock

if TYPE_CHECKING:
    from orchestrator.store.queue.capacity import ProcessGroupShape

logger = logging.getLogger(__name__)

NEVER_STARTED = "never started"
"""The answer of an adopted actor whose dispatcher died before its call had arrived."""


class AttemptActor:
    """An actor on a node with Ray's resources: executes one attempt with the worker's code, and ends with it."""

    def __init__(self) -> None:
        self._outcome = NEVER_STARTED

    def last_word(self) -> str:
        """Return the result of `execute`. Calls are carried out one after the other: this one waits for its end."""
        return self._outcome

    def process_id(self) -> int:
        """Return the process to signal."""
        return os.getpid()

    def execute(
        self,
        service_url: str,
        run_id: str,
        attempt: int,
        token: str,
        gpus: int,
        group: "ProcessGroupShape | None" = None,
    ) -> str:
        """Train, in a forked process or with a group, report to the service, and return one word for the log."""
        if group is not None:
            from orchestrator.dispatch.distributed_runner import execute_distributed  # for a group alone

            self._outcome = execute_distributed(service_url, run_id, attempt, token, group)
            return self._outcome
        if gpus == 0:  # Ray leaves it unset then, and torch would see all
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        request = ForkRequest(service_url=service_url, run_id=run_id, attempt=attempt, token=token, gpus=gpus)
        try:
            self._outcome = execute_in_fork(request)
        except ForkServerError as error:
            logger.warning("run %s, attempt %d is not forked: %s", run_id, attempt, error)
            clock = DeviceClock()
            from worker.attempt import execute  # its import is device time

            self._outcome = execute(service_url, run_id, attempt, token, clock=clock)
        return self._outcome
