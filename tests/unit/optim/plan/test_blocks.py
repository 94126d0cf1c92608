"""The records of the block plan: state shapes, bytes, views and the printed table."""

from typing import Any

import pytest
import torch

from optim.plan.blocks import (
    Block,
    BlockKind,
    FirstMoment,
    SecondMoment,
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
