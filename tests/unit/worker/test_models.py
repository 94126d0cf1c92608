"""Models from presets: seeded, quiet, as large as they say."""

import random

import pytest
import torch

from worker.models import build_model


@pytest.mark.parametrize("name", ["gpt2-tiny", "llama-tiny", "mixtral-tiny"])
def test_the_seed_alone_determines_the_weights(name: str) -> None:
    """Equal seeds give equal weights whatever the global generator was doing; other seeds give others."""
    torch.manual_seed(1)
    first = build_model(name, 5).state_dict()
    torch.manual_seed(2)
    repeat = build_model(name, 5).state_dict()
    other_weights = build_model(name, 6).state_dict()

    assert all(torch.equal(first[key], repeat[key]) for key in first)
    assert any(not torch.equal(first[key], other_weights[key]) for key in first)


def test_building_leaves_the_global_random_states_as_found() -> None:
    """torch's and Python's generators are where they were."""
    states = torch.get_rng_state(), random.getstate()

    build_model("gpt2-tiny", 5)

    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]


@pytest.mark.parametrize("name", ["gpt2-tiny", "llama-tiny", "mixtral-tiny"])
def test_a_forward_pass_is_repeatable_and_uses_sdpa(name: str) -> None:
    """In training mode too: no dropout."""
    model = build_model(name, 0)
    tokens = torch.arange(64).reshape(2, 32)

    assert model.training
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(model(tokens).logits, model(tokens).logits)
    assert model(tokens).logits.shape == (2, 32, 256)
