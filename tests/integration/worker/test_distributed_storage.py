"""A distributed run that goes on from storage on another machine: two processes over gloo, and S3."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.factories.dataset import prepare_made_dataset
from tests.factories.process_group import exit_codes, started
from tests.factories.reporters import losses
from tests.factories.specification import made_spec
from tests.factories.stepper import executed
from tests.fakes.s3_server import BUCKET, S3Server, s3_server
from worker import rank_attempt
from worker.data.remote_datasets import push
from worker.distributed.mailbox import StopFile
from worker.distributed.process_group import ProcessGroup
from worker.errors import WorkerError
from worker.records.result import Point, Result
from worker.remote.checkpoints import RemoteCheckpoints, complete_checkpoints
from worker.reporting.reporter import FileReporter, Reporter, read_reports
from worker.run import Folders, run
from worker.spec.run import Resources

SPEC = executed(made_spec(optimizer="adapm", steps=10), "fp32").model_copy(update={"resources": Resources(processes=2)})
DATASETS = f"s3://{BUCKET}/ranks-datasets"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


class Leaving(FileReporter):
    """Asks all ranks to leave once a step is reached, as SIGTERM does."""

    def __init__(self, folder: Path, group: ProcessGroup, step: int) -> None:
        super().__init__(folder)
        self.group, self.step = group, step

    def point(self, point: Point) -> None:
        super().point(point)
        if point.step == self.step and self.group.mailbox is not None:
            self.group.mailbox.request_stop()


def train(
    group: ProcessGroup,
    machine: Path,
    variables: dict[str, str],
    attempt: int = 1,
    counted: dict[int, int] | None = None,
    until: int = -1,
) -> None:
    """Train each process of an attempt on a machine that has only its way to storage."""
    os.environ.update(variables)
    folders = Folders(
        run_folder=machine / "run",
        dataset_folder=machine / "datasets",
        dataset_url=DATASETS,
        remote_checkpoints=RemoteCheckpoints(f"s3://{BUCKET}/ranks/r1", attempt),
        attempt=attempt,
        counted_steps=counted or {},
    )
    assert group.mailbox is not None
    options: dict[str, Any] = {"termination": StopFile(group.mailbox), "group": group}
    if group.is_rank_zero:
        try:
            run(SPEC, Leaving(machine / "run", group, until), folders, checkpoint_seconds=0.0, **options)
        except WorkerError as error:
            (machine / "run" / "error").write_text(f"{type(error).__name__}: {error}")
    else:
        rank_attempt.attend(group.mailbox, group, lambda: run(SPEC, Reporter(), folders, **options))
    rank_attempt._leave(group)


def test_a_distributed_run_goes_on_from_storage_where_its_machine_was_lost(s3: S3Server, tmp_path: Path) -> None:
    """Its data and its checkpoint come once for both processes, and the losses are those of ranks left alone."""
    whole, first, second = tmp_path / "whole", tmp_path / "first", tmp_path / "second"
    prepare_made_dataset(tmp_path / "datasets")
    push(tmp_path / "datasets" / "python-stdlib-byte", DATASETS)
    assert exit_codes(started(train, tmp_path / "a", whole, s3.variables, 9)) == [0, 0]

    assert exit_codes(started(train, tmp_path / "b", first, s3.variables, 1, {}, 4)) == [0, 0]
    assert (first / "run" / "error").read_text().startswith("TerminatedError")
    remote = RemoteCheckpoints(f"s3://{BUCKET}/ranks/r1", 2)
    last = [checkpoint for checkpoint in complete_checkpoints(remote.folder.sizes()) if checkpoint.attempt == 1][-1]
    assert last.step == 4
    shutil.rmtree(first)

    assert exit_codes(started(train, tmp_path / "c", second, s3.variables, 2, {1: last.step})) == [0, 0]
    result = Result.model_validate_json((second / "run" / "result.json").read_bytes())
    assert (result.processes, result.resumed_from_step) == (2, 4)
    assert losses(read_reports(second / "run", Point)) == losses(read_reports(whole / "run", Point))[5:]
    assert [path.name for path in (second / "datasets").iterdir() if path.is_dir()] == ["python-stdlib-byte"]
