"""`make install`: what pip says goes into a log, and is shown where pip fails."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.architecture.tree import REPOSITORY

PIP = """#!/bin/sh
echo "WARNING: a warning"
echo "and an error" >&2
exit $PIP_ENDS_WITH
"""


@pytest.mark.parametrize("code", [0, 3])
def test_pips_warnings_are_shown_only_where_it_fails(tmp_path: Path, code: int) -> None:
    """With a stand-in for the virtual environment's interpreter: a real installation takes minutes."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(PIP)
    python.chmod(0o755)
    ended = subprocess.run(
        ["make", "install", f"VENV={tmp_path}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        env=os.environ | {"PIP_ENDS_WITH": str(code)},
        check=False,
    )
    assert (tmp_path / "pip.log").read_text() == "WARNING: a warning\nand an error\n"
    assert (ended.returncode == 0, (tmp_path / ".installed").exists()) == (code == 0, code == 0)
    assert ("WARNING: a warning" in ended.stderr, "and an error" in ended.stderr) == (code != 0, code != 0)
    assert "WARNING" not in ended.stdout
