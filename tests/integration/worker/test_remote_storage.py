"""Checkpoints and datasets in S3: a machine that is lost costs time, storage that is away costs a delay."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner
from typer.testing import Result as Printed

from api.cli import main
from api.cli.admin.checks import storage
from orchestrator.errors import NotFoundError
from orchestrator.services.runs import log_tail
from orchestrator.settings import Settings
from orchestrator.storage import Storage
from tests.architecture.tree import REPOSITORY
from tests.factories.dataset import MadeSource, made_recipe, prepare_made_dataset
from tests.factories.fork_server import fork_server
from tests.factories.reporters import MemoryReporter, losses
from tests.factories.specification import made_spec
from tests.factories.waiting import until
from tests.fakes.attempt_service import TOKEN, AttemptService, made_assignment
from tests.fakes.s3_server import BUCKET, S3Server, s3_server
from worker.attempt import execute
from worker.data.manifest import TOKENIZER_FILE
from worker.data.preparation import prepare
from worker.data.prepared import missing_data
from worker.data.remote_datasets import push
from worker.data.weights import find_weights
from worker.errors import RemoteFolderError
from worker.meters.clock import DeviceClock
from worker.models import build_model
from worker.records.protocol import CheckpointNotice
from worker.records.result import Result
from worker.remote.checkpoints import RemoteCheckpoints
from worker.remote.folder import RemoteFolder
from worker.reporting.client import ServiceClient
from worker.reporting.http import HttpReporter
from worker.reporting.log import log_path, log_to_file
from worker.run import Folders, run
from worker.training.checkpoint import CheckpointStore
from worker.training.checkpoint_transfer import CheckpointUploads, fetch_newest_checkpoint

SPEC = made_spec(steps=200, optimizer="adapm")


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def attempt(url: str, number: int, variables: dict[str, str]) -> None:
    """`execute`, in a process that an older one forks: the environment is that of its start."""
    os.environ.update(variables)
    execute(url, "r1", number, TOKEN)


def attempt_with_many_checkpoints(url: str, variables: dict[str, str]) -> None:
    """Execute the attempt like `execute`, with a checkpoint every 0.1 s instead of every 10."""
    os.environ.update(variables)
    clock = DeviceClock()
    with ServiceClient(url, "r1", 1, TOKEN) as service:
        assignment = service.hello()
        folders = Folders.from_assignment(assignment)
        with (
            log_to_file(log_path(folders.run_folder, 1)),
            HttpReporter(
                service,
                assignment.spec,
                attempt=1,
                run_folder=folders.run_folder,
                heartbeat_seconds=0.1,
                clock=clock,
                flush_seconds=0.05,
            ) as reporter,
        ):
            logging.getLogger("worker").info("begins in process %d", os.getpid())
            run(assignment.spec, reporter, folders, assignment.checkpoint, clock=clock, checkpoint_seconds=0.1)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are waited for: how long a page or a submission waits has tests of its own, and storage may be slow."""
    monkeypatch.setattr("worker.remote.folder.LONGEST_SECONDS", 60.0)


