"""Copies of logs: their end, from a line's beginning; what has not changed stays; storage that is away costs a word."""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.errors import NotFoundError
from orchestrator.services.runs import log_tail
from orchestrator.storage import Storage
from tests.fakes.attempt_service import made_assignment
from worker.errors import LeaseRevokedError, RemoteFolderError
from worker.remote.folder import RemoteFolder
from worker.reporting.log import log_path, log_to_file
from worker.reporting.remote_logs import MOST_BYTES, RemoteLogs, copy_logs_at_end


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/remote"


def printed(run_folder: Path, attempt: int, text: str, rank: int = 0) -> None:
    path = log_path(run_folder, attempt, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_each_log_of_the_attempt_is_copied_when_it_has_grown(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    write = RemoteFolder.write

    def counted(folder: RemoteFolder, name: str, content: bytes) -> None:
        written.append(name)
        write(folder, name, content)

    monkeypatch.setattr(RemoteFolder, "write", counted)
    printed(tmp_path / "run", 1, "of another attempt\n")
    printed(tmp_path / "run", 2, "first\n")
    printed(tmp_path / "run", 2, "second\n", rank=1)
    logs = RemoteLogs(f"{url}/r1", tmp_path / "run", 2)
    logs.copy()
    logs.copy()
    printed(tmp_path / "run", 2, "first\nand more\n")
    logs.copy()
    path = "logs/attempt-2.log"
    assert written == [path, "logs/attempt-2-process-1.log", path]
    assert RemoteFolder(url).read(f"r1/{path}") == b"first\nand more\n"


def test_the_end_of_a_long_log_is_copied_and_read_from_whole_lines(tmp_path: Path, url: str) -> None:
    line = "x" * 99
    printed(tmp_path / "run", 1, f"{line}\n" * (MOST_BYTES // 100 + 50) + "the end\n")
    RemoteLogs(f"{url}/r1", tmp_path / "run", 1).copy()
    content = RemoteFolder(url).read("r1/logs/attempt-1.log")
    assert content is not None and MOST_BYTES - 100 <= len(content) <= MOST_BYTES
    assert content.startswith(f"{line}\n".encode()) and content.endswith(b"the end\n")
    storage = Storage(data_folder=tmp_path, checkpoint_url=url)
    assert log_tail(storage, "r1", 1, 120) == f"{line}\nthe end\n"
    assert log_tail(storage, "r1", 1, 2 * MOST_BYTES) == content.decode()


def test_the_log_on_this_machine_comes_before_its_copy(tmp_path: Path, url: str) -> None:
    printed(tmp_path / "runs" / "r1", 1, "as it was copied\n")
    RemoteLogs(f"{url}/r1", tmp_path / "runs" / "r1", 1).copy()
    printed(tmp_path / "runs" / "r1", 1, "as it is now\n")
    assert log_tail(Storage(data_folder=tmp_path, checkpoint_url=url), "r1", 1, 2**16) == "as it is now\n"


def test_storage_that_is_away_costs_a_word_for_who_writes_and_for_who_reads(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*arguments: object) -> bytes:
        raise RemoteFolderError("away") from ConnectionError()

    monkeypatch.setattr(RemoteFolder, "write", away)
    monkeypatch.setattr(RemoteFolder, "read", away)
    printed(tmp_path / "run", 1, "words\n")
    with caplog.at_level(logging.WARNING):
        RemoteLogs(f"{url}/r1", tmp_path / "run", 1).copy()
    assert "this machine alone" in caplog.text
    with pytest.raises(NotFoundError, match="its copy cannot be read now: away"):
        log_tail(Storage(data_folder=tmp_path, checkpoint_url=url), "r1", 1, 2**16)


@pytest.mark.parametrize(("error", "copied"), [(None, True), (MemoryError(), True), (LeaseRevokedError("gone"), False)])
def test_an_attempt_copies_its_log_at_its_end_unless_the_run_is_anothers(
    tmp_path: Path, url: str, error: Exception | None, copied: bool
) -> None:
    assignment = made_assignment(tmp_path / "run", tmp_path, checkpoint_url=f"{url}/r1")
    printed(tmp_path / "run", 1, "the last words\n")
    with suppress(MemoryError, LeaseRevokedError), copy_logs_at_end(assignment):
        if error is not None:
            raise error
    assert (RemoteFolder(url).read("r1/logs/attempt-1.log") is not None) == copied


def a_link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def another_name(path: Path, target: Path) -> None:
    path.hardlink_to(target)


def a_pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("put", [a_link, another_name, a_pipe])
def test_what_is_no_file_of_the_run_is_neither_shown_nor_copied_nor_written_to(
    tmp_path: Path, put: Callable[[Path, Path], None]
):
    """The file of another that a link, of either kind, leads to."""
    secret = tmp_path / "secret"
    secret.write_text("of somebody else\n")
    runs = tmp_path / "runs"
    path = log_path(runs / "r1", 1)
    path.parent.mkdir(parents=True)
    put(path, secret)
    with pytest.raises(NotFoundError, match="attempt 1 of run r1 is not shown: a "):
        log_tail(Storage(data_folder=tmp_path), "r1", 1, 100)
    with log_to_file(path):  # a training goes on without a log
        print("overwritten")
    assert secret.read_text() == "of somebody else\n"


@pytest.mark.parametrize("linked", ["r1", "r1/logs"])
def test_folders_of_a_run_that_are_links_lead_nowhere(tmp_path: Path, linked: str):
    elsewhere = tmp_path / "elsewhere" / "runs"
    path = log_path(elsewhere / "r1", 1)
    path.parent.mkdir(parents=True)
    path.write_text("of somebody else\n")
    (tmp_path / "runs" / linked).parent.mkdir(parents=True)
    (tmp_path / "runs" / linked).symlink_to(elsewhere / linked)
    with pytest.raises(NotFoundError, match="is not shown"):
        log_tail(Storage(data_folder=tmp_path), "r1", 1, 100)
    (tmp_path / "linked").symlink_to(elsewhere.parent)  # where all runs are is the operator's to say
    assert log_tail(Storage(data_folder=tmp_path / "linked"), "r1", 1, 100) == "of somebody else\n"
