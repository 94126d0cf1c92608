"""The HTTP reporter against a real server: away, back, forgetful, commanding, and lost to somebody else; and what each
answer means to its client."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.factories.specification import made_spec
from tests.factories.stores import result
from tests.factories.waiting import until
from tests.fakes.attempt_service import TOKEN, AttemptService, made_assignment
from worker.backoff import backoff
from worker.errors import LeaseRevokedError, ReportRefusedError, ServiceUnavailableError
from worker.meters.clock import DeviceClock
from worker.records.protocol import CheckpointNotice, Command, PointsBatch
from worker.records.result import Observation, Point
from worker.reporting.client import POINTS, ServiceClient, Verb
from worker.reporting.http import BATCH_OBSERVATIONS, BATCH_OBSERVED_BYTES, HttpReporter


@pytest.fixture
def service(tmp_path: Path) -> Iterator[AttemptService]:
    assignment = made_assignment(
        tmp_path, checkpoint=CheckpointNotice(step=3, path="/x", size_bytes=5, sha256="0" * 64)
    )
    with AttemptService(assignment) as running:
        yield running


@contextmanager
def reporting(
    service: AttemptService,
    folder: Path,
    *,
    attempt: int = 1,
    heartbeat_seconds: float = 0.03,
    patience_seconds: float = 600,
    flush_seconds: float = 0.03,
) -> Iterator[HttpReporter]:
    with (
        ServiceClient(service.url, "r1", attempt, TOKEN) as client,
        HttpReporter(
            client,
            made_spec(),
            attempt=attempt,
            run_folder=folder,
            heartbeat_seconds=heartbeat_seconds,
            clock=DeviceClock(),
            flush_seconds=flush_seconds,
            patience_seconds=patience_seconds,
        ) as reporter,
    ):
        yield reporter


def points(count: int, first: int = 0) -> list[Point]:
    return [Point(step=step, tokens=step) for step in range(first, first + count)]


def arrived(service: AttemptService) -> list[int]:
    return [point.step for batch in service.batches for point in batch.points]


def test_a_note_arrives_behind_the_points(service: AttemptService, tmp_path: Path) -> None:
    """However often the heart beats without it, and also where the run ends at once."""
    with reporting(service, tmp_path, heartbeat_seconds=60) as reporter:
        reporter.note("went on from step 5" + "!" * 2_000)
        reporter.finish(result())
    (beat,) = service.heartbeats
    assert beat.note == ("went on from step 5" + "!" * 2_000)[:1_000]


def test_points_travel_in_batches_while_the_run_goes_on(service: AttemptService, tmp_path: Path) -> None:
    """A hundred points make a few requests, not a hundred."""
    with reporting(service, tmp_path, flush_seconds=0.2) as reporter:
        for point in points(100):
            reporter.point(point)
        until(lambda: len(service.points) == 100, "all have arrived")

    assert arrived(service) == list(range(100))
    assert len(service.batches) < 50


def test_the_service_may_be_away_and_nothing_is_lost_doubled_or_waited_for(
    service: AttemptService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections are refused in the middle of a run; reporting stays instant; all comes in order afterwards."""
    refused, post = threading.Event(), ServiceClient.post

    def watched(client: ServiceClient, verb: Verb, body: bytes) -> bytes:
        try:
            return post(client, verb, body)
        except ServiceUnavailableError:
            if verb == POINTS:
                refused.set()
            raise

    monkeypatch.setattr(ServiceClient, "post", watched)
    with reporting(service, tmp_path) as reporter:
        for point in points(20):
            reporter.point(point)
        until(lambda: len(service.points) == 20, "the first ones have arrived")
        service.stop()
        for point in points(500, first=20):
            reporter.point(point)
        assert reporter.command() is Command.CONTINUE
        until(refused.is_set, "points were refused")
        service.start()
        reporter.finish(result())

    assert arrived(service) == list(range(520))
    assert service.ending == result()


def test_a_batch_whose_answer_was_lost_is_repeated_under_its_number(service: AttemptService, tmp_path: Path) -> None:
    """The service sees it twice, and counts it once."""
    with reporting(service, tmp_path, heartbeat_seconds=60) as reporter:
        service.lose_answers = 2
        reporter.point(Point(step=1, tokens=0))
        reporter.finish(result())

    assert arrived(service) == [1]
    assert service.repeated_batches == 2


