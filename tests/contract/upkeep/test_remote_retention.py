"""Checkpoints in a remote folder: a run that goes on keeps what it may resume from, an ended one what is asked for."""

import threading
from pathlib import Path

import pytest

from orchestrator.jobs import AttemptOutcome, RunAction, RunStatus
from orchestrator.retention import checkpoints as retention
from orchestrator.retention.checkpoints import (
    Keep,
    count_kept_checkpoints,
    prune_remote,
    remote_surplus,
)
from orchestrator.retention.removal import remove_deleted
from orchestrator.store.leadership import LeaderLoop
from tests.contract.conftest import Store
from tests.factories.stores import comparison_spec, result
from tests.factories.waiting import until
from worker.records.protocol import CheckpointNotice
from worker.remote.checkpoints import RemoteCheckpoint
from worker.remote.folder import RemoteFolder


def test_a_live_run_keeps_the_two_newest_that_were_told_of_and_all_that_are_newer(store: Store, tmp_path: Path) -> None:
    remote = RemoteFolder(f"file://{tmp_path}/remote")
    store.experiments.submit(comparison_spec(seeds=(1,), steps=100))
    lease = store.start()
    _put(remote.subfolder(lease.run_id), *(f"attempt-0001/step-{step:09d}" for step in (10, 20, 30, 40)))
    _put(remote, "somebody-elses/attempt-0001/step-000000001", "notes/read me")
    assert prune_remote(store.database, remote, "last") == 0  # nothing was told of yet
    for step in (10, 20, 30):
        store.attempts.checkpoint(lease.run_id, 1, lease.token, _notice(step))
    assert prune_remote(store.database, remote, "last") == 2
    assert _steps(remote, lease.run_id) == [20, 30, 40]
    store.attempts.finish(lease.run_id, 1, lease.token, result(steps=100))
    assert prune_remote(store.database, remote, "last") == 6
    assert _steps(remote, lease.run_id) == []
    assert len(remote.sizes()) == 4  # what belongs to no run of ours is left alone


@pytest.mark.parametrize(("keep", "steps"), [("last", [20]), ("none", [])])
def test_an_ended_run_keeps_what_the_operator_wants(keep: Keep, steps: list[int]) -> None:
    names = _files(10, 20, 30)
    surplus = remote_surplus(names, RunStatus.FAILED, RemoteCheckpoint(step=20, attempt=1), keep)
    remaining_names = sorted(set(names) - set(surplus))
    # What is newer than the service knows stays beside the last one that it knows.
    newer = [30] if steps else []
    assert remaining_names == sorted(_files(*steps, *newer))


def test_what_a_lost_attempt_left_is_older_than_all_of_the_next_ones(store: Store, tmp_path: Path) -> None:
    """Attempt 1 was lost, or does not know that it was; its steps beyond 500, where attempt 2 began, are void."""
    remote = RemoteFolder(f"file://{tmp_path}/remote")
    store.experiments.submit(comparison_spec(seeds=(1,), steps=1000))
    (first,) = store.claim(cpus=1, limit=1)
    run_id = first.run_id
    store.attempts.hello(run_id, 1, first.token)
    store.attempts.checkpoint(run_id, 1, first.token, _notice(490))
    store.queue.release(run_id, 1, AttemptOutcome.LOST, "its machine is gone")
    store.database.clock_offset_seconds += 1000
    second = store.start()
    leftovers, begun = _files(490, 900), _files(480, 600, attempt=2)
    for name in leftovers + begun:
        remote.subfolder(run_id).write(name, b"{}")
    assert prune_remote(store.database, remote, "last") == 0  # nothing of the second attempt was told of yet
    for step in (480, 600):
        store.attempts.checkpoint(run_id, 2, second.token, _notice(step))
    assert prune_remote(store.database, remote, "last") == len(leftovers)
    assert sorted(remote.subfolder(run_id).sizes()) == sorted(begun)


