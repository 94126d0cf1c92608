"""Checkpoints: complete or absent, verified, the newest good one wins. Their copies: no fault ends them, what is
overtaken is not told of, and a run leaves when it is told to."""

import errno
import hashlib
import logging
import os
import pickle
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tests.factories.waiting import until
from worker.errors import CheckpointError, LeaseRevokedError, TerminatedError
from worker.records.protocol import CheckpointNotice
from worker.remote.checkpoints import RemoteCheckpoints
from worker.remote.folder import RemoteFolder
from worker.training.checkpoint import CheckpointStore, CheckpointTimer
from worker.training.checkpoint_transfer import CheckpointUploads


def state_of(step: int) -> dict[str, object]:
    return {"model": {"weight": torch.full((3,), float(step))}, "step": step}


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", "spec-hash")


def step_of(store: CheckpointStore) -> int | None:
    state = store.newest()
    return None if state is None else state["step"]


def test_what_was_saved_comes_back_and_the_notice_describes_the_file(store: CheckpointStore) -> None:
    """Tensors and values return; size and SHA-256 are those of the file."""
    notice = store.save(7, state_of(7))

    state = store.newest()
    assert state is not None
    assert torch.equal(state["model"]["weight"], torch.full((3,), 7.0))
    content = Path(notice.path).read_bytes()
    assert (notice.step, notice.size_bytes) == (7, len(content))
    assert notice.sha256 == hashlib.sha256(content).hexdigest()


def test_the_newest_two_are_kept(store: CheckpointStore) -> None:
    """Files of older ones are gone, both of each."""
    for step in (1, 2, 10, 30):
        store.save(step, state_of(step))

    names = sorted(path.name for path in store.folder.iterdir())
    assert names == [f"step-{step:09d}.{suffix}" for step in (10, 30) for suffix in ("json", "pt")]


def test_what_a_later_attempt_wrote_is_newer_whatever_its_step(tmp_path: Path) -> None:
    """An attempt that lost its lease without knowing goes on writing beside its successor on the same disk."""
    first, second = (CheckpointStore(tmp_path / "checkpoints", "spec-hash", attempt) for attempt in (1, 2))
    for step in (50, 70):
        first.save(step, state_of(step))
    second.save(60, state_of(60))
    assert step_of(second) == 60
    first.save(80, state_of(80))
    newest = second.newest_local()
    assert newest is not None and newest.rank() == (2, 60)
    second.save(61, state_of(61))
    assert sorted(path.stem for path in second.folder.glob("*.pt")) == ["step-000000060", "step-000000061"]


def test_what_later_attempts_overtook_is_dropped_and_what_counts_stays(tmp_path: Path) -> None:
    """Attempt 1 counts up to 50, where attempt 2 went on elsewhere; what a later one wrote here was told to nobody."""
    folder = tmp_path / "checkpoints"
    CheckpointStore(folder, "spec-hash", 1).save(50, state_of(50))
    CheckpointStore(folder, "spec-hash", 1).save(70, state_of(70))
    store = CheckpointStore(folder, "spec-hash", 4)
    store.drop_overtaken_checkpoints({1: 50, 2: 60})
    assert step_of(store) == 50
    CheckpointStore(folder, "spec-hash", 3).save(80, state_of(80))
    store.drop_overtaken_checkpoints({1: 50, 2: 60})
    assert step_of(store) == 80
    store.drop_overtaken_checkpoints({})
    assert step_of(store) == 80


@pytest.mark.parametrize("damage", ["flip", "cut", "delete", "notice", "no notice"])
def test_a_damaged_newest_gives_way_to_the_one_before(
    store: CheckpointStore, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Changed, shortened and missing states, and unreadable or missing notices."""
    store.save(1, state_of(1))
    newest = Path(store.save(2, state_of(2)).path)
    if damage == "delete":
        newest.unlink()
    elif damage == "notice":
        newest.with_suffix(".json").write_text('{"step": 2')
    elif damage == "no notice":
        newest.with_suffix(".json").unlink()
    else:
        content = bytearray(newest.read_bytes())
        content[len(content) // 2] ^= 1
        newest.write_bytes(content if damage == "flip" else content[:-10])

    with caplog.at_level(logging.WARNING, "worker.training.checkpoint"):
        assert step_of(store) == 1
    assert ("passed over" in caplog.text) == (damage != "no notice")
    assert bool(store.passed_over) == (damage != "no notice")
    assert all("passed over" in message and "2" in message for message in store.passed_over)


def test_a_notice_of_the_service_leads_to_a_checkpoint_elsewhere(tmp_path: Path, store: CheckpointStore) -> None:
    """The newer of the two places wins."""
    elsewhere = CheckpointStore(tmp_path / "elsewhere", "spec-hash")
    notice = elsewhere.save(5, state_of(5))
    store.save(3, state_of(3))

    state = store.newest(notice)
    assert state is not None
    assert state["step"] == 5


def test_a_moved_folder_is_still_found(tmp_path: Path, store: CheckpointStore) -> None:
    """Notices hold absolute paths, but a state lies beside its notice."""
    store.save(4, state_of(4))
    store.folder.rename(tmp_path / "moved")

    assert step_of(CheckpointStore(tmp_path / "moved", "spec-hash")) == 4


def test_checkpoints_of_another_spec_are_refused_with_the_way_out(store: CheckpointStore) -> None:
    """Two runs must not share a folder."""
    store.save(1, state_of(1))

    with pytest.raises(CheckpointError, match=r"belong to another spec.*folder of its own"):
        CheckpointStore(store.folder, "other-hash").newest()


def test_a_write_that_fails_leaves_the_older_ones_and_no_trace(store: CheckpointStore) -> None:
    """A value that cannot be written stands for a full disk: it fails in the middle of the file."""
    store.save(1, state_of(1))

    with pytest.raises(OSError, match="disk full"):
        store.save(2, {**state_of(2), "bad": _Unwritable()})
    assert step_of(store) == 1
    assert len(list(store.folder.iterdir())) == 2


class _Unwritable:
    def __reduce__(self) -> str:
        raise OSError("disk full")


def test_remains_of_a_killed_writer_are_cleared_when_the_next_attempt_looks(store: CheckpointStore) -> None:
    """Half a file is neither used nor kept."""
    store.save(1, state_of(1))
    (store.folder / f"step-000000002.pt.{os.getpid()}.unfinished").write_bytes(b"half")

    assert step_of(store) == 1
    assert len(list(store.folder.iterdir())) == 2


def test_a_checkpoint_that_would_run_code_is_not_loaded(store: CheckpointStore) -> None:
    """`weights_only` refuses what pickle would execute."""
    store.save(1, {**state_of(1), "evil": _Executing()})

    with pytest.raises(pickle.UnpicklingError):
        store.newest()


class _Executing:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


def test_expensive_checkpoints_are_rarer() -> None:
    """They may take a fiftieth of the time: after one of 10 s none is due for 500 s; at 0 s one is due always."""
    free_timer, cheap_timer, costly_timer = CheckpointTimer(0.0), CheckpointTimer(0.001), CheckpointTimer(0.001)
    free_timer.restart(10.0)
    cheap_timer.restart(0.0)
    costly_timer.restart(10.0)

    time.sleep(0.01)
    assert [free_timer.is_due(), cheap_timer.is_due(), costly_timer.is_due()] == [True, True, False]


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
