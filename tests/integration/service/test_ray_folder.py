"""The Ray of a running service: who may enter its folder. `tests/chaos/test_kill.py` kills the dispatcher around it."""

import os
import stat
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.timeout(300)

NOBODY = 65534


@pytest.fixture(scope="module")
def data_folder(service_url: str, service_folder: Path) -> Path:
    """That of a service whose Ray has started."""
    until(lambda: "dispatching" in dispatcher_log(service_folder), "Ray has started")
    return service_folder


def test_only_the_service_enters_the_folder_of_its_ray(data_folder: Path):
    """Whatever Ray leaves open to everybody lies below a folder that is not; above it nothing can be put in its
    place."""
    closed = ray_folder(data_folder)
    open_to_all = [path for path in closed.rglob("*") if not path.is_symlink() and path.stat().st_mode & stat.S_IWOTH]
    assert open_to_all, "Ray's own folders are; without them this test says nothing"
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert closed.stat().st_uid == os.getuid()
    for above in closed.parents:
        mode = above.stat().st_mode
        assert mode & stat.S_ISVTX or not mode & stat.S_IWOTH, above
    below = [f"/proc/{process.pid}/fd" for process in ray_processes(closed)]
    logs = {os.readlink(link) for fds in below for link in Path(fds).iterdir() if "/logs/" in os.readlink(link)}
    assert logs, "the logs of Ray are among them"
    assert all(log.startswith(f"{closed}/") for log in logs)


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_another_user_of_the_machine_can_put_nothing_there(data_folder: Path):
    logs = next(ray_folder(data_folder).glob("**/logs"))
    victim = data_folder / "bench.sqlite3"
    for attempt in (f"ls '{logs}'", f"ln -sf '{victim}' '{logs}/debug_state.txt'", f"touch '{logs}/../sockets/raylet'"):
        tried = subprocess.run(
            ["sh", "-c", attempt], cwd="/", user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True
        )
        assert tried.returncode != 0
        assert "ermission denied" in tried.stderr


def ray_folder(data_folder: Path) -> Path:
    """The folder that the service's Ray has for itself."""
    return Path((data_folder / "ray_folder").read_text())


def dispatcher_log(data_folder: Path) -> str:
    return (data_folder / "logs" / "dispatcher.log").read_text()


def ray_processes(folder: Path) -> list[psutil.Process]:
    """The processes below this one that have a file of the folder open, but for the dispatcher."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error, OSError):
            links = [os.readlink(link) for link in Path(f"/proc/{process.pid}/fd").iterdir()]
            if "dispatcher" not in process.cmdline() and any(link.startswith(str(folder)) for link in links):
                found.append(process)
    return found


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while True:
        with suppress(FileNotFoundError):
            if condition():
                return
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.1)
