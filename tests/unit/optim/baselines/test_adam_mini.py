"""Adam-mini against its literal twin, head by head and neuron by neuron, on a Llama and a GPT-2."""

import torch

from optim.builder import build
from tests.twins.adapm import head_groups
from tests.twins.baselines import adam_mini
from worker.checks.tiny_models import tiny_llama

GROUPS = {
    "model.embed_tokens.weight": (0, 1),  # token by token
    "lm_head.weight": (0, 1),
    "q_proj.weight": (0, 8),  # head by head: four heads of 8, two for the keys
    "k_proj.weight": (0, 8),
    "v_proj.weight": (0, 1),  # neuron by neuron
    "o_proj.weight": (0, 1),
    "gate_proj.weight": (0, 1),
    "up_proj.weight": (0, 1),
    "down_proj.weight": (0, 1),
}


def groups_of(name: str, value: torch.Tensor) -> list[torch.Tensor] | None:
    for ending, (axis, size) in GROUPS.items():
        if name.endswith(ending):
            return head_groups((value.shape[0], value.shape[1]), axis, size)
    assert value.ndim == 1
    return None


def test_every_parameter_of_a_llama_is_its_twin():
    model = tiny_llama().double()
    optimizer = build("adam-mini", model, lr=0.01)
    generator = torch.Generator().manual_seed(0)
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    streams = {
        name: [torch.randn(value.shape, generator=generator, dtype=value.dtype) for _ in range(6)]
        for name, value in start.items()
    }
    for step in range(6):
        for name, value in model.named_parameters():
            value.grad = streams[name][step]
        optimizer.step()
    for name, value in model.named_parameters():
        decay = 0.1 if value.ndim > 1 else 0.0
        twin = adam_mini(start[name], streams[name], groups_of(name, value), 0.01, 0.9, 0.95, 1e-8, decay)
        torch.testing.assert_close(value.detach(), twin, rtol=1e-9, atol=1e-9)