@pytest.mark.cluster
@pytest.mark.usefixtures("patient")
def test_a_run_goes_on_from_storage_where_its_machine_was_lost(s3: S3Server, tmp_path: Path) -> None:
    """kill -9, and all that its machine had is gone; the next machine has neither checkpoint nor dataset, and storage
    does not answer when it begins. The curve is that of a run that was left alone."""
    first, second = tmp_path / "first machine", tmp_path / "second machine"
    prepare_made_dataset(first / "datasets")
    push(first / "datasets" / "python-stdlib-byte", f"s3://{BUCKET}/datasets")
    whole = MemoryReporter()
    run(SPEC, whole, Folders(run_folder=tmp_path / "whole", dataset_folder=first / "datasets"))
    assignment = made_assignment(
        first / "runs" / "r1",
        first / "datasets",
        spec=SPEC,
        checkpoint_url=f"s3://{BUCKET}/checkpoints/r1",
        dataset_url=f"s3://{BUCKET}/datasets",
    )
    processes = fork_server()
    with AttemptService(assignment) as service:
        process = processes.Process(target=attempt_with_many_checkpoints, args=(service.url, s3.variables))
        process.start()
        until(
            lambda: sum(notice.path.startswith("s3://") for notice in service.checkpoints) > 1,
            "two checkpoints are copied",
        )
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        shutil.rmtree(first)

        s3.stop()
        service.begin_attempt(2)
        service.assignment = service.assignment.model_copy(
            update={
                "run_folder": str(second / "runs" / "r1"),
                "dataset_folder": str(second / "datasets"),
                "checkpoint": (newest := max(service.checkpoints, key=lambda notice: notice.step)),
                "counted_steps": {1: newest.step},
            }
        )
        process = processes.Process(target=attempt, args=(service.url, 2, s3.variables))
        process.start()
        log = second / "runs" / "r1" / "logs" / "attempt-2.log"
        until(lambda: "waiting: " in log.read_text(), "the second attempt waits for storage")
        s3.start()
        process.join()

    assert isinstance(service.ending, Result), service.ending
    assert 0 < service.ending.resumed_from_step <= max(notice.step for notice in service.checkpoints)
    assert losses(service.points[step] for step in sorted(service.points)) == losses(whole.points)
    assert f"the checkpoint of step {service.ending.resumed_from_step} comes from s3://" in log.read_text()
    assert "a-secret" not in log.read_text()
    third = Storage(data_folder=tmp_path / "a third machine", checkpoint_url=f"s3://{BUCKET}/checkpoints")
    lost = log_tail(third, "r1", 1, 2**20)
    assert "begins in process" in lost and "is at s3://" in lost
    assert log_tail(third, "r1", 2, 2**20) == log.read_text()
    with pytest.raises(NotFoundError, match="nor a copy at s3://"):
        log_tail(third, "r1", 3, 2**20)


