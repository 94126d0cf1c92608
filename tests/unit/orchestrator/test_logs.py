"""Every line of the log names what it is about."""

import json
import subprocess
import sys

SCRIPT = """
import structlog
from orchestrator.logs import configure_logs
configure_logs("dispatcher")
log = structlog.get_logger("x")
log.info("attempt starts", attempt=2, run="abc-0001")
log.info("nothing in particular")
log.warning("export failed", experiment="abc", run=None)
"""


def test_a_run_is_told_with_its_experiment() -> None:
    process = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert process.stdout == ""
    first, second, third = process.stderr.splitlines()
    assert first.endswith('level=info process=dispatcher event="attempt starts" experiment=abc run=abc-0001 attempt=2')
    assert second.endswith('event="nothing in particular"')
    assert "experiment=abc" in third
    assert json.dumps("export failed") in third
