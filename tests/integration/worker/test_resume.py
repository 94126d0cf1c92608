"""A run that is killed with kill -9, again and again, gives the same losses to the bit as one that was left alone."""

import os
import signal
import threading
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.factories.fork_server import fork_server
from tests.factories.reporters import MemoryReporter, losses
from tests.factories.specification import made_spec
from tests.factories.stepper import executed
from worker.records.protocol import CheckpointNotice
from worker.records.result import Point, Result
from worker.reporting.reporter import FileReporter, read_reports
from worker.run import Folders, run
from worker.spec.run import RunSpec


class MortalReporter(FileReporter):
    """Kills its own process, as the kernel would, when a step reaches a moment of its life."""

    def __init__(self, folder: Path, moment: str, step: int) -> None:
        super().__init__(folder)
        self.moment, self.deadly_step, self.step = moment, step, 0

    def point(self, point: Point) -> None:
        super().point(point)
        self.step = point.step
        self._perhaps_die("reported")

    def persist(self) -> None:
        super().persist()
        self._perhaps_die("about to save")
        if self.moment == "while saving" and self.step == self.deadly_step:
            threading.Timer(0.004, os.kill, (os.getpid(), signal.SIGKILL)).start()

    def checkpoint(self, notice: CheckpointNotice) -> None:
        super().checkpoint(notice)
        self._perhaps_die("saved")

    def _perhaps_die(self, moment: str) -> None:
        if (moment, self.step) == (self.moment, self.deadly_step):
            os.kill(os.getpid(), signal.SIGKILL)


def spec() -> RunSpec:
    """Return a run of AdaPM in bf16 and micro-batches of 3 and 1 sequences."""
    made = made_spec(optimizer="adapm")
    return executed(made, "bf16", micro_batch_sequences=3, activation_checkpointing=True)


def run_in_a_process(folder: str, datasets: str, moment: str, step: int) -> None:
    reporter = MortalReporter(Path(folder), moment, step)
    folders = Folders(run_folder=Path(folder), dataset_folder=Path(datasets))
    run(spec(), reporter, folders, checkpoint_seconds=0.0)


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    return fork_server()


DEATHS = [("reported", 2), ("about to save", 4), ("while saving", 6), ("saved", 9)]


def test_four_kills_and_a_damaged_checkpoint_change_no_bit(
    processes: ForkServerContext, dataset_folder: Path, tmp_path: Path
) -> None:
    """Killed after a point, before, during and after the writing of a checkpoint; then the newest is damaged."""
    whole = MemoryReporter()
    folders = Folders(run_folder=tmp_path / "whole", dataset_folder=dataset_folder)
    expected = run(spec(), whole, folders)

    folder = tmp_path / "killed"
    for moment, step in [*DEATHS, ("never", 0)]:
        arguments = (str(folder), str(dataset_folder), moment, step)
        process = processes.Process(target=run_in_a_process, args=arguments)
        process.start()
        process.join()
        assert process.exitcode == (0 if moment == "never" else -signal.SIGKILL)
        if moment == "saved":
            newest = sorted((folder / "checkpoints").glob("*.pt"))[-1]
            assert newest.name == "step-000000009.pt"
            content = bytearray(newest.read_bytes())
            content[5_000] ^= 1
            newest.write_bytes(content)

    assert losses(read_reports(folder, Point)) == losses(whole.points)
    result = Result.model_validate_json((folder / "result.json").read_bytes())
    assert result.resumed_from_step == 8
    measured = {
        "peak_memory": result.peak_memory,
        "memory_breakdown": result.memory_breakdown,
        **{name: value for name, value in result if name.endswith(("_seconds", "_seconds_median"))},
        "tokens_per_second": result.tokens_per_second,
        "flops_per_second": result.flops_per_second,
        "resumed_from_step": 8,
    }
    assert result == expected.model_copy(update=measured), "all but the times and sizes is equal"