def test_a_damaged_object_and_what_the_service_never_heard_of_are_passed_over(s3: S3Server, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/checkpoints/r2"
    lost, new = CheckpointStore(tmp_path / "lost", "spec"), CheckpointStore(tmp_path / "new", "spec")
    first, second = RemoteCheckpoints(url, attempt=1), RemoteCheckpoints(url, attempt=2)
    for step in (5, 10, 15):
        first.put(lost.save(step, {"step": step}))
    first.folder.write("attempt-0001/step-000000010.pt", b"something else")
    fetch_newest_checkpoint(second, new, {1: 10}, _nothing)
    state = new.newest()
    assert state is not None and state["step"] == 5
    first.folder.write("attempt-0001/step-000000005.pt", b"something else, too")
    nobody = CheckpointStore(tmp_path / "nobody", "spec")
    fetch_newest_checkpoint(second, nobody, {1: 10}, _nothing)
    assert nobody.newest() is None  # it trains anew
    fetch_newest_checkpoint(first, nobody, {1: 15}, _nothing)
    assert nobody.newest() is None  # an attempt goes on from earlier ones, never from itself


def test_no_leftover_of_an_older_attempt_is_gone_on_from_instead_of_a_newer_ones(s3: S3Server, tmp_path: Path) -> None:
    """Attempt 1 lost its lease at step 50 without knowing, and copied 58; attempt 2 went on from 50 elsewhere."""
    url = f"s3://{BUCKET}/checkpoints/fenced"
    counted = {1: 50, 2: 60}
    _copied(url, 1, tmp_path / "first", 45, 50, 58)
    _copied(url, 2, tmp_path / "second", 55, 60)
    third, store = RemoteCheckpoints(url, attempt=3), CheckpointStore(tmp_path / "first", "spec", 3)
    store.drop_overtaken_checkpoints(counted)
    fetch_newest_checkpoint(third, store, counted, _nothing)
    newest = store.newest_local()
    assert newest is not None and newest.rank() == (2, 60)  # though 58 lay on this disk
    for step in (55, 60):
        third.folder.write(f"attempt-0002/step-{step:09d}.pt", b"damaged")
    target_store = CheckpointStore(tmp_path / "other", "spec", 3)
    fetch_newest_checkpoint(third, target_store, counted, _nothing)
    newest = target_store.newest_local()
    assert newest is not None and newest.rank() == (1, 50)


def test_copying_never_holds_up_training_and_goes_on_when_storage_is_back(
    s3: S3Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, remote = CheckpointStore(tmp_path, "spec"), RemoteCheckpoints(f"s3://{BUCKET}/checkpoints/r3", attempt=1)
    notices: list[CheckpointNotice] = []
    state = {"weights": torch.zeros(10)}
    with caplog.at_level(logging.WARNING), CheckpointUploads(remote, notices.append) as uploads:
        s3.stop()
        try:
            uploads.offer(store.save(1, state))
            until(lambda: "stays on this machine alone" in caplog.text, "the first copy has failed")
        finally:
            s3.start()
        uploads.offer(store.save(2, state))
        until(lambda: len(notices) == 1, "the second one is copied")
    assert notices[0].path == f"s3://{BUCKET}/checkpoints/r3/attempt-0001/step-000000002.pt"
    assert sorted(remote.folder.sizes()) == [f"attempt-0001/step-000000002.{ending}" for ending in ("json", "pt")]


def test_the_doctor_writes_to_storage_and_says_why_it_cannot(s3: S3Server) -> None:
    assert "takes files" in storage(Settings(checkpoint_url=f"s3://{BUCKET}/looked-at"))
    assert RemoteFolder(f"s3://{BUCKET}/looked-at").sizes() == {}
    with pytest.raises(RemoteFolderError):
        storage(Settings(checkpoint_url="s3://no-such-bucket/x"))
    s3.stop()
    try:
        with pytest.raises(RemoteFolderError):
            storage(Settings(dataset_url=f"s3://{BUCKET}/x"))
    finally:
        s3.start()


def test_preparing_copies_once(s3: S3Server, tmp_path: Path) -> None:
    """By the command line, with keys from the environment; what is there already is not copied again."""
    lines = "".join(json.dumps({"text": f"document {number} and what it says"}) + "\n" for number in range(300))
    (tmp_path / "words.jsonl").write_text(lines)
    url = f"s3://{BUCKET}/cli/"
    folder = {"ADAPM_BENCH_DATA_FOLDER": str(tmp_path / "first"), "ADAPM_BENCH_DATASET_URL": url}
    prepare = ["data", "prepare", "own/words", "--from", str(tmp_path / "words.jsonl"), "--json"]
    process = subprocess.run(
        [sys.executable, "-m", "api.cli", *prepare],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        env={**s3.variables, **folder, "PATH": "/usr/bin:/bin"},
    )
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["recipe"]["dataset"] == "own/words"
    assert "copying train-00000.bin" in process.stderr
    repeat = _command_line(["data", "push"], tmp_path / "first", url)
    assert repeat.exit_code == 0 and "copying" not in repeat.stderr, repeat.stderr


@pytest.mark.usefixtures("patient")
def test_a_tokenizer_comes_with_its_dataset(s3: S3Server, tmp_path: Path) -> None:
    """And a run trains on another machine as it did where the tokenizer was trained."""
    first, second, url = tmp_path / "first", tmp_path / "second", f"s3://{BUCKET}/tokenizers"
    manifest = prepare(MadeSource(), made_recipe("bpe-300"), first / "python-stdlib-bpe-300")
    push(first / "python-stdlib-bpe-300", url)
    assert f"{manifest.tokenizer_sha256 or ''}"[:16] in "".join(RemoteFolder(url).sizes())
    workload = SPEC.workload
    data = workload.data.model_copy(update={"tokenizer": "bpe-300", "data_hash": manifest.data_hash})
    budget = workload.budget.model_copy(update={"steps": 2})
    spec = SPEC.model_copy(update={"workload": workload.model_copy(update={"data": data, "budget": budget})})
    assert missing_data(spec.workload, second, url) == []
    local_reporter, remote_reporter = MemoryReporter(), MemoryReporter()
    run(spec, local_reporter, Folders(run_folder=tmp_path / "run", dataset_folder=first))
    run(spec, remote_reporter, Folders(run_folder=tmp_path / "other run", dataset_folder=second, dataset_url=url))
    assert losses(remote_reporter.points) == losses(local_reporter.points)
    fetched, original = (folder / "python-stdlib-bpe-300" / TOKENIZER_FILE for folder in (second, first))
    assert fetched.read_bytes() == original.read_bytes()


@pytest.mark.usefixtures("patient")
def test_own_weights_are_copied_and_fetched_like_datasets(s3: S3Server, tmp_path: Path) -> None:
    """By the command line; a run on a machine that lacks them begins with the very same."""
    url, first, second = f"s3://{BUCKET}/weights-and-data", tmp_path / "first" / "datasets", tmp_path / "second"
    build_model("gpt2-tiny", 7).save_pretrained(first / "weights" / "mine")
    (first / "weights" / "mine" / "pytorch_model.bin").write_bytes(b"a pickle stays where it is")
    prepare_made_dataset(first)
    refused = _command_line(["data", "push", "weights/none"], tmp_path / "first", url)
    assert refused.exit_code == 1 and "prepared: python-stdlib-byte, weights/mine" in refused.stderr
    result = _command_line(["data", "push", "--json"], tmp_path / "first", url)
    assert result.exit_code == 0, result.stderr
    assert [entry["url"] for entry in json.loads(result.stdout)] == [f"{url}/python-stdlib-byte", f"{url}/weights/mine"]
    assert "copying" not in _command_line(["data", "push"], tmp_path / "first", url).stderr

    begun = SPEC.workload.model_copy(update={"initial_weights": "own/mine"})
    assert missing_data(begun, second, url) == []
    (fault,) = missing_data(begun.model_copy(update={"initial_weights": "own/none"}), second, url)
    assert "data push weights/none" in fault
    budget = begun.budget.model_copy(update={"steps": 1})
    spec = SPEC.model_copy(update={"workload": begun.model_copy(update={"budget": budget})})
    run(spec, MemoryReporter(), Folders(run_folder=tmp_path / "run", dataset_folder=second, dataset_url=url))
    assert find_weights("own/mine", second).sha256 == find_weights("own/mine", first).sha256
    assert not (second / "weights" / "mine" / "pytorch_model.bin").exists()

    build_model("gpt2-tiny", 8).save_pretrained(first / "weights" / "mine")
    conflict = _command_line(["data", "push", "weights/mine"], tmp_path / "first", url)
    assert conflict.exit_code == 1 and "other data" in conflict.stderr


def _copied(url: str, attempt: int, folder: Path, *steps: int) -> None:
    """Checkpoints that the attempt wrote and copied."""
    store, remote = CheckpointStore(folder, "spec", attempt), RemoteCheckpoints(url, attempt)
    for step in steps:
        remote.put(store.save(step, {"step": step}))


def _command_line(arguments: list[str], data_folder: Path, url: str) -> Printed:
    """The command line in this process, whose environment leads to storage."""
    environment = {"ADAPM_BENCH_DATA_FOLDER": str(data_folder), "ADAPM_BENCH_DATASET_URL": url}
    return CliRunner().invoke(main, arguments, env=environment, catch_exceptions=False)


def _nothing() -> None:
    """Nobody wants the run to stop."""
