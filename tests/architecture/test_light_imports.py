"""The api process and every client start fast and small: importing them loads no torch, Ray or MLflow."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
HEAVY = ("torch", "ray", "mlflow", "transformers", "datasets", "matplotlib")


LIGHT = ("optim.catalog", "worker.spec", "worker.protocol", "orchestrator.service", "api.client", "api.cli", "api.app")
"""One after another in one process: the first after which something heavy is there is the one that loads it."""


def test_importing_loads_nothing_heavy():
    program = (
        f"import importlib, sys\nfor name in {LIGHT!r}:\n    importlib.import_module(name)\n"
        f"    print(name, *sorted(set(sys.modules) & set({HEAVY!r})))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.split() == list(LIGHT)


def test_a_training_leaves_torchao_alone_and_who_asks_for_it_hears_nothing_else():
    """Though it is installed: it costs each process a third of a second, and warns on every training's output."""
    if find_spec("torchao") is None:
        pytest.skip("torchao is not installed")
    program = (
        "import sys, worker.run; from worker.tiny_models import tiny_gpt2; model = tiny_gpt2(); "
        "print('torchao' in sys.modules); from optim.build import build; build('adamw-8bit', model, lr=1e-3); "
        "print('torchao' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )
    assert (result.returncode, result.stderr, result.stdout.split()) == (0, "", ["False", "True"])
