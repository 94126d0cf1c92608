"""kill -9 of a worker, the dispatcher, the api and the supervisor while a comparison runs.

Nothing is lost, nothing doubled, and every loss equals an undisturbed run's to the bit. The webhook of its end is
delivered though the api is killed while its receiver thinks.
"""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from api.client import Client, ClientError
from api.data_folder import read_note
from orchestrator.experiments import ComparisonSpec, expand
from orchestrator.jobs import RunStatus
from orchestrator.webhook_records import WebhookRequest
from tests.integration.small_comparison import small_comparison
from tests.integration.webhook_receiver import Receiver, receiving
from worker.reporter import SilentReporter
from worker.run import Folders, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2_400)]

Found = TypeVar("Found")

SPEC = small_comparison(name="chaos", steps=200, seeds=(1,))


@contextlib.contextmanager
def service(folder: Path, **settings: str) -> Iterator[tuple[str, psutil.Process]]:
    """`adapm-bench up` in a process of its own: its URL and its process. It is killed at the end if it still lives."""
    environment = os.environ | {f"ADAPM_BENCH_{name}".upper(): value for name, value in settings.items()}
    command = [sys.executable, "-m", "api.cli", "up", "--data", str(folder), "--port", "0", "--slots", "2"]
    log = (folder.parent / f"{folder.name}.log").open("ab")
    process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        note = _await(lambda: read_note(folder), "the service answers")
        assert note is not None
        yield note.url, psutil.Process(process.pid)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)
        log.close()


def _await(look: Callable[[], Found], what: str, seconds: float = 300.0) -> Found:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain until {what}"
        time.sleep(0.1)
    return found


def _await_step(client: Client, experiment_id: str, steps: int) -> None:
    """Return when the runs together have taken that many steps, the api's restarts included."""

    def look() -> bool:
        with contextlib.suppress(ClientError):
            return client.experiment(experiment_id).progress.steps_done >= steps
        return False

    _await(look, f"{steps} steps are done", 600)


def _kill_child(supervisor: psutil.Process, word: str) -> None:
    """kill -9 the supervisor's child, or the Ray worker below one, whose command line has that word."""
    for child in supervisor.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if word in " ".join(child.cmdline()):
                child.kill()
                return
    raise AssertionError(f"no process with {word!r} to kill")


def _finish(client: Client, spec: ComparisonSpec) -> dict[str, float | None]:
    """Submit, wait, and return the final validation loss of every candidate."""
    experiment = client.submit(spec, key="chaos").experiment
    _await(lambda: client.experiment(experiment.id).counts.done(), "every run has ended", 900)
    runs = client.runs(experiment_id=experiment.id)
    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}, [run.reason for run in runs]
    return {run.candidate: run.result.final_val_loss for run in runs if run.result}


def _undisturbed(spec: ComparisonSpec, folder: Path, datasets: Path) -> dict[str, float | None]:
    """The same runs in this process, one after another."""
    ended = {}
    for planned in expand(spec):
        folders = Folders(run_folder=folder / planned.candidate, dataset_folder=datasets)
        ended[planned.candidate] = run(planned.spec, SilentReporter(), folders).final_val_loss
    return ended


def test_any_process_may_be_killed(tmp_path: Path) -> None:
    """Five kinds of kill in one comparison; the second start finishes it, and tells of its end."""
    with receiving() as receiver:
        _kill_them(tmp_path, receiver)


def _kill_them(tmp_path: Path, receiver: Receiver) -> None:
    folder, hooks = tmp_path / "data", {"webhook_urls": receiver.url, "webhook_networks": "127.0.0.0/8"}
    receiver.hold()
    with service(folder, **hooks) as (url, supervisor), Client(url) as client:
        hook = client.add_webhook(WebhookRequest(url=f"{receiver.url}ended"))
        experiment = client.submit(SPEC, key="chaos").experiment
        _await_step(client, experiment.id, 40)
        _kill_child(supervisor, "AttemptActor.execute")
        _await_step(client, experiment.id, 130)
        _kill_child(supervisor, " api --socket")
        _await_step(client, experiment.id, 200)
        _kill_child(supervisor, " dispatcher ")
        _await_step(client, experiment.id, 260)
        _kill_child(supervisor, "raylet/raylet")
        told = tmp_path / "data.log"
        _await(lambda: told.read_text().count("the dispatcher process ended") == 2, "Ray starts anew")
        _await_step(client, experiment.id, 330)
        os.kill(supervisor.pid, signal.SIGKILL)
    with service(folder, **hooks) as (url, supervisor), Client(url, retries=4) as client:
        disturbed = _finish(client, SPEC)
        _await(lambda: receiver.posts, "its end is on its way")
        _kill_child(supervisor, " api --socket")
        receiver.let_go()
        _await(receiver.confirmed, "its end is told")
        _await(lambda: _delivered(client, hook.webhook.id), "that is noted")
    assert {post.headers["webhook-id"] for post in receiver.posts} == receiver.confirmed()
    told = receiver.posts[-1].verified(hook.secret)["data"]
    assert (told["id"], told["outcome"], told["counts"]["total"]) == (experiment.id, "succeeded", 3)
    assert disturbed == _undisturbed(SPEC, tmp_path / "alone", folder / "datasets")
    _assert_books_are_right(folder / "bench.sqlite3")


def _delivered(client: Client, webhook_id: str) -> bool:
    with contextlib.suppress(ClientError):
        return client.webhook(webhook_id).delivered_at is not None
    return False


def _assert_books_are_right(path: Path) -> None:
    """One experiment, one result a run, gap-free events, and at least one attempt more than runs."""
    with contextlib.closing(sqlite3.connect(path)) as database:

        def count(query: str) -> int:
            return int(database.execute(query).fetchone()[0])

        assert count("select count(*) from experiments") == 1
        assert count("select count(*) from runs") == count("select count(*) from results") == 3
        assert count("select count(*) from attempts") > 3
        assert count("select count(*) from attempts where ended_at is null") == 0
        gaps = (
            "select count(*) from (select run_id, max(sequence) - count(*) gap from events group by 1) where gap != 0"
        )
        assert count(gaps) == 0
