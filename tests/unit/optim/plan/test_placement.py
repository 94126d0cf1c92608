"""The block plan of real models: every weight in its place, or named in one error."""

import pytest
import torch
from torch import nn

from optim.errors import UnplacedWeightsError
from optim.plan.blocks import ADAM_MINI_SECOND_MOMENTS, BlockKind, FirstMoment, SecondMoment, Slice
from optim.plan.placement import plan_blocks
from tests.factories.nanogpt import CausalSelfAttention
from tests.plans.architectures import causal
from worker.checks.tiny_models import tiny_gpt2


def test_heads_wider_than_the_model_are_measured_by_their_own_size():
    with torch.device("meta"):
        plan = plan_blocks(causal("llama", head_dim=24)(), second_moments=ADAM_MINI_SECOND_MOMENTS)
    query, key = plan.parameter_blocks["model.layers.0.self_attn.q_proj.weight"][0], plan.blocks[2]
    assert (query.shape, query.head_size, query.state_shapes["exp_avg_sq"]) == ((96, 32), 24, (4,))
    assert (key.shape, key.head_size, key.state_shapes["exp_avg_sq"]) == ((48, 32), 24, (2,))


def test_a_fused_linear_is_split_along_its_rows():
    """nanoGPT's fused projection is an `nn.Linear`, stored out × in."""
    plan = plan_blocks(CausalSelfAttention(32, 4), second_moments=ADAM_MINI_SECOND_MOMENTS)
    assert [(block.name, block.shape, block.part, block.output_axis, block.head_size) for block in plan] == [
        ("c_attn.weight:query", (32, 32), Slice(axis=0, start=0, length=32), 0, 8),
        ("c_attn.weight:key", (32, 32), Slice(axis=0, start=32, length=32), 0, 8),
        ("c_attn.weight:value", (32, 32), Slice(axis=0, start=64, length=32), 0, 1),
        ("c_proj.weight", (32, 32), None, 0, 1),
    ]


class Strange(nn.Module):
    """Weights that no rule places: a lone map, raw tensors, a fused projection that does not add up."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(64, 32)
        self.mixer = nn.Linear(32, 7)
        self.table = nn.Parameter(torch.zeros(5, 6))
        self.kernel = nn.Parameter(torch.zeros(4, 4, 3))
        self.attn = CausalSelfAttention(32, 4)
        self.attn.c_attn = nn.Linear(32, 95, bias=False)


UNPLACED = r"table \(5, 6\), kernel \(4, 4, 3\), mixer.weight \(7, 32\), attn.c_attn.weight \(95, 32\)"


def test_weights_that_no_rule_places_are_all_named_in_one_warning_and_keep_adams_moments():
    with pytest.warns(UserWarning, match=UNPLACED):
        plan = plan_blocks(Strange())
    assert plan == plan_blocks(Strange(), unknown="full")
    with pytest.raises(UnplacedWeightsError, match=UNPLACED):
        plan_blocks(Strange(), unknown="error")


def test_unknown_full_keeps_adams_moments_for_them():
    plan = plan_blocks(Strange(), second_moments=ADAM_MINI_SECOND_MOMENTS, unknown="full")
    placed = {block.parameter: (block.kind, block.first_moment, block.second_moment) for block in plan}
    placement = (BlockKind.OTHER, FirstMoment.FULL, SecondMoment.ELEMENT)
    for name in ("table", "mixer.weight", "kernel", "attn.c_attn.weight"):
        assert placed[name] == placement


def test_frozen_weights_need_no_place():
    model = Strange()
    for value in (model.table, model.mixer.weight, model.kernel, model.attn.c_attn.weight):
        value.requires_grad_(False)
    placed = [block.parameter for block in plan_blocks(model)]
    assert placed == ["wte.weight", "mixer.bias", "attn.c_proj.weight"]


@pytest.mark.parametrize(("dtype", "state"), [(torch.bfloat16, torch.float32), (torch.float64, torch.float64)])
def test_state_has_the_parameters_type_but_at_least_float32(dtype, state):
    assert {block.state_dtype for block in plan_blocks(tiny_gpt2(dtype=dtype))} == {state}


def test_a_user_can_choose_other_moments_by_kind():
    """The paper's table 1 compares partitions: here value blocks low rank too."""
    moments = dict.fromkeys(BlockKind, FirstMoment.FULL) | {BlockKind.VALUE: FirstMoment.LOW_RANK}
    plan = plan_blocks(tiny_gpt2(), first_moments=moments)
    assert {block.kind for block in plan if block.first_moment is FirstMoment.LOW_RANK} == {BlockKind.VALUE}
    assert {block.rank for block in plan if block.kind is BlockKind.VALUE} == {2}
