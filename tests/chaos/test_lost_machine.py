"""The machine is lost, with all that was on it: what docs/deployment.md says about backups is done literally.

What was acknowledged before the backup is there as it was; what came after it is trained again.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from api.client.client import Client
from api.processes.data_folder import lock_data_folder
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.records import RunRecord
from tests.architecture.tree import REPOSITORY
from tests.chaos.processes import running_service, url_of
from tests.factories.waiting import until
from tests.integration.small_comparison import small_comparison

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2_400)]

DATA = ".adapm-bench"


def documented(task: str) -> str:
    """The shell block of the document that begins with that comment."""
    text = (REPOSITORY / "docs" / "deployment.md").read_text()
    blocks: list[str] = re.findall(rf"^```sh\n(# {task}.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    (block,) = blocks
    return block


def shell(block: str, machine: Path, programs: Path) -> str:
    """Carry out a block in the folder of a machine; what it printed."""
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    process = subprocess.run(["bash", "-c", block], cwd=machine, capture_output=True, text=True, env=environment)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with `adapm-bench`, for whoever runs the tests without having it on the PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    program = folder / "adapm-bench"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{REPOSITORY}" exec "{sys.executable}" -m api.cli "$@"\n')
    program.chmod(0o755)
    return folder


def test_a_backup_brings_back_what_was_acknowledged_and_the_rest_is_trained_again(
    tmp_path: Path, programs: Path
) -> None:
    """At the time of the backup one run has ended, one is under way, too long for any machine, and one waits."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    specs = {"ended": one_run("ended", 60), "under-way": one_run("under way", 10_000_000), "waits": one_run("waits", 6)}
    with running_service(first / DATA, slots=1) as supervisor, Client(url_of(first / DATA)) as client:
        ids = {"ended": client.submit(specs["ended"], key="ended").experiment.id}
        until(lambda: client.experiment(ids["ended"]).counts.done(), "the first run has its result")
        for name in ("under-way", "waits"):
            ids[name] = client.submit(specs[name], key=name).experiment.id
        until(lambda: client.experiment(ids["under-way"]).progress.steps_done > 0, "the second run is under way")
        before = only_run(client, ids["ended"])
        shell(documented("Backup"), first, programs)
        supervisor.kill()
    os.close(lock_data_folder(first / DATA, lambda _: None))  # what it had started ends with it
    shutil.copytree(first / "backup", second / "backup")
    shutil.rmtree(first)

    assert "sound" in shell(documented("Restore"), second, programs)
    with running_service(second / DATA, slots=1), Client(url_of(second / DATA)) as client:
        # The keys tell that they are the same experiments: nothing is queued twice.
        assert {name: client.submit(spec, key=name).experiment.id for name, spec in specs.items()} == ids
        steps = only_run(client, ids["under-way"]).step
        until(lambda: only_run(client, ids["under-way"]).attempt == 2, "the run that was under way is attempted again")
        until(lambda: only_run(client, ids["under-way"]).step > steps, "it has got further than it was")
        client.cancel_experiment(ids["under-way"])
        until(
            lambda: all(client.experiment(experiment_id).counts.done() for experiment_id in ids.values()),
            "every run has ended",
        )
        after = {name: only_run(client, experiment_id) for name, experiment_id in ids.items()}
    assert {name: (run.status, run.attempt) for name, run in after.items()} == {
        "ended": (RunStatus.SUCCEEDED, 1),
        "under-way": (RunStatus.CANCELLED, 2),
        "waits": (RunStatus.SUCCEEDED, 1),
    }
    assert after["ended"].result == before.result is not None  # as it was measured then: it was not trained again


def one_run(name: str, steps: int) -> ComparisonSpec:
    """An experiment of one run."""
    return small_comparison(name=name, steps=steps, seeds=(1,), optimizers=("adamw",))


def only_run(client: Client, experiment_id: str) -> RunRecord:
    """The run of an experiment of one."""
    (run,) = client.runs(experiment_id=experiment_id)
    return run
