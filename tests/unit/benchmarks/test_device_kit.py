"""The nine minutes on a device, with stages of a second: what hangs or fails is said, and ends nothing else."""

import json
import sys
import time

import psutil
import pytest
import torch

from benchmarks import device_kit
from benchmarks.device_kit import Stage, run_all, run_stage

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
    report = json.loads((tmp_path / "device-cpu.json").read_text())
    assert [stage["outcome"] for stage in report["stages"]] == ["failed", "passed"]
    assert report["device"]["torch"] == torch.__version__
    text = (tmp_path / "device-cpu.md").read_text()
    assert "1 of 2" in text
    assert "no such kernel" in text
