"""The reporter to the service: an outbox for what must arrive, a heartbeat for what must not be late.

    add ──► points waiting ──seal──► messages (memory, then disk) ──one thread──► service

Both have a thread of their own; the training loop only ever appends to a queue and reads a flag. Messages arrive in
order, and none is lost. Points are sealed into numbered batches about once a second. While the service is away they
gather in larger batches, the first few in memory and the rest in the spool, and are sent in order when it is back. A
full disk leaves them in memory.
"""

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Self

from pydantic import ValidationError

from worker.backoff import backoff
from worker.errors import ReportRefusedError, ServiceUnavailableError, WorkerError
from worker.files import write_atomically
from worker.meters.clock import DeviceClock
from worker.records.protocol import (
    NOTE_CHARACTERS,
    CheckpointNotice,
    Command,
    Heartbeat,
    LastWord,
    PointsBatch,
    Stopped,
)
from worker.records.result import Observation, Point, Result, TextSamples
from worker.repeating import Repeating
from worker.reporting.client import CHECKPOINT, FAIL, FINISH, HEARTBEAT, POINTS, STOPPED, ServiceClient, Verb
from worker.reporting.reporter import Report, Reporter, valid_reports
from worker.reporting.story import Story
from worker.spec.run import RunSpec

logger = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 3_600.0
"""A finished run waits this long for a service that is away before it gives up its result."""
BATCH_POINTS: Final = 1_000
"""A batch of this size is about 200 kB of JSON; the protocol allows ten times as much."""
BATCH_OBSERVATIONS: Final = 100
"""The most observations in a batch: of a model of a hundred blocks about 3 MB."""
BATCH_OBSERVED_BYTES: Final = 4 * 2**20
"""JSON of a batch's observations, beyond it those of one step at most; the service reads 16 MiB."""
MEMORY_MESSAGES: Final = 16
"""Sealed messages kept in memory; later ones wait on disk."""
_SPOOLED_NAME: Final = re.compile(r"a(\d+)-(\d+)\.json")


class HttpReporter(Reporter):
    """Reports one attempt, with its log. Use it in a `with`: threads run from entry to exit."""

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
        self._outbox = ReportOutbox(service.post, run_folder / "spool", attempt, flush_seconds=flush_seconds)
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
        self._outbox.inherit(after_step)
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
        """Log it, and queue a heartbeat that reports it: the word must arrive, whatever becomes of the others."""
        logger.warning("%s", text)
        heartbeat = Heartbeat(step=self._step, device_seconds=self._clock.seconds(), note=text[:NOTE_CHARACTERS])
        self._outbox.add(HEARTBEAT, heartbeat.model_dump_json().encode())

    def finish(self, word: LastWord) -> None:
        verb = FINISH if isinstance(word, Result) else STOPPED if isinstance(word, Stopped) else FAIL
        self._outbox.add(verb, word.model_dump_json().encode())
        self._outbox.drain(self._patience_seconds)
        if isinstance(word, Result):
            self._story.end(word)
        elif isinstance(word, Stopped):
            logger.info("stopped at step %d: %s", word.step, word.command.value)

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


@dataclass
class _Message:
    verb: Verb
    body: bytes | None
    """None once the body is on disk alone."""
    sequence: int | None = None
    path: Path | None = None

    def read(self) -> bytes:
        if self.body is not None:
            return self.body
        assert self.path is not None
        return self.path.read_bytes()


