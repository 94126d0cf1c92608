"""Warm actors on a real Ray, in a process of its own: Ray reads its settings when it is imported, once."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_scene_with_warm_actors_ends_well() -> None:
    """The scenes are tests of `warm_actor_scenes.py`."""
    scenes = Path(__file__).with_name("warm_actor_scenes.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(scenes)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout[-4_000:]
    assert "8 passed" in told.stdout
