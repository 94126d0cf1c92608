"""Imports run one way: import-linter's contracts in pyproject.toml hold."""

import subprocess
import sys
from pathlib import Path

from tests.architecture.tree import REPOSITORY


def test_the_contracts_of_the_layers_hold():
    linter = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [str(linter), "--no-cache"], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
