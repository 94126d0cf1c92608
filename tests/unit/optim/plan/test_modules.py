"""Compiled and distributed models have the names, and the plan, of the model inside, and one that was taken apart has
none; `tests/integration/optim/test_distributed.py` has what takes a second process."""

import pytest
import torch
from torch import nn

from optim.adapm import AdaPM
from optim.builder import build
from optim.catalog.factories import galore
from optim.errors import ShardedParametersError
from optim.plan.modules import plain_name
from optim.plan.placement import plan_blocks
from worker.checks.tiny_models import tiny_gpt2


@pytest.mark.parametrize(
    ("wrapped", "plain"),
    [
        ("lm_head.weight", "lm_head.weight"),
        ("module.lm_head.weight", "lm_head.weight"),
        ("module._orig_mod.lm_head.weight", "lm_head.weight"),
        ("_orig_mod.module.lm_head.weight", "lm_head.weight"),
        ("h.0._checkpoint_wrapped_module.attn._orig_mod.c_attn.weight", "h.0.attn.c_attn.weight"),
        ("h.module.weight", "h.module.weight"),
        ("module", "module"),
    ],
)
def test_a_wrapped_parameters_name_is_the_one_it_has_inside(wrapped: str, plain: str):
    assert plain_name(wrapped) == plain


def compiled(model: nn.Module) -> nn.Module:
    wrapped = torch.compile(model, backend="eager")
    assert isinstance(wrapped, nn.Module)
    return wrapped


class Wrapper(nn.Module):
    """A wrapper like DDP, without the processes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def test_a_wrapped_model_has_the_same_plan():
    model = tiny_gpt2()
    plan = plan_blocks(model)
    assert plan_blocks(compiled(model)) == plan
    assert plan_blocks(Wrapper(model)) == plan
    layers = model.get_submodule("transformer.h")
    layers.register_module("0", compiled(layers.get_submodule("0")))
    assert plan_blocks(model) == plan


def test_baselines_find_the_matrices_of_a_wrapped_model():
    options = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
    galore_options = {"rank_ratio": 0.5, "update_gap": 200, "scale": 0.25}
    model = tiny_gpt2()
    plain, wrapped = (galore(module, lr=1e-3, **options, **galore_options) for module in (model, Wrapper(model)))
    assert [group["param_names"] for group in wrapped.param_groups] == [
        group["param_names"] for group in plain.param_groups
    ]


def test_what_deepspeed_has_taken_apart_is_refused():
    """By the mark that DeepSpeed sets on a parameter whose numbers are elsewhere."""
    model = tiny_gpt2()
    parameter = model.get_parameter("transformer.ln_f.weight")
    parameter.ds_id = 7  # type: ignore[attr-defined]  # DeepSpeed's mark, which no type declares
    message = r"DeepSpeed ZeRO-3 has taken apart transformer\.ln_f\.weight \(32,\); keep them whole"
    with pytest.raises(ShardedParametersError, match=message):
        AdaPM.for_model(model, 1e-3)
    with pytest.raises(ShardedParametersError, match=rf"adamw goes by .*{message}"):
        build("adamw", model, lr=1e-3)
