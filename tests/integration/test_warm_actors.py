"""Scenes on a real Ray, each file in a process of its own: Ray reads its settings when it is imported, once."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("scenes", "which", "tests"),
    [
        ("warm_actor_scenes.py", "", 8),
        ("node_loss_scenes.py", "on_a_cluster", 1),
        ("node_loss_scenes.py", "embedded", 1),
    ],
)
def test_every_scene_ends_well(scenes: str, which: str, tests: int) -> None:
    place = str(Path(__file__).with_name(scenes))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", which, place]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout[-4_000:]
    assert f"{tests} passed" in told.stdout
