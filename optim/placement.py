"""From a model to its block plan: module structure first, names second, the user's rules last.

`roles.py` says which blocks a parameter is; here each gets what its kind keeps. What fits no role is never guessed: all
such weights are named in one error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn

from optim.blocks import (
    ADAM_SECOND_MOMENTS,
    PAPER_FIRST_MOMENTS,
    Block,
    BlockKind,
    BlockPlan,
    FirstMoment,
    SecondMoment,
    rank_of,
)
from optim.errors import UnplacedWeightsError
from optim.modules import sites
from optim.roles import Place, places, vocabularies
from optim.rules import Rule, check_rules, wish

Unknown = Literal["error", "full"]
Rules = Sequence[Rule]


@dataclass(frozen=True, kw_only=True)
class _Policy:
    """What blocks keep."""

    rank_ratio: float
    first_moments: Mapping[BlockKind, FirstMoment]
    second_moments: Mapping[BlockKind, SecondMoment]
    state_dtype: torch.dtype | None
    rules: Rules


def plan_blocks(
    model: nn.Module,
    *,
    rank_ratio: float = 0.05,
    first_moments: Mapping[BlockKind, FirstMoment] = PAPER_FIRST_MOMENTS,
    second_moments: Mapping[BlockKind, SecondMoment] = ADAM_SECOND_MOMENTS,
    state_dtype: torch.dtype | None = None,
    unknown: Unknown = "error",
    rules: Rules = (),
) -> BlockPlan:
    """Plan every trainable parameter of `model`; works on any device, `meta` included.

    Args:
        model: A Transformer; tied parameters are planned once, as embeddings.
        rank_ratio: Rank of a low-rank momentum over min(m, n), in (0, 1].
        first_moments: What each block kind keeps of its momentum; the paper's partition by default.
        second_moments: Over what each kind averages squared gradients; Adam's by default.
        state_dtype: Type of all state; None for the parameter's own type, at least float32.
        unknown: "error" refuses weights that fit no role, "full" keeps them like Adam.
        rules: What some blocks keep instead; later rules win. One that gives a momentum also places a weight that fits
            no role.

    Raises:
        UnplacedWeightsError: names every weight that fits no role.
        RuleError: a rule fits no block, or asks of one what it cannot keep.
        ValueError: `rank_ratio` is outside (0, 1], or `unknown` is neither word.
    """
    if not 0.0 < rank_ratio <= 1.0:
        raise ValueError(f"Invalid rank_ratio: {rank_ratio}; it is a share of min(m, n), in (0, 1]")
    if unknown not in ("error", "full"):
        raise ValueError(f"Invalid unknown: {unknown!r}; say 'error' or 'full'")
    policy = _Policy(
        rank_ratio=rank_ratio,
        first_moments=first_moments,
        second_moments=second_moments,
        state_dtype=state_dtype,
        rules=rules,
    )
    trainable = {name: value for name, value in model.named_parameters() if value.requires_grad}
    placed = _placed(model, trainable, unknown, rules)
    blocks = tuple(_block(name, trainable[name], place, policy) for name, parts in placed.items() for place in parts)
    check_rules(rules, blocks)
    return BlockPlan(blocks)


def _placed(
    model: nn.Module, trainable: Mapping[str, nn.Parameter], unknown: Unknown, rules: Rules
) -> dict[str, tuple[Place, ...]]:
    """Parameter name → its parts, for every trainable parameter."""
    where, known = sites(model), vocabularies(model)
    found: dict[str, tuple[Place, ...]] = {}
    unplaced: list[str] = []
    for name, parameter in trainable.items():
        parts = places(where[id(parameter)], known)
        if not parts:
            if wish(rules, name, name).first_moment is None:
                unplaced.append(f"{name} {tuple(parameter.shape)}")
            parts = (Place(kind=BlockKind.OTHER),)
        found[name] = parts
    if unplaced and unknown == "error":
        raise UnplacedWeightsError(
            f"no rule of the block plan places {', '.join(unplaced)}; "
            f'say unknown="full" to keep full Adam moments for them, give them a momentum by rules=[Rule(...)], '
            f"or freeze them"
        )
    return found


def _block(name: str, parameter: nn.Parameter, place: Place, policy: _Policy) -> Block:
    shape = place.shape(tuple(parameter.shape))
    plain = Block(
        parameter=name,
        kind=place.kind,
        shape=shape,
        first_moment=policy.first_moments[place.kind],
        second_moment=policy.second_moments[place.kind],
        output_axis=place.output_axis,
        state_dtype=policy.state_dtype or torch.promote_types(parameter.dtype, torch.float32),
        part=place.part,
        index=place.index,
        label=place.label,
    )
    wished = wish(policy.rules, name, plain.name)
    first = wished.first_moment or plain.first_moment
    second = wished.second_moment or plain.second_moment
    low_rank = first is FirstMoment.LOW_RANK
    return replace(
        plain,
        first_moment=first,
        second_moment=second,
        rank=(wished.rank if wished.rank is not None else rank_of(shape, policy.rank_ratio)) if low_rank else 0,
        head_size=place.head_size if second is SecondMoment.HEAD else 1,
    )
