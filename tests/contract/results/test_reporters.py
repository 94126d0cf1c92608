"""Promises of every reporter to any listener, one suite over files and the service; and what the files are."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest
from pydantic import ValidationError

from tests.factories.specification import made_spec
from tests.factories.stores import result
from tests.fakes.attempt_service import TOKEN, AttemptService
from worker.meters.clock import DeviceClock
from worker.records.protocol import Assignment, CheckpointNotice, Command, Failure, FailureKind, Stopped
from worker.records.result import Observation, Point, Record, Result
from worker.reporting.client import ServiceClient
from worker.reporting.http import HttpReporter
from worker.reporting.reporter import FileReporter, Reporter, read_reports


class Listener(Protocol):
    """The reporters of one run, an attempt after the other, and the listener's knowledge in the end."""

    def attempt(self) -> Reporter:
        """The reporter of the next attempt; the one before is gone, as after a kill."""

    def points(self) -> list[Point]:
        """Return the known points: for each step the newest attempt's."""

    def observations(self) -> list[Observation]:
        """Alike."""

    def ending(self) -> Record | None:
        """The result, the stop or the failure."""


class FileListener:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def attempt(self) -> Reporter:
        return FileReporter(self.folder)

    def points(self) -> list[Point]:
        return read_reports(self.folder, Point)

    def observations(self) -> list[Observation]:
        return read_reports(self.folder, Observation)

    def ending(self) -> Record | None:
        if (self.folder / "result.json").exists():
            return Result.model_validate_json((self.folder / "result.json").read_bytes())
        text = (self.folder / "ending.json").read_bytes()
        return (Stopped if b"command" in text else Failure).model_validate_json(text)


class HttpListener:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        assignment = Assignment(
            run_id="r1",
            attempt=0,
            spec=made_spec(),
            lease_seconds=30,
            heartbeat_seconds=5,
            run_folder=str(folder),
            dataset_folder=str(folder),
        )
        self.service = stack.enter_context(AttemptService(assignment))
        self.folder, self.stack, self.number = folder, stack, 0
        self.reporters = ExitStack()
        stack.push(self.reporters)

    def attempt(self) -> Reporter:
        self.reporters.close()
        self.number += 1
        self.service.begin_attempt(self.number)
        client = self.reporters.enter_context(ServiceClient(self.service.url, "r1", self.number, TOKEN))
        reporter = HttpReporter(
            client,
            made_spec(),
            attempt=self.number,
            run_folder=self.folder,
            heartbeat_seconds=5,
            clock=DeviceClock(),
            flush_seconds=0.02,
        )
        return self.reporters.enter_context(reporter)

    def points(self) -> list[Point]:
        return [self.service.points[step] for step in sorted(self.service.points)]

    def observations(self) -> list[Observation]:
        return [self.service.observations[key] for key in sorted(self.service.observations)]

    def ending(self) -> Record | None:
        return self.service.ending


