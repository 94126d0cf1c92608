"""The actor of one attempt. Its process imports this file, so it imports nothing that a worker can do without.

With the runner's imports, the database's among them, every attempt began 0.4 s of processor time later.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.store.queue.capacity import ProcessGroupShape
    from worker.warm_start import PreparedProcess

NEVER_STARTED = "never started"
"""What an adopted actor says whose dispatcher died before its call had arrived."""
OUTDATED = "outdated"
"""What a warm actor says that has imported code which was changed since."""


class AttemptActor:
    """Runs in a process of its own on some node: executes one attempt with the worker's code."""

    def __init__(self) -> None:
        self._outcome = NEVER_STARTED
        self._prepared: PreparedProcess | None = None

    def prepare(self, gpus: int) -> None:
        """Become warm: import now what an attempt with so many GPUs will need; takes seconds."""
        _show_devices(gpus)
        from worker.warm_start import PreparedProcess  # after the devices are chosen

        self._prepared = PreparedProcess()

    def last_word(self) -> str:
        """What `execute` returned. Calls are carried out one after the other: this one waits for its end."""
        return self._outcome

    def process_id(self) -> int:
        """The process to signal."""
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
        """Train, alone or with a group, report to the service, and return one word for the log."""
        if group is not None:
            from orchestrator.dispatch.distributed_runner import execute_distributed  # for a group alone

            self._outcome = execute_distributed(service_url, run_id, attempt, token, group)
            return self._outcome
        _show_devices(gpus)
        from worker.meters.clock import DeviceClock  # as above

        clock = DeviceClock() if self._prepared is None else self._prepared.clock()
        from worker.attempt import execute  # which takes device time, here as in a warm actor

        if self._prepared is not None and self._prepared.is_outdated():
            self._outcome = OUTDATED
            return self._outcome
        self._outcome = str(execute(service_url, run_id, attempt, token, clock=clock))
        return self._outcome


def _show_devices(gpus: int) -> None:
    """Before torch is imported. For actors without a GPU Ray leaves it unset, and torch would see all."""
    if gpus == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
