"""Models from presets: seeded, quiet, as large as they say."""

import random

import torch

from worker.models import build_model


def test_building_leaves_the_global_random_states_as_found() -> None:
    """torch's and Python's generators are where they were."""
    states = torch.get_rng_state(), random.getstate()

    build_model("gpt2-tiny", 5)

    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
