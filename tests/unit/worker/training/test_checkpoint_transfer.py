"""Copies of checkpoints: no fault ends them, what is overtaken is not told of, and a run leaves when it is told to."""

import errno
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.factories.waiting import until
from worker.errors import LeaseRevokedError, TerminatedError
from worker.records.protocol import CheckpointNotice
from worker.remote.checkpoints import RemoteCheckpoints
from worker.remote.folder import RemoteFolder
from worker.training.checkpoint_transfer import CheckpointUploads


@pytest.fixture
def remote(tmp_path: Path) -> RemoteCheckpoints:
    return RemoteCheckpoints(f"file://{tmp_path}/remote", attempt=1)


class Gate:
    """Storage that takes its time: every upload waits until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        put = RemoteFolder.put

        def slow(folder: RemoteFolder, path: Path, name: str) -> None:
            self.reached.set()
            assert self.open.wait(60)
            put(folder, path, name)

        monkeypatch.setattr(RemoteFolder, "put", slow)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_share_ends_no_copying(
    remote: RemoteCheckpoints,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
) -> None:
    from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]  # it publishes no types

    notices: list[CheckpointNotice] = []
    with caplog.at_level(logging.WARNING), CheckpointUploads(remote, notices.append) as uploads:
        with monkeypatch.context() as full:
            full.setattr(LocalFileSystem, "put_file", _raising(OSError(number, "no room")))
            uploads.offer(_saved(tmp_path, 1))
            until(lambda: "the checkpoint of step 1 stays on this machine alone" in caplog.text, "its copy has failed")
        uploads.offer(_saved(tmp_path, 2))
        until(lambda: [notice.step for notice in notices] == [2], "the next one is copied")


def test_a_report_that_finds_no_room_ends_no_copying(remote: RemoteCheckpoints, tmp_path: Path) -> None:
    steps: list[int] = []

    def uploaded(notice: CheckpointNotice) -> None:
        steps.append(notice.step)
        if notice.step == 1:
            raise OSError(errno.ENOSPC, "no room")

    with CheckpointUploads(remote, uploaded) as uploads:
        for step in (1, 2):
            uploads.offer(_saved(tmp_path, step))
            until(lambda: len(steps) == step, "it is copied")  # noqa: B023 - it is waited for here
        assert steps == [1, 2]


@pytest.mark.parametrize("error", [None, LeaseRevokedError("given to another")], ids=["result", "lost"])
def test_a_run_with_its_result_or_without_its_lease_waits_for_nothing_and_tells_of_nothing(
    remote: RemoteCheckpoints, tmp_path: Path, gate: Gate, error: Exception | None
) -> None:
    notices: list[CheckpointNotice] = []
    with suppress(LeaseRevokedError), CheckpointUploads(remote, notices.append) as uploads:
        uploads.offer(_saved(tmp_path, 1))
        assert gate.reached.wait(60)
        uploads.offer(_saved(tmp_path, 2))
        if error is not None:
            raise error
    _let_through(gate, remote)
    assert notices == []


def test_a_run_that_stops_waits_for_its_newest_checkpoint(
    remote: RemoteCheckpoints, tmp_path: Path, gate: Gate
) -> None:
    steps: list[int] = []
    with suppress(TerminatedError), CheckpointUploads(remote, lambda notice: steps.append(notice.step)) as uploads:
        uploads.offer(_saved(tmp_path, 1))
        assert gate.reached.wait(60)
        uploads.offer(_saved(tmp_path, 2))  # overtaken before its turn
        uploads.offer(_saved(tmp_path, 3))
        gate.open.set()
        raise TerminatedError("told to leave")
    assert steps == [1, 3]


def _let_through(gate: Gate, remote: RemoteCheckpoints) -> None:
    """Return once the upload that was held up has ended, and its thread with it."""
    gate.open.set()
    for thread in threading.enumerate():
        if thread.name == "checkpoint-uploads":
            thread.join(60)
    assert len(remote.folder.sizes()) == 2


def _saved(folder: Path, step: int) -> CheckpointNotice:
    path = folder / f"step-{step:09d}.pt"
    path.write_bytes(b"state")
    return CheckpointNotice(step=step, path=str(path), size_bytes=5, sha256="a")


def _raising(error: Exception) -> Callable[..., None]:
    def raises(*arguments: object, **named: object) -> None:
        raise error

    return raises