def test_a_long_absence_goes_to_disk_and_comes_back_in_order(service: AttemptService, tmp_path: Path) -> None:
    """20,000 points are more than memory should keep; the files are gone once they were accepted."""
    service.status = 503
    with reporting(service, tmp_path) as reporter:
        for point in points(20_000):
            reporter.point(point)
        assert list((tmp_path / "spool").glob("a0001-*.json"))
        service.status = None
        reporter.finish(result())

    assert arrived(service) == list(range(20_000))
    assert not list((tmp_path / "spool").iterdir())


def test_points_that_a_dead_attempt_left_are_brought_by_the_next(service: AttemptService, tmp_path: Path) -> None:
    """Those up to the checkpoint, under the new attempt; the rest was void."""
    service.status = 503
    with reporting(service, tmp_path) as dying:
        for point in points(10):
            dying.point(point)
        dying.persist()
    service.status = None
    service.begin_attempt(2)

    with reporting(service, tmp_path, attempt=2) as reporter:
        reporter.begin(6)
        reporter.point(Point(step=7, tokens=7))
        reporter.finish(result())

    assert arrived(service) == list(range(8))
    assert not list((tmp_path / "spool").iterdir())


def observed(step: int, probe: str = "residual", blocks: int = 1) -> Observation:
    return Observation(step=step, probe=probe, blocks={f"h.{n}.weight": {"relative_norm": 0.5} for n in range(blocks)})


def spooled(folder: Path, attempt: int, sequence: int, points: list[Point], *observations: Observation) -> None:
    """A batch that an attempt left behind."""
    batch = PointsBatch.from_points(sequence=sequence, points=tuple(points), seen=observations)
    (folder / "spool").mkdir(exist_ok=True)
    (folder / "spool" / f"a{attempt:04d}-{sequence:09d}.json").write_bytes(batch.body())


def test_a_long_absence_with_probes_is_inherited_in_batches_that_the_service_takes(
    service: AttemptService, tmp_path: Path
) -> None:
    """More observations than one batch may hold; they leave in the order in which they came, and all do."""
    probes = [f"probe-{n}" for n in range(90)]
    for sequence in range(12):
        steps = range(10 * sequence, 10 * sequence + 10)
        observations = [observed(step, probe) for step in steps for probe in probes]
        spooled(tmp_path, 1, sequence, points(10, first=10 * sequence), *observations)
    service.begin_attempt(2)

    with reporting(service, tmp_path, attempt=2, flush_seconds=60) as reporter:
        reporter.begin(119)
        reporter.finish(result())

    assert arrived(service) == list(range(120))
    assert len(service.observations) == 10_800
    assert max(len(batch.observations) for batch in service.batches) < 2 * BATCH_OBSERVATIONS
    assert not list((tmp_path / "spool").iterdir())


def test_large_observations_fill_a_batch_by_their_bytes(service: AttemptService, tmp_path: Path) -> None:
    """About 1 MB each: ninety of them are fewer than a batch may hold, and more than the service reads at once."""
    wide = observed(0, blocks=25_000)
    size_bytes = len(wide.model_dump_json())
    with reporting(service, tmp_path, flush_seconds=60) as reporter:
        for step in range(40):
            reporter.observe(wide.model_copy(update={"step": step}))
            reporter.point(Point(step=step, tokens=step))
        reporter.finish(result())

    assert arrived(service) == list(range(40))
    assert len(service.observations) == 40
    assert max(len(batch.model_dump_json()) for batch in service.batches) < BATCH_OBSERVED_BYTES + 2 * size_bytes


