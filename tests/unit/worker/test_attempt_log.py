"""What an attempt's process prints is in its file, whoever prints it, and nothing after the attempt is."""

import subprocess
import sys
from pathlib import Path

from worker.attempt import forget_checkpoints
from worker.attempt_log import log_path

SCRIPT = """
import logging, os, subprocess, sys
from pathlib import Path
from worker.attempt_log import log_path, logged_to

with logged_to(log_path(Path(sys.argv[1]), 2)):
    print("from python")
    logging.getLogger("worker.somewhere").warning("from the log")
    os.write(2, b"from native code\\n")
    subprocess.run(["echo", "from a child"], check=True)
print("afterwards")
"""


def test_everything_that_is_printed_is_kept_and_nothing_afterwards(tmp_path: Path) -> None:
    told = subprocess.run([sys.executable, "-c", SCRIPT, tmp_path], capture_output=True, text=True, check=True)
    assert (told.stdout, told.stderr) == ("afterwards\n", "")
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
    (tmp_path / "checkpoints" / "best-000000007.pt").touch()
    forget_checkpoints(tmp_path, keep_best=True)
    assert [path.name for path in sorted(tmp_path.rglob("*.pt"))] == ["best-000000007.pt"]
    forget_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert log_path(tmp_path, 1).read_text() == "kept"
