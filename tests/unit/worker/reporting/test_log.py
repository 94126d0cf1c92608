"""The output of an attempt's process is in its file, whoever prints it, and nothing after the attempt is."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.factories.reporters import MemoryReporter
from tests.factories.specification import made_spec
from worker.attempt import forget_checkpoints
from worker.records.result import Point
from worker.reporting.log import log_path, steady_stream
from worker.reporting.story import MOST_LOGGED, Story
from worker.run import Folders, run
from worker.spec.run import RunSpec

SCRIPT = """
import logging, os, subprocess, sys
from pathlib import Path
from worker.reporting.log import log_path, log_to_file

with log_to_file(log_path(Path(sys.argv[1]), 2)):
    print("from python")
    logging.getLogger("worker.somewhere").warning("from the log")
    os.write(2, b"from native code\\n")
    subprocess.run(["echo", "from a child"], check=True)
print("afterwards")
"""


def test_everything_that_is_printed_is_kept_and_nothing_afterwards(tmp_path: Path) -> None:
    process = subprocess.run([sys.executable, "-c", SCRIPT, tmp_path], capture_output=True, text=True, check=True)
    assert (process.stdout, process.stderr) == ("afterwards\n", "")
    text = log_path(tmp_path, 2).read_text()
    for line in ("from python", "WARNING worker.somewhere: from the log", "from native code", "from a child"):
        assert line in text
    assert log_path(tmp_path, 2).name == "attempt-2.log"


def test_a_run_that_has_its_result_keeps_its_logs_only(tmp_path: Path) -> None:
    log_path(tmp_path, 1).parent.mkdir()
    log_path(tmp_path, 1).write_text("kept")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step.pt").touch()
    (tmp_path / "spooled").touch()
    forget_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert log_path(tmp_path, 1).read_text() == "kept"


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "worker.reporting.story"]


def test_the_log_tells_the_story_of_a_run(folders: Folders, caplog: pytest.LogCaptureFixture) -> None:
    spec, reporter = made_spec(), MemoryReporter()
    result = run(spec, reporter, folders, checkpoint_seconds=0)
    story, saved_steps = Story(spec), {notice.step for notice in reporter.checkpoints}
    with caplog.at_level(logging.INFO, logger="worker.reporting.story"):
        story.begin(None)
        for point in reporter.points:
            story.point(point)
            if point.step in saved_steps:
                story.checkpoint(point.step)
        story.end(result)
    first, *lines, memory, last = lines_of(caplog)
    steps = spec.workload.budget.steps
    assert spec.workload.model in first and spec.optimizer.name in first
    assert first.endswith("from step 0")
    evaluated = [point.step for point in reporter.points if point.val_loss is not None]
    assert [line.partition(":")[0] for line in lines if "validation loss" in line] == [
        f"step {step} of {steps}" for step in evaluated
    ]
    assert sum("training loss" in line and "ms a step" in line for line in lines) == steps
    assert f"checkpoint of step {steps - 1}" in lines[-1]
    assert memory.startswith("peak memory: ") and "MB of tensors" in memory and "optimizer state" in memory
    assert last.endswith(result.verdict_reason)


def test_the_log_is_short_however_long_the_run_is(caplog: pytest.LogCaptureFixture) -> None:
    fields = made_spec().model_dump(mode="json")
    fields["workload"] |= {"budget": {"steps": 20_000}, "evaluation": {"every_steps": 1}}
    story = Story(RunSpec.model_validate(fields))
    with caplog.at_level(logging.INFO, logger="worker.reporting.story"):
        story.begin(7)
        for step in range(8, 20_001):
            story.checkpoint(step)
            story.point(Point(step=step, tokens=step, train_loss=2.0, val_loss=2.0, lr=0.1, step_seconds=0.01))
    lines = lines_of(caplog)
    assert lines[0].endswith("step 7")
    assert "step 20000 of 20000" in lines[-1]
    assert len(lines) <= 2 * MOST_LOGGED + 3
    assert len("\n".join(lines)) < 20_000


def test_what_a_full_disk_lost_is_told_once_and_is_not_there(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as file:
        stream = steady_stream(file)
        for number in range(2_000):
            stream.write(f"line {number}\n")
        with (tmp_path / "log").open("w") as log:
            os.dup2(log.fileno(), file.fileno())
        stream.write("there is room\n")
    notice = "(2000 lines of this log were lost: its disk had no room)"
    assert (tmp_path / "log").read_text().splitlines() == [notice, "there is room"]