@pytest.fixture(params=["file", "http"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listener]:
    with ExitStack() as stack:
        if request.param == "file":
            yield FileListener(tmp_path)
        else:
            yield HttpListener(tmp_path, stack)


def point(step: int, loss: float = 3.0) -> Point:
    return Point(step=step, tokens=step * 128, train_loss=loss, lr=1e-3)


def test_points_and_result_arrive_whole_and_in_order(listener: Listener) -> None:
    """After `finish` returns, nothing is on its way any more."""
    reporter = listener.attempt()
    reporter.begin(None)
    for step in range(50):
        reporter.point(point(step))
    reporter.finish(result())

    assert listener.points() == [point(step) for step in range(50)]
    assert listener.ending() == result()


@pytest.mark.parametrize(
    "ending",
    [
        Stopped(command=Command.PAUSE, step=3, device_seconds=1.5),
        Failure(kind=FailureKind.PROGRAM, message="it broke", device_seconds=1.5),
    ],
)
def test_a_stop_and_a_failure_arrive_behind_the_points(listener: Listener, ending: Stopped | Failure) -> None:
    """The points up to then are kept."""
    reporter = listener.attempt()
    reporter.begin(None)
    reporter.point(point(0))
    reporter.finish(ending)

    assert listener.points() == [point(0)]
    assert listener.ending() == ending


@pytest.mark.parametrize("after_step", [None, 0, 3])
def test_a_later_attempt_replaces_what_an_earlier_one_took_beyond_its_checkpoint(
    listener: Listener, after_step: int | None
) -> None:
    """Up to the checkpoint the first attempt's points stay, from there on the second's count."""
    first = listener.attempt()
    first.begin(None)
    for step in range(6):
        first.point(point(step, loss=1.0))
    first.persist()

    second = listener.attempt()
    second.begin(after_step)
    resumed_at = -1 if after_step is None else after_step
    for step in range(resumed_at + 1, 8):
        second.point(point(step, loss=2.0))
    second.finish(result())

    assert listener.points() == [point(step, loss=1.0 if step <= resumed_at else 2.0) for step in range(8)]


def seen(step: int, norm: float = 1.0) -> Observation:
    return Observation(step=step, probe="residual", blocks={"wte": {"relative_norm": norm}})


@pytest.mark.parametrize("after_step", [None, 2])
def test_observations_arrive_with_their_points_and_are_replaced_like_them(
    listener: Listener, after_step: int | None
) -> None:
    """Those beyond the checkpoint are taken again; those before it outlive the first attempt."""
    first = listener.attempt()
    first.begin(None)
    for step in range(1, 5):
        first.observe(seen(step, norm=1.0))
        first.point(point(step))
    first.persist()

    second = listener.attempt()
    second.begin(after_step)
    resumed_at = after_step or 0
    for step in range(resumed_at + 1, 6):
        second.observe(seen(step, norm=2.0))
        second.point(point(step))
    second.finish(result())

    assert listener.observations() == [seen(step, norm=1.0 if step <= resumed_at else 2.0) for step in range(1, 6)]


def test_without_a_command_a_run_goes_on_and_checkpoints_may_be_told(listener: Listener) -> None:
    """Neither call waits or fails."""
    reporter = listener.attempt()
    reporter.begin(None)

    reporter.checkpoint(CheckpointNotice(step=1, path="/somewhere", size_bytes=1, sha256="0" * 64))

    assert reporter.command() is Command.CONTINUE


def test_a_line_that_a_kill_cut_short_is_left_out_and_does_not_spoil_the_next_attempt(tmp_path: Path) -> None:
    """Half a line at the end is not a point; one in the middle is damage and is said."""
    first = FileReporter(tmp_path)
    first.begin(None)
    first.point(Point(step=0, tokens=0))
    first.point(Point(step=1, tokens=1))
    first.persist()
    file = tmp_path / "points.jsonl"
    file.write_text(file.read_text()[:-9])
    assert read_reports(tmp_path, Point) == [Point(step=0, tokens=0)]

    second = FileReporter(tmp_path)
    second.begin(0)
    second.point(Point(step=1, tokens=1))
    second.persist()
    assert read_reports(tmp_path, Point) == [Point(step=0, tokens=0), Point(step=1, tokens=1)]

    file.write_text("half\n" + file.read_text())
    with pytest.raises(ValidationError):
        read_reports(tmp_path, Point)


def test_an_older_ending_is_gone_when_a_run_begins_again(tmp_path: Path) -> None:
    """A folder never says of a running run that it failed."""
    reporter = FileReporter(tmp_path)
    reporter.begin(None)
    reporter.finish(Failure(kind=FailureKind.PROGRAM, message="it broke", device_seconds=1.0))
    assert (tmp_path / "ending.json").exists()

    FileReporter(tmp_path).begin(None)
    assert not (tmp_path / "ending.json").exists()