def test_a_run_that_is_retried_after_it_was_looked_at_keeps_its_checkpoints_there(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = RemoteFolder(f"file://{tmp_path}/remote")
    store.experiments.submit(comparison_spec(seeds=(1,), steps=100))
    lease = store.start()
    store.attempts.checkpoint(lease.run_id, 1, lease.token, _notice(10))
    _put(remote.subfolder(lease.run_id), "attempt-0001/step-000000010")
    store.runs.apply(lease.run_id, RunAction.CANCEL)
    store.database.clock_offset_seconds += 100
    for run_id, attempt in store.queue.overdue_cancels():
        store.queue.release(run_id, attempt, AttemptOutcome.LOST, "ended")

    def retried_meanwhile(status: RunStatus, keep: Keep) -> int:
        store.runs.apply(lease.run_id, RunAction.RETRY)
        return count_kept_checkpoints(status, keep)

    assert prune_remote(store.database, remote, "none", lambda: True) == 0  # the service stops
    monkeypatch.setattr("orchestrator.retention.checkpoints.count_kept_checkpoints", retried_meanwhile)
    assert prune_remote(store.database, remote, "none") == 0
    assert _steps(remote, lease.run_id) == [10]
    assert [checkpoint.step for checkpoint in store.runs.checkpoints(lease.run_id)] == [10]


def test_half_a_checkpoint_counts_for_nothing_and_goes_when_it_is_old() -> None:
    names = [*_files(10, 20, 40), "attempt-0001/step-000000030.pt", "attempt-0001/step-000000005.pt"]
    newest = RemoteCheckpoint(step=40, attempt=1)
    assert set(remote_surplus(names, RunStatus.RUNNING, newest, "last")) == {
        *_files(10),
        "attempt-0001/step-000000005.pt",
    }


def test_a_service_that_stops_does_not_wait_for_storage(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not deleted now is found again."""
    reached, recovery = threading.Event(), threading.Event()

    def stuck(folder: RemoteFolder, below: str = "") -> dict[str, int]:
        reached.set()
        assert recovery.wait(60)
        return {}

    monkeypatch.setattr(RemoteFolder, "sizes", stuck)
    monkeypatch.setattr(retention, "EVERY_SECONDS", 0.01)
    duty = retention.Retention(store.database, tmp_path / "runs", "last", f"file://{tmp_path}/remote")
    looking = LeaderLoop(duty, stop_seconds=0.2)
    looking.start()
    assert reached.wait(60)
    looking.close()  # which comes back before storage does
    recovery.set()
    until(
        lambda: "retention" not in {thread.name for thread in threading.enumerate()},
        "it leaves, since storage is back",
    )


def test_removal_for_good_takes_the_remote_files_and_waits_where_they_cannot_be_reached(
    store: Store, tmp_path: Path
) -> None:
    remote = RemoteFolder(f"file://{tmp_path}/remote")
    experiment = store.experiments.submit(comparison_spec(seeds=(1,))).experiment
    (run,) = store.runs.page(experiment_id=experiment.id)
    _put(remote.subfolder(run.id), "attempt-0001/step-000000010")
    store.experiments.apply(experiment.id, RunAction.CANCEL)
    store.experiments.undo_days = 0
    store.experiments.delete(experiment.id)
    store.database.clock_offset_seconds += 100
    missing_bucket = RemoteFolder("no-such-scheme://bucket")
    assert remove_deleted(store.database, tmp_path / "runs", remote=missing_bucket) == ()
    assert remove_deleted(store.database, tmp_path / "runs", remote=remote) == (experiment.id,)
    assert remote.sizes() == {}


def _put(folder: RemoteFolder, *stems: str) -> None:
    for stem in stems:
        folder.write(f"{stem}.pt", b"state")
        folder.write(f"{stem}.json", b"{}")


def _files(*steps: int, attempt: int = 1) -> list[str]:
    return [f"attempt-{attempt:04d}/step-{step:09d}.{ending}" for step in steps for ending in ("pt", "json")]


def _steps(remote: RemoteFolder, run_id: str) -> list[int]:
    return sorted(int(name[-12:-3]) for name in remote.subfolder(run_id).sizes() if name.endswith(".pt"))


def _notice(step: int) -> CheckpointNotice:
    return CheckpointNotice(step=step, path="somewhere", size_bytes=1, sha256="a")
