"""What a step asks of an accelerator: the counter against sums done by hand, and the counts that are kept as limits."""

import json

import pytest
import torch
from torch import nn

from benchmarks.step_operations import RESULT, count_fused_adamw, count_model, count_operations
from optim.adapm import AdaPM


def on_meta(model: nn.Module) -> nn.Module:
    model.to("meta")
    for value in model.parameters():
        value.grad = torch.empty_like(value)
    return model


def test_fused_adamw_is_one_launch_of_28_bytes_a_weight():
    model = on_meta(nn.Linear(6, 4))
    found = count_fused_adamw(model)
    assert (found.launches, found.bytes) == (1, 28 * (6 * 4 + 4) + 2 * 4)  # two step counters are read


def test_a_block_without_momentum_is_one_launch_of_20_bytes_a_weight_and_one_copy_of_numbers():
    model = on_meta(nn.ModuleDict({"wte": nn.Embedding(128, 64)}))
    found = count_operations(AdaPM.for_model(model, 1e-3))
    assert dict(found.by_name) == {"compiled move": 1, "_to_copy": 1}
    assert (found.copies_from_host, found.bytes) == (1, 20 * 128 * 64 + 9 * 4)


@pytest.mark.parametrize("model", ["124m", "llama-1b"])
def test_a_step_launches_and_moves_no_more_than_was_counted(model):
    """Nothing waits: on `meta`, what the host would read is an error. Fewer is better: then count again."""
    limits = json.loads(RESULT.read_text())["counted"][model]
    for name, found in count_model(model).items():
        limit = limits[name]
        assert (found.launches, found.copies_from_host) == (limit["launches"], limit["copies_from_host"]), name
        assert found.bytes == limit["bytes"], name
