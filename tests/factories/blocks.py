"""Blocks of one matrix, as a plan has them."""

from typing import Any

import torch

from optim.plan.blocks import Block, BlockKind, FirstMoment, SecondMoment, rank_of


def matrix_block(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, **fields: Any) -> Block:
    """A whole parameter named `w`, low rank and with Adam's second moment unless `fields` say otherwise."""
    first = fields.get("first_moment", FirstMoment.LOW_RANK)
    return Block(
        **{
            "parameter": "w",
            "kind": BlockKind.MLP,
            "shape": shape,
            "first_moment": first,
            "second_moment": SecondMoment.ELEMENT,
            "rank": rank_of(shape, 0.2) if first is FirstMoment.LOW_RANK else 0,
            "state_dtype": dtype,
            **fields,
        }
    )
