"""AdaPM trains every architecture of the presets, and every other optimizer of the catalog two, on small models."""

import copy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from optim.builder import build
from optim.catalog import entry, names
from optim.state import allocated_state_bytes, state_bytes
from worker.catalog.presets import PRESETS, ModelPreset
from worker.models import make_model

STEPS = 3  # SOAP's first only looks
ADAPM = ("adapm", "adapm-mini")
SMALL_SIZES = {"intermediate_size": 48, "num_local_experts": 3}


def small(preset: ModelPreset) -> ModelPreset:
    """The same architecture (heads shared or not, a tied head or not, experts or none) in one layer of width 32."""
    shared = preset.extra.get("num_key_value_heads", preset.heads) != preset.heads
    extra = {key: SMALL_SIZES.get(key, value) for key, value in preset.extra.items()}
    if "num_key_value_heads" in extra:
        extra["num_key_value_heads"] = 2 if shared else 4
    options = {key: value for key, value in extra.items() if not key.startswith(("rope", "rms"))}
    sizes: dict[str, Any] = {"layers": 1, "heads": 4, "hidden_size": 32, "max_positions": 32, "vocabulary_size": 64}
    return replace(preset, **sizes, name="", source="", vocabulary_of_tokenizer=False, extra=options)


ARCHITECTURES: dict[str, ModelPreset] = {}
"""Name of the first preset of each architecture → its small model: presets of one architecture differ in sizes."""
for _preset in PRESETS:
    if small(_preset) not in ARCHITECTURES.values():
        ARCHITECTURES[_preset.name] = small(_preset)


@cache
def built(architecture: str) -> nn.Module:
    """The small model, built once; copies of it are trained."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make_model(ARCHITECTURES[architecture])


def pairs() -> list[tuple[str, str]]:
    """Architectures and who trains them: AdaPM and AdaPM-mini all, everybody else the mixture of experts, whose
    parameters alone have three dimensions, and one of the others in turn."""
    dense = [architecture for architecture in ARCHITECTURES if architecture != "mixtral-tiny"]
    chosen = [(architecture, name) for architecture in ARCHITECTURES for name in ADAPM]
    other_names = [name for name in names() if name not in ADAPM]
    return chosen + [
        pair
        for number, name in enumerate(other_names)
        for pair in ((dense[number % len(dense)], name), ("mixtral-tiny", name))
    ]


@pytest.mark.parametrize(("architecture", "name"), pairs())
def test_an_optimizer_trains_a_preset_and_keeps_what_was_counted_before(architecture: str, name: str):
    model = copy.deepcopy(built(architecture))
    starts = {key: value.detach().clone() for key, value in model.named_parameters()}
    optimizer = build(name, model, lr=entry(name).learning_rate)
    for step in range(STEPS):
        tokens = torch.randint(64, (4, 24), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
    for key, value in model.named_parameters():
        assert value.isfinite().all(), key
        moved = (
            (value.detach() - starts[key]).reshape(-1, *value.shape[-2:]) if value.ndim > 2 else [value - starts[key]]
        )
        assert all(part.any() for part in moved), key  # every expert too
    with torch.device("meta"):
        outline = make_model(ARCHITECTURES[architecture])
    assert state_bytes(optimizer) == allocated_state_bytes(build(name, outline, lr=0.1))


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_the_memory_of_optimizers_is_known_for_a_layer_of_the_real_size(preset: ModelPreset):
    with torch.device("meta"):
        model = make_model(replace(preset, layers=1))
    # Presets of one architecture have the same parameters in other sizes, whose blocks AdaPM alone plans.
    for name in names() if preset.name in ARCHITECTURES else ADAPM:
        assert allocated_state_bytes(build(name, model, lr=0.1)).total_bytes >= 0
