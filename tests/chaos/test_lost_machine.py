"""The machine is lost, with all that was on it: what docs/deployment.md says about backups is done literally.

What was acknowledged before the backup is there as it was; what came after it is trained again.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from api.client import Client
from api.data_folder import lock_data_folder, read_note
from orchestrator.jobs import RunStatus
from tests.integration.small_comparison import small_comparison

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2_400)]

ROOT = Path(__file__).parents[2]
DATA = ".adapm-bench"
Found = TypeVar("Found")


def documented(task: str) -> str:
    """The shell block of the document that begins with that comment."""
    text = (ROOT / "docs" / "deployment.md").read_text()
    found: list[str] = re.findall(rf"^```sh\n(# {task}.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    (block,) = found
    return block


def shell(block: str, machine: Path, programs: Path) -> str:
    """Carry out a block in the folder of a machine; what it printed."""
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", block], cwd=machine, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with `adapm-bench`, for whoever runs the tests without having it on the PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    program = folder / "adapm-bench"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m api.cli "$@"\n')
    program.chmod(0o755)
    return folder


@contextlib.contextmanager
def service(machine: Path) -> Iterator[tuple[Client, subprocess.Popen[bytes]]]:
    """`adapm-bench up` on the machine's own data folder."""
    command = [sys.executable, "-m", "api.cli", "up", "--data", str(machine / DATA), "--port", "0", "--slots", "1"]
    with (machine.parent / "up.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            note = until(lambda: read_note(machine / DATA), "the service answers")
            assert note is not None
            with Client(note.url) as client:
                yield client, process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(120)


def test_a_backup_brings_back_what_was_acknowledged_and_the_rest_is_trained_again(
    tmp_path: Path, programs: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    spec = small_comparison(name="lost", steps=60, seeds=(1,))
    spec = spec.model_copy(update={"candidates": spec.candidates[:2]})
    with service(first) as (client, process):
        experiment = client.submit(spec, key="lost").experiment
        until(lambda: client.experiment(experiment.id).counts.ended() == 1, "the first run has its result")
        before = client.runs(experiment_id=experiment.id)
        shell(documented("Backup"), first, programs)
        until(lambda: client.experiment(experiment.id).progress.steps_done > 65, "the second run is under way")
        process.kill()
        process.wait()
    os.close(lock_data_folder(first / DATA, lambda _: None))  # what it had started ends with it
    shutil.copytree(first / "backup", second / "backup")
    shutil.rmtree(first)

    assert "sound" in shell(documented("Restore"), second, programs)
    with service(second) as (client, _):
        # The key tells that it is the same experiment: nothing is queued twice.
        assert client.submit(spec, key="lost").experiment.id == experiment.id
        until(lambda: client.experiment(experiment.id).counts.done(), "every run has ended")
        after = {run.id: run for run in client.runs(experiment_id=experiment.id)}
    assert {run.status for run in after.values()} == {RunStatus.SUCCEEDED}
    (kept,) = [run for run in before if run.status is RunStatus.SUCCEEDED]
    assert after[kept.id].result == kept.result  # as it was measured then: it was not trained again
    (lost,) = [run for run in after.values() if run.id != kept.id]
    assert lost.attempt > 1 or next(run for run in before if run.id == lost.id).status is RunStatus.QUEUED


def until(look: Callable[[], Found], what: str, seconds: float = 600.0) -> Found:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain until {what}"
        time.sleep(0.1)
    return found
