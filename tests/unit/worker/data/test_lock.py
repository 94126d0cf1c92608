"""The lock of a dataset: who waits says for what, and leaves when told to; other datasets are not waited for."""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.factories.dataset import MadeSource, made_recipe, prepare_made_dataset
from tests.factories.reporters import MemoryReporter
from tests.factories.specification import made_spec
from worker.data.conversations import ensure_conversations
from worker.data.preparation import ensure_dataset, prepare
from worker.data.remote_datasets import fetch_missing, push
from worker.errors import LeaseRevokedError, RunStoppedError, TerminatedError
from worker.files import hold_lock
from worker.records.protocol import Command
from worker.run import Folders, run
from worker.spec.run import DataSpec
from worker.termination import Termination

NAME = "python-stdlib-byte"
HOLDER = """
import sys
from pathlib import Path
from worker.files import hold_lock
with hold_lock(Path(sys.argv[1]), print):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process holds the lock until the block ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()


class LeavingError(Exception):
    """Somebody wants us to."""


def test_who_waits_says_for_whom_and_how_long_and_goes_on_when_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    monkeypatch.setattr("worker.files.SAY_SECONDS", 1.0)
    with held(tmp_path / "x.lock") as holder:

        def check_stop() -> None:
            if len(messages) == 2 and holder.stdin is not None:
                holder.stdin.close()

        with hold_lock(tmp_path / "x.lock", messages.append, check_stop):
            assert (tmp_path / "x.lock").read_text() != f"{holder.pid}\n"
    assert f"process {holder.pid}" in messages[0]
    assert messages[1].startswith(f"{messages[0]}, for ") and len(messages) == 2


def test_who_is_told_to_leaves_the_wait_of_every_kind_of_data(tmp_path: Path) -> None:
    def leave() -> None:
        raise LeavingError

    with held(tmp_path / f"{NAME}.lock"), held(tmp_path / "chats-byte.lock"):
        with pytest.raises(LeavingError):
            ensure_dataset("python-stdlib", "byte", tmp_path, check_stop=leave)
        with pytest.raises(LeavingError):
            ensure_conversations("chats", "byte", tmp_path, check_stop=leave)
        with pytest.raises(LeavingError):
            fetch_missing(DataSpec(), tmp_path, f"file://{tmp_path}/remote", leave)


class Losing(MemoryReporter):
    """The service has given the run to somebody else."""

    def command(self) -> Command:
        raise LeaseRevokedError("given to another")


class Told(Termination):
    """SIGTERM has come."""

    @property
    def is_requested(self) -> bool:
        return True


@pytest.mark.parametrize("remote", [False, True], ids=["prepared here", "fetched"])
def test_a_run_that_waits_for_anothers_preparation_obeys(
    tmp_path: Path, remote: bool, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"file://{tmp_path}/remote" if remote else None
    folders = Folders(run_folder=tmp_path / "run", dataset_folder=tmp_path / "datasets", dataset_url=url)
    cancelled = MemoryReporter()
    cancelled.next_command = Command.CANCEL
    with held(tmp_path / "datasets" / f"{NAME}.lock"), caplog.at_level(logging.INFO, "worker"):
        with pytest.raises(RunStoppedError):
            run(made_spec(), cancelled, folders)
        with pytest.raises(LeaseRevokedError):
            run(made_spec(), Losing(), folders)
        with pytest.raises(TerminatedError):
            run(made_spec(), MemoryReporter(), folders, termination=Told())
    assert f"preparing {NAME}" in caplog.text


def test_a_run_that_prepares_by_itself_obeys(tmp_path: Path) -> None:
    cancelled = MemoryReporter()
    cancelled.next_command = Command.CANCEL
    with pytest.raises(RunStoppedError):
        run(made_spec(), cancelled, Folders(run_folder=tmp_path / "run", dataset_folder=tmp_path / "datasets"))
    assert not (tmp_path / "datasets" / NAME).exists()


def test_a_dataset_is_fetched_while_another_is_waited_for(tmp_path: Path) -> None:
    """One run waits for a lock that is held; another one's data come meanwhile."""
    url, folder = f"file://{tmp_path}/remote", tmp_path / "second"
    prepare_made_dataset(tmp_path / "first")
    prepare(MadeSource(), made_recipe("bpe-300"), tmp_path / "first" / "python-stdlib-bpe-300")
    for name in (NAME, "python-stdlib-bpe-300"):
        push(tmp_path / "first" / name, url)
    waiting = threading.Thread(target=fetch_missing, args=(DataSpec(), folder, url))
    with held(folder / f"{NAME}.lock"):
        waiting.start()
        fetch_missing(DataSpec(tokenizer="bpe-300"), folder, url)
        assert (folder / "python-stdlib-bpe-300").exists()
        assert waiting.is_alive() and not (folder / NAME).exists()
    waiting.join(60)
    assert (folder / NAME).exists()
