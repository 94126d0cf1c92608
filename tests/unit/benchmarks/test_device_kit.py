"""The nine minutes on a device, with stages of a second: what hangs or fails is said, and ends nothing else."""

import json
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from benchmarks import device_kit
from benchmarks.device_kit import Stage, device_of, page, run_all, run_stage, stages

GOOD = Stage(
    name="good",
    command=(
        "-c",
        "import sys; open(sys.argv[1], 'w').write('{\"figure\": 3}'); print('looked'); print('3 passed')",
        "{json}",
    ),
    limit_seconds=30.0,
)
BAD = Stage(name="bad", command=("-c", "print('so far'); raise SystemExit('no such kernel')"), limit_seconds=30.0)
HANGING = Stage(
    name="hanging",
    command=(
        "-c",
        "import subprocess as s, time; print(s.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)",
    ),
    limit_seconds=1.0,
)


def test_a_stage_that_fails_or_hangs_costs_its_own_time_alone(capsys):
    hanging, bad, good = run_all([HANGING, BAD, GOOD], time.time() + 60.0)
    assert (hanging.outcome, bad.outcome, good.outcome) == ("timed out", "failed", "passed")
    assert bad.said == "so far\nno such kernel"
    assert (good.said, good.figures) == ("3 passed", {"figure": 3})
    child = int(hanging.said)
    # A zombie where nobody waits for orphans, as in some containers.
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    assert "timed out" in capsys.readouterr().out


def test_nothing_begins_once_the_time_is_up(tmp_path):
    late = run_stage(GOOD, tmp_path, 0.5)
    assert late.outcome == "not begun"


def test_without_a_gpu_it_says_so_and_what_failed_is_its_exit_status(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(device_kit, "stages", lambda device: [BAD, GOOD] if device == "cpu" else [])
    monkeypatch.setattr(sys, "argv", ["device_kit", "--device", "cpu", "--results", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        device_kit.main()
    assert ended.value.code == 1
    found = json.loads((tmp_path / "device-cpu.json").read_text())
    assert [stage["outcome"] for stage in found["stages"]] == ["failed", "passed"]
    assert found["device"]["torch"] == torch.__version__
    text = (tmp_path / "device-cpu.md").read_text()
    assert "1 of 2" in text
    assert "no such kernel" in text


def test_tables_of_steps_and_verdicts_are_on_the_page():
    step = {"step_seconds": [2.0, 1.0, 3.0], "first_step_seconds": 9.0, "state_bytes": 5e8}
    compared = {
        "title": "AdaPM",
        "val_loss": {"mean": 3.25},
        "peak_memory_bytes": 4e9,
        "step_seconds": 0.5,
        "verdict": "Better.",
    }
    figures = [
        {"measured_together": [{"adamw": step, "adapm": {**step, "step_seconds": [1.0, 1.0, 1.0]}}]},
        {"rows": [compared], "notes": ["Two seeds."]},
    ]
    findings = [
        device_kit.Finding(name=str(k), outcome="passed", seconds=1.0, said="", figures=each)
        for k, each in enumerate(figures)
    ]
    text = page(device_of("cpu"), findings, 2.0)
    assert "| adamw | 2000.000 | 1.00 | 9.00 | 0.500 |\n| adapm | 1000.000 | 0.50 | 9.00 | 0.500 |" in text
    assert "| AdaPM | 3.2500 | 4.000 | 500.00 | Better. |\n\n* Two seeds." in text


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_its_stages_are_there_and_fit_into_the_time_where_nothing_hangs(device):
    for stage in stages(device):
        for part in stage.command:
            if part.startswith("tests/"):
                assert Path(part).exists(), part
            if part.startswith("benchmarks."):
                assert Path(part.replace(".", "/")).with_suffix(".py").exists(), part
    assert max(stage.limit_seconds for stage in stages(device)) < device_kit.SECONDS / 2
