"""Scenes on a real Ray, a cluster's in a process of its own: Ray reads its settings when it is imported, once."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("which", ["on_a_cluster", "embedded"])
def test_a_scene_ends_well(which: str) -> None:
    scenes = str(HERE / "ray_scenes.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", which, scenes]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout[-4_000:]
    assert "1 passed" in process.stdout
