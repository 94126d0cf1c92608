"""Expected blocks of a plan, one short line each, under the paper's first moments and Adam-mini's second ones."""

from typing import Any

import torch

from optim.plan.blocks import (
    ADAM_MINI_SECOND_MOMENTS,
    PAPER_FIRST_MOMENTS,
    Block,
    BlockKind,
    FirstMoment,
    SecondMoment,
    Slice,
    rank_of,
)


def made(parameter: str, kind: BlockKind, shape: tuple[int, ...], **fields: Any) -> Block:
    """A block of that kind; fields as `Block` has them, the head size for kinds that keep one value a head."""
    first, second = PAPER_FIRST_MOMENTS[kind], ADAM_MINI_SECOND_MOMENTS[kind]
    return Block(
        parameter=parameter,
        kind=kind,
        shape=shape,
        first_moment=first,
        second_moment=second,
        rank=rank_of(shape, 0.05) if first is FirstMoment.LOW_RANK else 0,
        state_dtype=torch.float32,
        **(fields if second is SecondMoment.HEAD else {k: v for k, v in fields.items() if k != "head_size"}),
    )


def embedding(parameter: str, rows: int) -> Block:
    return made(parameter, BlockKind.EMBEDDING, (rows, 32))


def head(parameter: str = "lm_head.weight", rows: int = 64, width: int = 32) -> Block:
    return made(parameter, BlockKind.LM_HEAD, (rows, width))


def mlp(parameter: str, outputs: int, inputs: int) -> Block:
    return made(parameter, BlockKind.MLP, (outputs, inputs))


def attention(path: str, names: tuple[str, str, str, str], widths: tuple[int, int], head_size: int) -> list[Block]:
    """Separate query, key, value and output maps on a model of width 32; widths of query and of key."""
    query, key = widths
    return [
        made(f"{path}.{names[0]}.weight", BlockKind.QUERY, (query, 32), head_size=head_size),
        made(f"{path}.{names[1]}.weight", BlockKind.KEY, (key, 32), head_size=head_size),
        made(f"{path}.{names[2]}.weight", BlockKind.VALUE, (key, 32)),
        made(f"{path}.{names[3]}.weight", BlockKind.ATTENTION_OUTPUT, (32, query)),
    ]


def fused(parameter: str, widths: tuple[int, int], head_size: int, *, axis: int = 0) -> list[Block]:
    """Query, key and value of one parameter, in this order along an axis; widths of query and of key."""
    found, start = [], 0
    for kind, width in zip((BlockKind.QUERY, BlockKind.KEY, BlockKind.VALUE), (*widths, widths[1]), strict=True):
        part = Slice(axis=axis, start=start, length=width)
        shape = (width, 32) if axis == 0 else (32, width)
        found.append(made(parameter, kind, shape, part=part, output_axis=axis, head_size=head_size))
        start += width
    return found


def gate_and_up(parameter: str, width: int, expert: int | None = None) -> list[Block]:
    """Gate and up projection of one parameter, out × in, of inner width `width`."""
    prefix = "" if expert is None else f"{expert}."
    return [
        made(
            parameter,
            BlockKind.MLP,
            (width, 32),
            part=Slice(axis=0, start=start, length=width),
            index=expert,
            label=prefix + label,
        )
        for label, start in (("gate", 0), ("up", width))
    ]
