"""The api process and every client start fast and small: importing them loads no torch, Ray or MLflow."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
HEAVY = ("torch", "ray", "mlflow", "transformers", "datasets", "matplotlib")


@pytest.mark.parametrize(
    "module",
    ["api.app", "api.client", "api.cli", "orchestrator.service", "worker.spec", "worker.protocol", "optim.catalog"],
)
def test_importing_loads_nothing_heavy(module: str):
    program = f"import sys, {module}; print(*sorted(set(sys.modules) & set({HEAVY!r})))"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.split() == []
