"""What a step asks of an accelerator: the counter against sums done by hand, and the counts that are kept as limits."""

import json

import torch
from torch import nn

from benchmarks.step_operations import RESULT, as_on_cuda, count_fused_adamw, count_model, count_operations
from optim.adapm import AdaPM
from optim.adapm.step import _on_device


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
    assert dict(found.by_name) == {"our kernel": 1, "_to_copy": 1}
    assert (found.copies_from_host, found.bytes) == (1, 20 * 128 * 64 + 2 * 10 * 4)  # sent, and read


def test_a_step_of_gpt2_124m_launches_and_moves_no_more_than_was_counted():
    """Nothing waits: on `meta`, what the host would read is an error."""
    limits = json.loads(RESULT.read_text())["counted"]["124m"]
    for name, found in count_model("124m").items():
        counts = {"launches": found.launches, "copies_from_host": found.copies_from_host, "bytes": found.bytes}
        over = {count: value for count, value in counts.items() if value > limits[name][count]}
        assert not over, f"{name}: count again by `python -m benchmarks.step_operations` where this is worth it"


def test_numbers_go_to_the_device_again_only_where_they_change():
    model = on_meta(nn.ModuleDict({"wte": nn.Embedding(128, 64)}))
    optimizer = AdaPM.for_model(model, 1e-3)
    _on_device.cache_clear()
    with as_on_cuda() as counted:
        for lr in (1e-3, 1e-3, 1e-3, 5e-4):
            optimizer.param_groups[0]["lr"] = lr
            optimizer.step()
    assert counted.found.copies_from_host == 2
