"""The Ray of a running service: who may enter its folder, and whom it answers. `tests/chaos/test_kill.py` kills the
dispatcher around it."""

import os
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.architecture.tree import REPOSITORY
from tests.chaos.processes import cluster_address, dispatcher_of, raylet_of
from tests.factories.waiting import until

pytestmark = pytest.mark.timeout(300)

NOBODY = 65534


@pytest.fixture(scope="module")
def data_folder(service_url: str, service_folder: Path) -> Path:
    """Return the data folder of a service whose Ray has started."""
    until(lambda: "dispatching" in dispatcher_log(service_folder), "Ray has started")
    return service_folder


def test_only_the_service_enters_the_folder_of_its_ray(data_folder: Path):
    """Whatever Ray leaves open to everybody lies below a folder that is not; above it nothing can be put in its
    place."""
    closed = ray_folder(data_folder)
    assert any(is_open_to_all(path) for path in closed.rglob("*")), (
        "Ray's own folders are; without them this test says nothing"
    )
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert closed.stat().st_uid == os.getuid()
    for parent in closed.parents:
        mode = parent.stat().st_mode
        assert mode & stat.S_ISVTX or not mode & stat.S_IWOTH, parent
    logs = {file for files in files_of_ray(closed) for file in files if "/logs/" in file}
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


def files_of_ray(folder: Path) -> list[list[str]]:
    """Return the open files of each process below this one that has a file of the folder open, but for the
    dispatcher."""
    dispatcher = dispatcher_of(psutil.Process())
    processes = [process for process in psutil.Process().children(recursive=True) if process != dispatcher]
    file_lists = [open_files(process.pid) for process in processes]
    return [files for files in file_lists if any(file.startswith(str(folder)) for file in files)]


def open_files(process_id: int) -> list[str]:
    """Return the open files of a process that may just close some, or end."""
    targets = []
    with suppress(OSError):
        for link in Path(f"/proc/{process_id}/fd").iterdir():
            with suppress(FileNotFoundError):
                targets.append(os.readlink(link))
    return targets


def is_open_to_all(path: Path) -> bool:
    """Ray may just remove it."""
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        return not stat.S_ISLNK(mode) and bool(mode & stat.S_IWOTH)
    return False


def test_it_answers_whoever_has_its_token(data_folder: Path, tmp_path: Path):
    """Asked by `adapm-bench doctor` as a cluster is: by Ray's own client, in a process of its own."""
    raylet = raylet_of(dispatcher_of(psutil.Process()))
    assert raylet is not None
    address = cluster_address(raylet)
    (tmp_path / "token").write_text("a" * 64)
    assert asked_with(data_folder / "ray_token", address).stdout.strip().endswith(f", 1 node at {address}")
    assert asked_with(tmp_path / "token", address).returncode == 1


def asked_with(token: Path, address: str) -> subprocess.CompletedProcess[str]:
    """Return the doctor's answer with that token."""
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "ADAPM_BENCH_RAY_ADDRESS": address}
    command = [sys.executable, "-m", "api.cli.admin.checks", "Ray"]
    return subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, env=os.environ | variables, check=False
    )
