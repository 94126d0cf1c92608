"""The reporter that tells the service: an outbox for what must arrive, a heartbeat for what must not be late.

Both have a thread of their own; the training loop only ever appends to a queue and reads a flag.
"""

import logging
from pathlib import Path
from typing import Final, Self

from worker.errors import ServiceUnavailableError, WorkerError
from worker.meters.clock import DeviceClock
from worker.records.protocol import NOTE_CHARACTERS, CheckpointNotice, Command, Failure, Heartbeat, Stopped
from worker.records.result import Observation, Point, Record, Result, TextSamples
from worker.repeating import Repeating
from worker.reporting.client import CHECKPOINT, FAIL, FINISH, HEARTBEAT, STOPPED, ServiceClient, Verb
from worker.reporting.outbox import ReportOutbox, Spool, reports
from worker.reporting.reporter import Reporter
from worker.reporting.story import Story
from worker.spec.run import RunSpec

logger = logging.getLogger(__name__)

SPOOL_FOLDER: Final = "spool"
PATIENCE_SECONDS: Final = 3_600.0
"""A finished run waits this long for a service that is away before it gives up its result."""


class HttpReporter(Reporter):
    """Reports one attempt, and tells its log. Use it in a `with`: threads run from entry to exit."""

    def __init__(
        self,
        service: ServiceClient,
        spec: RunSpec,
        *,
        attempt: int,
        run_folder: Path,
        heartbeat_seconds: float,
        clock: DeviceClock,
        flush_seconds: float = 1.0,
        patience_seconds: float = PATIENCE_SECONDS,
        first_step: int = 0,
    ) -> None:
        self._service, self._clock, self._story = service, clock, Story(spec)
        self._patience_seconds = patience_seconds
        self._spool = Spool(run_folder / SPOOL_FOLDER, attempt)
        self._outbox = ReportOutbox(service.post, self._spool, flush_seconds=flush_seconds)
        self._step = first_step
        self._command = Command.CONTINUE
        self._error: WorkerError | None = None
        self._heart = Repeating("heartbeat", heartbeat_seconds, self._beat)

    def __enter__(self) -> Self:
        self._outbox.start()
        self._heart.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._outbox.close()
        self._heart.stop()

    def begin(self, after_step: int | None) -> None:
        """Take over the unsent points of earlier attempts that still count, and drop the others."""
        inherited = self._spool.inherited_batches()
        for report in reports(inherited, after_step):
            if isinstance(report, Point):
                self._outbox.add_point(report)
            else:
                self._outbox.add_observation(report)
        try:
            self._outbox.persist()  # under this attempt's name, before the old files go
        except OSError as error:
            logger.warning("the points of earlier attempts stay where they are: %s", error)
        else:
            for path in inherited:
                path.unlink(missing_ok=True)
        self._step = after_step or 0
        self._story.begin(after_step)

    def command(self) -> Command:
        """Return the last heartbeat's answer; raises `LeaseRevokedError` or `ReportRefusedError` if that was the
        answer."""
        if (error := self._error or self._outbox.error) is not None:
            raise error
        return self._command

    def point(self, point: Point) -> None:
        self._step = point.step
        self._outbox.add_point(point)
        self._story.point(point)

    def observe(self, observation: Observation | TextSamples) -> None:
        self._outbox.add_observation(observation)

    def persist(self) -> None:
        self._outbox.persist()

    def checkpoint(self, notice: CheckpointNotice) -> None:
        self._outbox.add(CHECKPOINT, notice.model_dump_json().encode())
        self._story.checkpoint(notice.step)

    def note(self, text: str) -> None:
        """Log it, and queue a heartbeat that tells it: the word must arrive, whatever becomes of the others."""
        logger.warning("%s", text)
        heartbeat = Heartbeat(step=self._step, device_seconds=self._clock.seconds(), note=text[:NOTE_CHARACTERS])
        self._outbox.add(HEARTBEAT, heartbeat.model_dump_json().encode())

    def finish(self, result: Result) -> None:
        self._deliver(FINISH, result)
        self._story.end(result)

    def report_stop(self, stopped: Stopped) -> None:
        self._deliver(STOPPED, stopped)
        logger.info("stopped at step %d: %s", stopped.step, stopped.command.value)

    def fail(self, failure: Failure) -> None:
        self._deliver(FAIL, failure)

    def _deliver(self, verb: Verb, record: Record) -> None:
        """Deliver after all points."""
        self._outbox.add(verb, record.model_dump_json().encode())
        self._outbox.drain(self._patience_seconds)

    def _beat(self) -> bool:
        """Give a sign of life; False once the service refuses for good."""
        heartbeat = Heartbeat(step=self._step, device_seconds=self._clock.seconds())
        try:
            self._command = self._service.heartbeat(heartbeat).command
        except ServiceUnavailableError as error:
            logger.warning("no answer to a heartbeat: %s", error)
        except WorkerError as error:
            self._error = error
            return False
        return True
