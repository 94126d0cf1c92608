"""A full disk, a real one: the service waits, says why, and goes on by itself; nothing that it acknowledged is lost."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import psutil
import pytest

from api.client.client import Client, ClientError
from api.processes.data_folder import read_note
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from tests.chaos.processes import attempts_of
from tests.factories.waiting import until
from tests.integration.small_disk import SmallDisk, small_disk


def regression(name: str, steps: int) -> ComparisonSpec:
    """Return a comparison with one run that needs no data: every megabyte of the disk is the service's own."""
    return ComparisonSpec.model_validate(
        {
            "name": name,
            "workload": {
                "task": {"kind": "regression", "dimension": 30},
                "budget": {"steps": steps},
                "evaluation": {"every_steps": 1_000},
            },
            "candidates": [{"optimizer": "sgd", "learning_rates": [0.01]}],
            "seeds": [1],
        }
    )


@contextmanager
def running(disk: SmallDisk, log: Path) -> Iterator[tuple[str, psutil.Process]]:
    """`adapm-bench up` with its data folder, and Ray's, on that disk; its address and its process."""
    environment = os.environ | {"ADAPM_BENCH_FREE_BYTES": "0", "OMP_NUM_THREADS": "1"}
    call = [sys.executable, "-m", "api.cli", "up", "--data", str(disk.folder / "data"), "--port", "0", "--slots", "1"]
    process = disk.start(call, log, environment)
    try:
        note = until(lambda: read_note(disk.path() / "data"), "the service answers")
        yield note.url, psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def dispatchers(supervisor: psutil.Process) -> list[psutil.Process]:
    processes = []
    for child in supervisor.children():
        with suppress(psutil.Error):  # it has just ended
            if child.cmdline()[3:4] == ["dispatcher"]:
                processes.append(child)
    return processes


@pytest.mark.cluster
@pytest.mark.timeout(1_200)
def test_the_service_outlives_a_full_disk(tmp_path: Path) -> None:
    """Its data folder is nobody else's, too: this service has written everything that one writes."""
    disk, log = small_disk(tmp_path / "disk", 64), tmp_path / "up.log"
    with running(disk, log) as (url, supervisor), Client(url) as client:
        long = client.submit(regression("long", 100_000_000)).experiment.id
        until(lambda: client.experiment(long).progress.steps_done > 0, "it trains")
        for training in attempts_of(supervisor):
            training.nice(19)  # a training at full speed, all the while, would take a core from the tests beside it
        children = set(supervisor.children())

        disk.fill()
        until(lambda: "is full" in (client.health().hindrance or ""), "the service says why it waits")
        until(lambda: "is full" in log.read_text(), "standard error says so, too")
        assert "is full" in httpx2.get(f"{url}/", trust_env=False).text
        # What is left in the write-ahead log's last page takes some; those are acknowledged, too.
        refused = until(lambda: refusal(client, regression("waiting", 2_000)), "a submission is refused")
        assert refused.status == 507
        assert "no room" in str(refused)
        acknowledged = {experiment.id for experiment in client.experiments(limit=500)} - {long}
        time.sleep(3.0)  # of trouble for every process, each of which looks several times a second
        assert set(supervisor.children()) == children

        steps = client.experiment(long).progress.steps_done
        disk.make_room()
        until(lambda: client.experiment(long).progress.steps_done > steps, "the training's reports arrive again")
        until(lambda: client.health().hindrance is None, "nothing is in the way")
        until(lambda: "there is room again" in log.read_text(), "standard error says that it goes on")
        (run,) = client.runs(experiment_id=long)
        assert (run.status, run.attempt) == (RunStatus.RUNNING, 1)
        acknowledged.add(client.submit(regression("short", 2_000)).experiment.id)

        disk.fill()
        (killed,) = dispatchers(supervisor)
        killed.kill()
        until(lambda: [process for process in dispatchers(supervisor) if process != killed], "another dispatcher waits")
        disk.make_room()
        until(lambda: client.runs(experiment_id=long)[0].attempt == 2, "the run goes on")
        client.cancel_experiment(long)
        for submitted_id in acknowledged:
            until(lambda id=submitted_id: client.experiment(id).counts.done(), f"{submitted_id} has ended")  # type: ignore[misc]
            assert client.experiment(submitted_id).counts.by_status == {RunStatus.SUCCEEDED: 1}
        assert supervisor.is_running()
        assert open_to_others(disk.path() / "data") == []


def open_to_others(folder: Path) -> list[str]:
    """Return the files below the folder, itself included, that anybody but its owner may read, write or enter."""
    open_paths = []
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):  # the service has just removed it
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & 0o077:
                open_paths.append(f"{path} {stat.filemode(mode)}")
    return open_paths


