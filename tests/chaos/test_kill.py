"""kill -9 of a worker, the api, the dispatcher, the raylet and the supervisor, each while a run trains.

Nothing is lost, nothing doubled, and every point of every run equals an undisturbed run's to the bit. Each end is told
by a webhook. Nothing of a killed dispatcher's Ray lives on.
"""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from api.client.client import Client, ClientError
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.records import RunRecord
from orchestrator.webhooks.records import WebhookRequest
from tests.chaos.processes import (
    api_of,
    attempts_of,
    dispatcher_of,
    family,
    gcs_of,
    living,
    raylet_of,
    running_service,
    url_of,
)
from tests.chaos.undisturbed import course_of, undisturbed_courses
from tests.factories.waiting import until
from tests.integration.small_comparison import small_regression
from tests.integration.webhook_receiver import Receiver, receiving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2_400)]


STEPS = 400
"""The steps of a run: a training that is looked for every few hundredths of a second is seen."""


def one_run(name: str) -> ComparisonSpec:
    """An experiment of one run of AdaPM; all of them are the same training.

    A regression: an attempt loads no transformers. `tests/integration/worker/test_resume.py` kills language models.
    """
    return small_regression(Candidate(optimizer="adapm", learning_rates=(4e-3,)), name=name, seeds=(1,), steps=STEPS)


class Scene:
    """The service, whoever kills a part of it, and the experiments that were submitted so far."""

    def __init__(self, supervisor: psutil.Process, client: Client, experiments: list[str]) -> None:
        self.supervisor, self.client, self.experiments = supervisor, client, experiments

    def await_training(self) -> psutil.Process:
        """Return the process of an attempt that trains now: of a run that was killed before, where it is not done.

        Another experiment is submitted where all have ended before one was seen: no machine trains too fast for this.
        """
        while not (training := attempts_of(self.supervisor)):
            if self.have_all_ended():
                self.experiments.append(self.client.submit(one_run(f"try {len(self.experiments)}")).experiment.id)
            until(lambda: attempts_of(self.supervisor) or self.have_all_ended(), "a run trains or all have ended")
        return training[0]

    def kill_and_replace(self, victim: Callable[[psutil.Process], psutil.Process | None], name: str) -> None:
        """kill -9 of that process of the supervisor while a run trains; return when another one has its place."""
        while True:
            self.await_training()
            # Where Ray is just about to die, there may be none: then another run is waited for.
            if (process := victim(self.supervisor)) is not None:
                break
        process.kill()
        until(lambda: victim(self.supervisor) not in (None, process), f"another {name} lives")

    def await_all_ended(self) -> None:
        """Return when every experiment has ended."""
        until(self.have_all_ended, "every experiment has ended", 900)

    def have_all_ended(self) -> bool:
        """Whether each of the experiments has; False while the api is away."""
        with contextlib.suppress(ClientError):
            return all(self.client.experiment(experiment_id).counts.done() for experiment_id in self.experiments)
        return False


def embedded_raylet_of(supervisor: psutil.Process) -> psutil.Process | None:
    """The raylet below the supervisor's dispatcher."""
    return raylet_of(dispatcher_of(supervisor))


def test_any_process_may_be_killed(tmp_path: Path) -> None:
    """Five kinds of kill, one run after the other where it lasts; the second start finishes what is left, and tells of
    its end."""
    with receiving() as receiver:
        _kill_them(tmp_path, receiver)


def _kill_them(tmp_path: Path, receiver: Receiver) -> None:
    folder = tmp_path / "data"
    hooks = {"ADAPM_BENCH_WEBHOOK_URLS": receiver.url, "ADAPM_BENCH_WEBHOOK_NETWORKS": "127.0.0.0/8"}
    experiments: list[str] = []
    with running_service(folder, slots=1, environment=hooks) as supervisor, Client(url_of(folder), retries=4) as client:
        scene = Scene(supervisor, client, experiments)
        hook = client.add_webhook(WebhookRequest(url=f"{receiver.url}ended"))
        _kill_a_worker(scene)
        scene.kill_and_replace(api_of, "api")
        _kill_the_dispatcher(scene, folder)
        scene.kill_and_replace(embedded_raylet_of, "raylet")
        scene.await_training()
        everything = family(supervisor)
        supervisor.kill()
        until(lambda: not living(everything), "nothing of a killed service lives on")
    with running_service(folder, slots=1, environment=hooks) as supervisor, Client(url_of(folder), retries=4) as client:
        scene = Scene(supervisor, client, experiments)
        scene.await_all_ended()
        until(lambda: len(receiver.confirmed()) == len(experiments), "every end is told")
        runs = [run for experiment in experiments for run in client.runs(experiment_id=experiment)]
        assert {run.status for run in runs} == {RunStatus.SUCCEEDED}, [run.reason for run in runs]
        courses = {run.id: course_of(client.points(run.id), run.result) for run in runs if run.result}
    assert {post.headers["webhook-id"] for post in receiver.posts} == receiver.confirmed()
    messages = [post.verified(hook.secret)["data"] for post in receiver.posts]
    assert {(message["id"], message["outcome"], message["counts"]["total"]) for message in messages} == {
        (experiment, "succeeded", 1) for experiment in experiments
    }
    expected = undisturbed_courses(runs, tmp_path / "alone", folder / "datasets")
    assert {tuple(point[0] for point in course.points) for course in expected.values()} == {tuple(range(STEPS + 1))}
    assert courses == expected
    _assert_books_are_right(folder / "bench.sqlite3", len(runs))


def _kill_a_worker(scene: Scene) -> None:
    """kill -9 of a process that trains, until one had not yet recorded its result; its run is attempted again."""
    while True:
        scene.await_training().kill()

        def newest_run() -> RunRecord:
            (run,) = scene.client.runs(experiment_id=scene.experiments[-1])
            return run

        until(lambda: newest_run().attempt > 1 or scene.have_all_ended(), "its run is attempted again or has ended")
        if newest_run().attempt > 1:
            return


def _kill_the_dispatcher(scene: Scene, folder: Path) -> None:
    """kill -9 of the dispatcher: nothing of its Ray lives on beside that of its successor, nor is its folder there."""
    scene.await_training()
    ray_folder = Path(until((folder / "ray_folder").read_text, "the folder of its Ray is noted"))
    assert ray_folder.exists()
    dispatcher = dispatcher_of(scene.supervisor)
    assert dispatcher is not None
    processes = family(dispatcher)
    assert {raylet_of(dispatcher), gcs_of(dispatcher)} <= set(processes)
    dispatcher.kill()
    until(lambda: embedded_raylet_of(scene.supervisor) not in (None, *processes), "Ray starts anew")
    assert living(processes) == []
    assert not ray_folder.exists()


def _assert_books_are_right(path: Path, runs: int) -> None:
    """Assert one result a run, gap-free events, no open attempt, and at least one attempt more than runs."""
    with contextlib.closing(sqlite3.connect(path)) as database:

        def count(query: str) -> int:
            return int(database.execute(query).fetchone()[0])

        assert count("select count(*) from experiments") == runs
        assert count("select count(*) from runs") == count("select count(*) from results") == runs
        assert count("select count(*) from attempts") > runs
        assert count("select count(*) from attempts where ended_at is null") == 0
        gaps = (
            "select count(*) from (select run_id, max(sequence) - count(*) gap from events group by 1) where gap != 0"
        )
        assert count(gaps) == 0
