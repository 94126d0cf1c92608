"""The actor of one attempt. Its process imports this file, so it imports nothing that a worker can do without.

With the runner's imports, the database's among them, every attempt began 0.4 s of processor time later.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.crew_shape import CrewShape

NEVER_STARTED = "never started"
"""What an adopted actor says whose dispatcher died before its call had arrived."""


class AttemptActor:
    """Runs in a process of its own on some node: executes one attempt with the worker's code."""

    def __init__(self) -> None:
        self._word = NEVER_STARTED

    def last_word(self) -> str:
        """What `execute` returned. Calls are carried out one after the other: this one waits for its end."""
        return self._word

    def process_id(self) -> int:
        """The process to signal."""
        return os.getpid()

    def execute(
        self, service_url: str, run_id: str, attempt: int, token: str, gpus: int, crew: "CrewShape | None" = None
    ) -> str:
        """Train, alone or with a crew, report to the service, and return one word for the log."""
        if crew is not None:
            from orchestrator.crew_runner import execute_together

            self._word = execute_together(service_url, run_id, attempt, token, crew)
            return self._word
        if gpus == 0:
            # Ray leaves the variable unset for actors without a GPU, and torch would see them all.
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        from worker.attempt import execute

        self._word = str(execute(service_url, run_id, attempt, token))
        return self._word
