"""Random states go through a checkpoint."""

import random
from pathlib import Path

import numpy as np
import torch

from worker.training.random_state import load_random_state, random_state, seed_everything


def draws() -> list[float]:
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(()).item()]


def test_equal_seeds_give_equal_draws_and_a_saved_state_continues_them(tmp_path: Path) -> None:
    """Also in mid-stream, with a Gaussian half drawn, and through a file loaded with `weights_only`."""
    seed_everything(4)
    first = draws()
    torch.save(random_state(), tmp_path / "state.pt")
    continued = draws()
    seed_everything(4)

    assert draws() == first
    seed_everything(5)
    assert draws() != first
    load_random_state(torch.load(tmp_path / "state.pt", weights_only=True))
    assert draws() == continued
