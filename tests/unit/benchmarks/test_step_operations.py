"""Operations of a step on an accelerator: the counter against sums done by hand, and the counts that are kept as
limits."""

import json

import pytest
import torch
from torch import nn

from benchmarks.step_operations import MODELS, RESULT, as_on_cuda, count_fused_adamw, count_model, count_operations
from optim.adapm import AdaPM
from optim.adapm.step import _on_device


def on_meta(model: nn.Module) -> nn.Module:
    model.to("meta")
    for value in model.parameters():
        value.grad = torch.empty_like(value)
    return model


def test_fused_adamw_is_one_launch_of_28_bytes_a_weight():
    model = on_meta(nn.Linear(6, 4))
    operations = count_fused_adamw(model)
    assert (operations.launches, operations.bytes) == (1, 28 * (6 * 4 + 4) + 4)  # the step counter is read


def test_a_block_without_momentum_is_one_launch_of_20_bytes_a_weight_and_one_copy_of_numbers():
    model = on_meta(nn.ModuleDict({"wte": nn.Embedding(128, 64)}))
    operations = count_operations(AdaPM.for_model(model, 1e-3))
    assert dict(operations.by_name) == {"our kernel": 1, "_to_copy": 1}
    assert (operations.copies_from_host, operations.bytes) == (1, 20 * 128 * 64 + 2 * 10 * 4)  # sent, and read


@pytest.mark.parametrize("model", MODELS)
def test_the_figures_that_are_kept_are_those_of_today(model):
    """Where they are not: `python -m benchmarks.step_operations`. Nothing waits: on `meta`, what the host would read is
    an error."""
    counted = json.loads(RESULT.read_text())["counted"][model]
    for name, operations in count_model(model).items():
        kept = {field: counted[name][field] for field in ("launches", "bytes", "copies_from_host")}
        assert kept == {field: getattr(operations, field) for field in kept}, name


def test_lists_of_tensors_are_one_launch_only_where_they_are_laid_out_alike():
    target, source = torch.empty(3, 4, 5, device="meta"), torch.empty(3, 5, 4, device="meta")
    with as_on_cuda() as counted:
        torch._foreach_copy_(list(target), list(target.clone()))
        torch._foreach_copy_(list(target), list(source.mT))
    assert counted.found.by_name["_foreach_copy_"] == 1 + 3


def test_numbers_go_to_the_device_again_only_where_they_change():
    model = on_meta(nn.ModuleDict({"wte": nn.Embedding(128, 64)}))
    optimizer = AdaPM.for_model(model, 1e-3)
    _on_device.cache_clear()
    with as_on_cuda() as counted:
        for lr in (1e-3, 1e-3, 1e-3, 5e-4):
            optimizer.param_groups[0]["lr"] = lr
            optimizer.step()
    assert counted.found.copies_from_host == 2