def refusal(client: Client, spec: ComparisonSpec) -> ClientError | None:
    try:
        client.submit(spec)
    except ClientError as error:
        return error
    return None


def run_on(disk: SmallDisk, program: str) -> str:
    """Return the output of a program in Python on that disk, its argument."""
    command = disk.command([sys.executable, "-c", program, str(disk.folder)])
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout


SILENCE = """
import sys
from pathlib import Path
from orchestrator.errors import DiskFullError
from orchestrator.jobs import LeasePolicy
from orchestrator.store.database import Database
from orchestrator.store.queue.queue import Queue
from tests.integration.small_disk import fill_up
from tests.factories.services import make_services
from tests.factories.stores import claim, comparison_spec
from worker.records.protocol import Heartbeat

folder = Path(sys.argv[1])
database = Database(f"sqlite:///{folder / 'bench.sqlite3'}")
database.migrate()
queue, services = Queue(database, LeasePolicy()), make_services(database, folder)
services.experiments.submit(comparison_spec(seeds=(1,)))
(lease,) = claim(queue, cpus=1, limit=1)
services.attempts.hello(lease.run_id, lease.attempt, lease.token)
queue.reap()
ballast = fill_up(folder)
refusals = 0
for seconds in range(10, 100, 10):  # as long as the disk is full no heartbeat is kept, and nobody is to blame
    database.clock_offset_seconds = seconds
    try:
        assert queue.reap() == ()
    except DiskFullError:
        refusals += 1
assert refusals and database.is_full()
ballast.unlink()
assert queue.reap() == ()
services.attempts.heartbeat(lease.run_id, lease.attempt, lease.token, Heartbeat(step=1, device_seconds=1.0))
assert queue.reap() == () and not database.is_full()
lost = 0
for _ in range(6):
    database.clock_offset_seconds += 10
    lost += len(queue.reap())
print(lost)
"""


def test_workers_that_could_not_be_heard_on_a_full_disk_are_not_lost(tmp_path: Path) -> None:
    assert run_on(small_disk(tmp_path / "disk", 8), SILENCE) == "1\n", "one that stays silent is lost after the grace"


SPOOLED = """
import sys
from pathlib import Path
from tests.integration.small_disk import fill_up
from worker.errors import ServiceUnavailableError
from worker.records.protocol import PointsBatch
from worker.records.result import Point
from worker.reporting.http import MEMORY_MESSAGES, ReportOutbox

folder = Path(sys.argv[1])
steps, away = [], True

def post(verb, body):
    if away:
        raise ServiceUnavailableError("away")
    steps.extend(point.step for point in PointsBatch.model_validate_json(body).points)

outbox = ReportOutbox(post, folder / "spool", 1, flush_seconds=0.01)
ballast = fill_up(folder)
outbox.start()
count = 2 * MEMORY_MESSAGES * 1_000
for step in range(count):
    outbox.add_point(Point(step=step, tokens=step))
assert not list(folder.glob("spool/*.json"))
ballast.unlink()
outbox.add_point(Point(step=count, tokens=count))
outbox.persist()
assert len(list(folder.glob("spool/*.json"))) > 2 * MEMORY_MESSAGES
away = False
outbox.drain(60)
outbox.close()
assert steps == list(range(count + 1)), len(steps)
assert not list(folder.glob("spool/*"))
"""


def test_reports_that_the_disk_has_no_room_for_stay_in_memory(tmp_path: Path) -> None:
    run_on(small_disk(tmp_path / "disk", 24), SPOOLED)


def test_a_log_without_room_ends_no_process(tmp_path: Path) -> None:
    """Neither by what structlog writes nor by a bare `print`, and it says what was lost once there is room again."""
    log = run_on(small_disk(tmp_path / "disk", 1), LOGGED)
    assert "were lost" in log and "after" in log


LOGGED = """
import os, sys
from pathlib import Path
folder = Path(sys.argv[1])
told = os.dup(1)
log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.dup2(log, 1)
os.dup2(log, 2)
import structlog
from orchestrator.logs import configure_logs, keep_standard_streams
from tests.integration.small_disk import fill_up
keep_standard_streams()
configure_logs("dispatcher")
ballast = fill_up(folder)
for number in range(200):
    structlog.get_logger("x").warning("no room", number=number, text="x" * 100)
    print("x" * 100)
ballast.unlink()
structlog.get_logger("x").warning("after")
os.write(told, (folder / "log").read_bytes())
"""