class ReportOutbox:
    """The queue and the thread that empties it. `error` is set once the service refuses for good."""

    def __init__(
        self, post: Callable[[Verb, bytes], object], spool: Path, attempt: int, *, flush_seconds: float
    ) -> None:
        """`spool`: the run's folder of unsent batches, a file each, which outlive the service's absence and the
        worker's death; it writes those of this attempt and inherits those of earlier ones."""
        self.error: WorkerError | None = None
        self._post, self._spool, self._attempt, self._flush_seconds = post, spool, attempt, flush_seconds
        self._points: list[Point] = []
        self._observations: list[Observation | TextSamples] = []
        self._observed_bytes = 0
        self._messages: deque[_Message] = deque()
        self._next_sequence = 0
        self._flush_now = self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="outbox", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def inherit(self, after_step: int | None) -> None:
        """Take over the unsent points of earlier attempts that still count, and drop the others."""
        inherited = self._inherited_batches()
        for report in _reports(inherited, after_step):
            if isinstance(report, Point):
                self.add_point(report)
            else:
                self.add_observation(report)
        try:
            self.persist()  # under this attempt's name, before the old files go
        except OSError as error:
            logger.warning("the points of earlier attempts stay where they are: %s", error)
        else:
            for path in inherited:
                path.unlink(missing_ok=True)

    def _inherited_batches(self) -> list[Path]:
        """Return the batches that earlier attempts left, in the order of their sequences; the newest attempt's first.

        There are several attempts' where one was killed while it took over: it left copies, and it counts.
        """
        batches = []
        for path in self._spool.glob("a*.json"):
            match = _SPOOLED_NAME.fullmatch(path.name)
            if match and int(match[1]) < self._attempt:
                batches.append((-int(match[1]), int(match[2]), path))
        return [path for _, _, path in sorted(batches)]

    def add_point(self, point: Point) -> None:
        """Queue a point."""
        with self._changed:
            self._points.append(point)
            self._seal_if_full()

    def add_observation(self, observation: Observation | TextSamples) -> None:
        """Queue an observation; it travels with its step's point, or before it."""
        size_bytes = len(observation.model_dump_json())
        with self._changed:
            self._observations.append(observation)
            self._observed_bytes += size_bytes
            self._seal_if_full()

    def add(self, verb: Verb, body: bytes) -> None:
        """Queue a message behind all points so far."""
        with self._changed:
            self._seal()
            self._messages.append(_Message(verb, body))

    def persist(self) -> None:
        """Return when every unsent point is on disk. Raises `OSError` (disk full)."""
        with self._changed:
            self._seal()
            for message in self._messages:
                self._write_to_disk(message)

    def drain(self, patience_seconds: float) -> None:
        """Return when everything was accepted.

        Raises what the service's refusal means, or `ServiceUnavailableError` when patience ends.
        """
        with self._changed:
            self._seal()
            self._flush_now = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.error or not self._messages, patience_seconds)
            if self.error is not None:
                raise self.error
            if self._messages:
                raise ServiceUnavailableError(
                    f"{len(self._messages)} reports were not accepted within {patience_seconds:g} s. "
                    "Unsent points stay in the run's folder for the next attempt."
                )

    def close(self) -> None:
        """Stop sending; points that are still unsent go to disk, unless the service refused them for good or the disk
        has no room: the run goes on from a checkpoint, and only what lies behind that is lost then."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        if self.error is None:
            try:
                self.persist()
            except OSError as error:
                logger.warning("unsent points are lost: %s", error)

    def _seal_if_full(self) -> None:
        """Keep every batch far below what the service takes; the caller holds the lock."""
        observed = len(self._observations) >= BATCH_OBSERVATIONS or self._observed_bytes >= BATCH_OBSERVED_BYTES
        if observed or len(self._points) >= BATCH_POINTS:
            self._seal()

    def _seal(self) -> None:
        """Turn the waiting points into a message; the caller holds the lock."""
        if not self._points:
            return
        batch = PointsBatch.from_points(self._next_sequence, self._points, self._observations)
        message = _Message(POINTS, batch.body(), batch.sequence)
        self._next_sequence += 1
        self._points, self._observations, self._observed_bytes = [], [], 0
        self._messages.append(message)
        if len(self._messages) > MEMORY_MESSAGES:
            self._swap_out()

    def _swap_out(self) -> None:
        """Keep all but the first messages on disk alone. A disk without room ends no training: they stay in memory
        until there is some, at a batch of a thousand points or fewer a second."""
        try:
            for message in islice(self._messages, MEMORY_MESSAGES, None):
                self._write_to_disk(message)
                if message.path is not None:
                    message.body = None
        except OSError as error:
            logger.warning("unsent points stay in memory: %s", error)

    def _write_to_disk(self, message: _Message) -> None:
        """Write at once or not at all; not synced, since a process that dies leaves the system up."""
        if message.sequence is not None and message.path is None and message.body is not None:
            self._spool.mkdir(parents=True, exist_ok=True)
            path = self._spool / f"a{self._attempt:04d}-{message.sequence:09d}.json"
            write_atomically(path, message.body)
            message.path = path

    def _work(self) -> None:
        pauses = backoff()
        while (message := self._next_message()) is not None:
            try:
                self._post(message.verb, message.read())
            except ServiceUnavailableError as error:
                logger.warning("%s waits: %s", message.verb, error)
                self._pause(next(pauses))
            except WorkerError as error:
                self._give_up(error)
                return
            except Exception as error:  # a silent thread would hold the device for its whole patience
                logger.exception("%s cannot be sent", message.verb)
                self._give_up(ReportRefusedError(f"{message.verb} cannot be sent: {error!r}"))
                return
            else:
                pauses = backoff()
                with self._changed:
                    self._messages.remove(message)
                    if message.path is not None:
                        message.path.unlink(missing_ok=True)
                    self._changed.notify_all()

    def _next_message(self) -> _Message | None:
        """Wait for the next message; None when closed."""
        with self._changed:
            flush_at = time.monotonic() + self._flush_seconds
            while not self._closed:
                if self._messages:
                    return self._messages[0]
                left_seconds = flush_at - time.monotonic()
                if self._flush_now or left_seconds <= 0:
                    self._flush_now = False
                    self._seal()
                    flush_at = time.monotonic() + self._flush_seconds
                else:
                    self._changed.wait(left_seconds)
            return None

    def _give_up(self, error: WorkerError) -> None:
        with self._changed:
            self.error = error
            self._changed.notify_all()

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)


def _reports(paths: Iterable[Path], after_step: int | None) -> Iterator[Report]:
    """Yield the valid reports of spooled batches, one file in memory at a time; of those in several files the first."""
    keys = set()
    for path in paths:
        for report in _read_valid_reports(path, after_step):
            key = report.step, type(report), report.probe if isinstance(report, Observation) else None
            if key not in keys:
                keys.add(key)
                yield report


def _read_valid_reports(path: Path, after_step: int | None) -> list[Report]:
    """Return a file's observations at each step before its point; empty, with a warning, if the file is damaged."""
    try:
        batch = PointsBatch.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        logger.warning("passed over the damaged spooled batch %s: %s", path, error)
        return []
    observations = valid_reports(list(batch.observations), after_step)
    points = valid_reports(list(batch.points), after_step)
    samples = valid_reports(list(batch.samples), after_step)
    return sorted([*observations, *samples, *points], key=lambda report: (report.step, isinstance(report, Point)))
