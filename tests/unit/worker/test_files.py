"""A file appears whole or not at all: after a kill, on a full disk, with several writers."""

import multiprocessing
import os
import resource
import signal
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from worker.files import UNFINISHED, atomic_replacement, create_once, write_atomically


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with content."""
    file = tmp_path / "note.json"
    file.write_text("before")
    return file


@pytest.mark.parametrize("durable", [False, True])
def test_the_new_content_replaces_the_old_and_leaves_nothing_beside_it(path: Path, durable: bool) -> None:
    write_atomically(path, "größer", durable=durable)
    assert path.read_bytes() == "größer".encode()
    write_atomically(path, b"\xff", durable=durable)
    assert path.read_bytes() == b"\xff"
    assert list(path.parent.iterdir()) == [path]


def _killed_while_writing(path: Path) -> None:
    with atomic_replacement(path, durable=True) as unfinished:
        unfinished.write_text("half of i")
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_writer_that_is_killed_leaves_the_old_content(path: Path) -> None:
    """What it had begun carries a name that says so."""
    writer = multiprocessing.get_context("fork").Process(target=_killed_while_writing, args=(path,))
    writer.start()
    writer.join()
    assert (writer.exitcode, path.read_text()) == (-signal.SIGKILL, "before")
    (leftover,) = set(path.parent.iterdir()) - {path}
    assert leftover.name.startswith("note.json.")
    assert leftover.suffix == UNFINISHED


def _write_without_room(path: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    try:
        write_atomically(path, b"x" * 1000, durable=True)
    except OSError:
        os._exit(7)


def test_a_disk_without_room_leaves_the_old_content_and_no_trace(path: Path) -> None:
    writer = multiprocessing.get_context("fork").Process(target=_write_without_room, args=(path,))
    writer.start()
    writer.join()
    assert (writer.exitcode, path.read_text(), list(path.parent.iterdir())) == (7, "before", [path])


def test_several_writers_do_not_mix(path: Path) -> None:
    contents = [f"{number}" * 50_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write_atomically(path, content), contents))
    assert path.read_text() in contents
    assert list(path.parent.iterdir()) == [path]


def test_only_the_first_creates_a_file_and_its_rights_hold_from_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "key"
    create_once(path, "first", mode=0o600)
    create_once(path, "second", mode=0o644)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode), list(tmp_path.iterdir())) == ("first", 0o600, [path])