def test_what_a_killed_takeover_left_twice_is_brought_once(service: AttemptService, tmp_path: Path) -> None:
    """The second attempt had written its own copies, one of them anew, and not yet deleted those of the first."""
    spooled(tmp_path, 1, 0, points(2), observed(0), observed(1))
    spooled(tmp_path, 1, 1, points(2, first=2), observed(2))
    spooled(tmp_path, 2, 0, [Point(step=step, tokens=99) for step in range(3)], observed(0), observed(1), observed(2))
    service.begin_attempt(3)

    with reporting(service, tmp_path, attempt=3) as reporter:
        reporter.begin(5)
        reporter.finish(result())

    assert arrived(service) == [0, 1, 2, 3]
    assert [service.points[step].tokens for step in range(4)] == [99, 99, 99, 3]
    assert sorted(observation.step for batch in service.batches for observation in batch.observations) == [0, 1, 2]
    assert not list((tmp_path / "spool").iterdir())


def test_a_damaged_spool_file_is_passed_over(service: AttemptService, tmp_path: Path) -> None:
    """A gap in a curve is no reason to fail a run."""
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "a0001-000000000.json").write_text('{"sequence": 0')
    service.begin_attempt(2)

    with reporting(service, tmp_path, attempt=2) as reporter:
        reporter.begin(6)
        reporter.finish(result())

    assert arrived(service) == []
    assert not list((tmp_path / "spool").iterdir())


def test_heartbeats_carry_step_and_device_time_and_bring_commands(service: AttemptService, tmp_path: Path) -> None:
    """A command is seen within a heartbeat."""
    with reporting(service, tmp_path) as reporter:
        reporter.point(Point(step=4, tokens=0))
        until(lambda: service.heartbeats and service.heartbeats[-1].step == 4, "a heartbeat tells of it")
        assert reporter.command() is Command.CONTINUE
        service.command = Command.PAUSE
        until(lambda: reporter.command() is Command.PAUSE, "the command is heard")

    seconds = [heartbeat.device_seconds for heartbeat in service.heartbeats]
    assert seconds == sorted(seconds)
    assert seconds[-1] > 0


@pytest.mark.parametrize("who", ["heartbeat", "points"])
def test_a_lost_lease_ends_the_run_at_its_next_step(service: AttemptService, tmp_path: Path, who: str) -> None:
    """Whichever request learns of it first; nothing is delivered or spooled any more."""
    with reporting(service, tmp_path, heartbeat_seconds=0.03 if who == "heartbeat" else 60) as reporter:
        service.begin_attempt(2)
        if who == "points":
            reporter.point(Point(step=1, tokens=0))

        def lost() -> bool:
            try:
                reporter.command()
            except LeaseRevokedError:
                return True
            return False

        until(lost, "the worker knows")
        with pytest.raises(LeaseRevokedError, match="409"):
            reporter.finish(result())

    assert (arrived(service), service.ending) == ([], None)


def test_patience_has_an_end_and_unsent_points_stay_on_disk(service: AttemptService, tmp_path: Path) -> None:
    """The next attempt will find them."""
    service.status = 503
    with reporting(service, tmp_path, patience_seconds=0.2) as reporter:
        reporter.point(Point(step=1, tokens=0))
        with pytest.raises(ServiceUnavailableError, match="not accepted within"):
            reporter.finish(result())

    assert [path.name for path in (tmp_path / "spool").iterdir()] == ["a0001-000000000.json"]


def test_hello_waits_for_a_service_that_is_just_starting(service: AttemptService) -> None:
    """The dispatcher may be quicker than the api process."""
    service.lose_answers = 2
    with ServiceClient(service.url, "r1", 1, TOKEN) as client:
        assert client.hello() == service.assignment


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (409, LeaseRevokedError),
        (401, ReportRefusedError),
        (404, ReportRefusedError),
        (422, ReportRefusedError),
        (429, ServiceUnavailableError),
        (500, ServiceUnavailableError),
        (200, ReportRefusedError),
    ],
)
def test_every_answer_has_its_meaning(service: AttemptService, status: int, error: type[Exception]) -> None:
    """A 200 with a body in other words is a refusal too."""
    service.status = status
    with ServiceClient(service.url, "r1", 1, TOKEN) as client, pytest.raises(error, match=r"hello was answered"):
        client.hello(patience_seconds=0)


def test_pauses_double_up_to_a_bound_and_are_jittered() -> None:
    """Each is between half of its step and the whole of it."""
    pauses = list(itertools.islice(backoff(0.2, 5.0), 8))

    for pause, step in zip(pauses, [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0], strict=True):
        assert step / 2 <= pause <= step
