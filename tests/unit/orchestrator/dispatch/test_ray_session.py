"""The closed folder of an embedded Ray: whose it is, and what becomes of it when its owner is killed."""

import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from orchestrator.dispatch.ray_session import (
    MOST_BASE_BYTES,
    NOTE,
    PREFIX,
    close_session,
    end_leftovers,
    folder_for_sockets,
    open_session,
)
from orchestrator.errors import ClusterError
from tests.factories.waiting import until

OWNER = """
import subprocess, sys, time
from pathlib import Path
from orchestrator.dispatch.ray_session import open_session
session = open_session(Path(sys.argv[1]))
logs = session.temp_dir / "logs"
logs.mkdir(parents=True)
with (logs / "raylet.out").open("w") as out:
    raylet = subprocess.Popen(["sh", "-c", "sleep 1000 & wait"], stdout=out, stderr=out)
print(raylet.pid, flush=True)
time.sleep(1000)
"""
"""A process with a folder, and with a child that writes a log there and has a child itself."""


@pytest.fixture
def own_base(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Folders lie where no service of another test looks for what it may remove."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="a", suffix="") as base:
        monkeypatch.setattr(tempfile, "tempdir", base)
        monkeypatch.setenv("TMPDIR", base)
        yield


@contextmanager
def owner_of_a_session(data_folder: Path) -> Iterator[tuple[psutil.Popen, psutil.Process, Path]]:
    """The owner, its child, and their folder."""
    with psutil.Popen([sys.executable, "-c", OWNER, str(data_folder)], stdout=subprocess.PIPE, text=True) as owner:
        raylet = psutil.Process(int(owner.stdout.readline()))
        try:
            yield owner, raylet, Path((data_folder / NOTE).read_text())
        finally:
            with suppress(psutil.NoSuchProcess):
                owner.kill()
            owner.wait()
            end_leftovers(data_folder)


def test_nobody_else_may_enter(tmp_path: Path):
    session = open_session(tmp_path)
    try:
        assert stat.S_IMODE(session.folder.stat().st_mode) == 0o700
        assert session.temp_dir.parent == session.folder
        socket = session.temp_dir / "session_2026-01-01_00-00-00_000000_1234567" / "sockets" / "plasma_store"
        assert len(str(socket)) <= 107
    finally:
        close_session(session, tmp_path)
    assert not session.folder.exists()
    assert not (tmp_path / NOTE).exists()


@pytest.mark.usefixtures("own_base")
def test_what_a_killed_owner_leaves_is_ended_and_removed(tmp_path: Path):
    """By whoever starts next, with another data folder, too; one who only reads a log goes on."""
    with owner_of_a_session(tmp_path) as (owner, raylet, folder):
        reader = psutil.Popen(["tail", "-f", str(folder / "r" / "logs" / "raylet.out")], stdout=subprocess.DEVNULL)
        family = [raylet, *until(raylet.children, "its child has begun")]
        end_leftovers(tmp_path)
        assert all(is_alive(process) for process in family), "its owner lives"
        owner.kill()
        owner.wait()
        assert all(is_alive(process) for process in family)
        other_folder = tmp_path / "other"
        other_folder.mkdir()
        end_leftovers(other_folder)
        assert not any(is_alive(process) for process in family)
        assert not folder.exists()
        assert is_alive(reader)
        reader.kill()
        reader.wait()


def test_folders_of_others_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is a link, is open to others or has another name is none of ours, whatever the note says."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    (tmp_path / f"{PREFIX}link").symlink_to(target)
    (tmp_path / f"{PREFIX}open").mkdir()
    (tmp_path / f"{PREFIX}open").chmod(0o777)
    (tmp_path / NOTE).write_text(str(target))
    end_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{PREFIX}link", f"{PREFIX}open", NOTE, "target"]


def test_a_folder_of_sockets_is_short_and_not_open_to_everybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", f"{tmp_path}/{'long' * 10}")
    assert folder_for_sockets() == Path("/tmp")
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="a", suffix="") as short:
        short_path = Path(short)
        assert len(short) <= MOST_BASE_BYTES
        monkeypatch.setattr(tempfile, "tempdir", short)
        assert folder_for_sockets() == short_path
        short_path.chmod(0o777)
        assert folder_for_sockets() == Path("/tmp"), "anybody could put another folder there"
        short_path.chmod(0o1777)
        assert folder_for_sockets() == short_path
        monkeypatch.setattr("orchestrator.dispatch.ray_session._bases", lambda: (tmp_path / "missing",))
        with pytest.raises(ClusterError, match="TMPDIR"):
            folder_for_sockets()


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
