"""The records of the block plan: state shapes, bytes, views and the printed table."""

from typing import Any

import pytest
import torch

from optim.plan.blocks import (
    Block,
    BlockKind,
    BlockPlan,
    FirstMoment,
    SecondMoment,
    Slice,
    rank_of,
)


def block(**fields: Any) -> Block:
    return Block(
        **{
            "parameter": "mlp.weight",
            "kind": BlockKind.MLP,
            "shape": (8, 12),
            "first_moment": FirstMoment.LOW_RANK,
            "second_moment": SecondMoment.ELEMENT,
            "rank": 2,
            "state_dtype": torch.float32,
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("fields", "shapes"),
    [
        ({}, {"momentum_left": (8, 2), "momentum_right": (2, 12), "exp_avg_sq": (8, 12)}),
        ({"first_moment": FirstMoment.FULL}, {"exp_avg": (8, 12), "exp_avg_sq": (8, 12)}),
        ({"first_moment": FirstMoment.NONE}, {"exp_avg_sq": (8, 12)}),
        ({"first_moment": FirstMoment.NONE, "second_moment": SecondMoment.ROW}, {"exp_avg_sq": (8,)}),
        (
            {"first_moment": FirstMoment.NONE, "second_moment": SecondMoment.NEURON, "output_axis": 1},
            {"exp_avg_sq": (12,)},
        ),
        (
            {
                "first_moment": FirstMoment.NONE,
                "second_moment": SecondMoment.HEAD,
                "output_axis": 1,
                "head_size": 4,
            },
            {"exp_avg_sq": (3,)},
        ),
    ],
)
def test_state_follows_from_the_moments(fields, shapes):
    assert block(**fields).state_shapes == shapes


def test_bytes_are_the_shapes_in_the_states_type():
    assert block().state_bytes == 4 * (16 + 24 + 96)
    assert block(state_dtype=torch.bfloat16).state_bytes == 2 * (16 + 24 + 96)


def test_a_fused_parameters_block_is_a_view_with_keys_of_its_own():
    part = block(kind=BlockKind.KEY, part=Slice(axis=1, start=12, length=12))
    tensor = torch.zeros(8, 36)
    part.view(tensor).fill_(1.0)
    assert torch.equal(tensor.sum(dim=0), torch.tensor([0.0] * 12 + [8.0] * 12 + [0.0] * 12))
    assert part.key("exp_avg_sq") == "key.exp_avg_sq"
    assert part.name == "mlp.weight:key"


def test_a_block_of_a_stack_is_a_view_of_one_of_its_matrices():
    part = block(index=3, part=Slice(axis=0, start=8, length=8), label="3.up")
    tensor = torch.zeros(4, 16, 12)
    part.view(tensor).fill_(1.0)
    assert torch.equal(tensor.sum(dim=(1, 2)), torch.tensor([0.0, 0.0, 0.0, 96.0]))
    assert float(tensor[3, :8].sum()) == 0.0
    assert (part.name, part.key("exp_avg_sq")) == ("mlp.weight:3.up", "3.up.exp_avg_sq")
    assert " [3][8:16] " in str(BlockPlan((part,)))


@pytest.mark.parametrize(
    ("kind", "shape", "decays"),
    [
        (BlockKind.MLP, (8, 12), True),
        (BlockKind.VECTOR, (8,), False),
        (BlockKind.VECTOR, (4, 8), False),
        (BlockKind.POSITION_BIAS, (32, 4), False),
    ],
)
def test_vectors_and_biases_never_decay(kind, shape, decays):
    assert block(kind=kind, shape=shape, first_moment=FirstMoment.FULL, rank=0).decays is decays


def test_a_whole_parameters_block_is_the_parameter_under_torchs_names():
    tensor = torch.zeros(8, 12)
    assert block().view(tensor) is tensor
    assert block().key("exp_avg_sq") == "exp_avg_sq"
    assert block().name == "mlp.weight"


@pytest.mark.parametrize(
    ("shape", "ratio", "rank"),
    [((768, 3072), 0.05, 38), ((1600, 1600), 0.05, 80), ((4, 4), 0.05, 1), ((4, 9), 1.0, 4)],
)
def test_the_rank_is_a_rounded_share_of_the_smaller_side_and_at_least_one(shape, ratio, rank):
    assert rank_of(shape, ratio) == rank
