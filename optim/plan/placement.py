"""From a model, or from names and shapes, to its block plan; the user's rules last.

`roles.py` says which blocks a parameter is; here each gets what its kind keeps. What fits no role is never guessed: all
such weights keep Adam's moments, and one warning, or with `unknown="error"` one error, names them.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypedDict, get_args

import torch
from torch import Tensor, nn

from ..errors import UnplacedWeightsError
from .blocks import (
    ADAM_SECOND_MOMENTS,
    EIGHT_BIT,
    PAPER_FIRST_MOMENTS,
    Block,
    BlockKind,
    BlockPlan,
    FirstMoment,
    SecondMoment,
    rank_of,
)
from .modules import plain_name, sites, tree, tree_of_names
from .role_table import BlockRole
from .roles import find_roles, vocabularies
from .rules import Rule, check_rules, merge_rules
from .sharding import refuse_sharded

if TYPE_CHECKING:
    from typing import Unpack  # in Python since 3.11

Unknown = Literal["warn", "full", "error"]
Rules = Sequence[Rule]
_STATE_DTYPES = (None, torch.float32, torch.float64, torch.bfloat16, torch.float16, EIGHT_BIT)


class PlanOptions(TypedDict, total=False):
    """The keyword options of a plan; `plan_blocks` has their meaning."""

    rank_ratio: float
    first_moments: Mapping[BlockKind, FirstMoment]
    second_moments: Mapping[BlockKind, SecondMoment]
    state_dtype: torch.dtype | None
    unknown: Unknown
    rules: Rules


DEFAULTS = PlanOptions(
    rank_ratio=0.05,  # paper, section 5.1
    first_moments=PAPER_FIRST_MOMENTS,
    second_moments=ADAM_SECOND_MOMENTS,
    state_dtype=None,
    unknown="warn",
    rules=(),
)


def plan_blocks(
    model: nn.Module | Mapping[str, Tensor], *, heads: int | None = None, **options: "Unpack[PlanOptions]"
) -> BlockPlan:
    """Plan every trainable parameter of `model`; works on any device, `meta` included.

    Args:
        model: A Transformer, or any other model; tied parameters are planned once, as embeddings. Or all of its
            parameters by name, frozen ones too: then classes and head counts are missing, and fused maps in an unusual
            order are not placed.
        heads: Query heads of every attention, for second moments per head where there are names alone.
        rank_ratio: Rank of a low-rank momentum over min(m, n), in (0, 1]; 5 % by default.
        first_moments: What each block kind keeps of its momentum; the paper's partition by default.
        second_moments: Over what each kind averages squared gradients; Adam's by default.
        state_dtype: Type of all state; None for the parameter's own type, at least float32. `torch.int8` is 8 bits an
            element with scales, of everything but vectors (`adapm/eight_bit.py`).
        unknown: What becomes of weights that fit no role: "full" keeps them like Adam, "warn" too and lists them in a
            warning, "error" refuses them.
        rules: What some blocks keep instead; later rules win. One that gives a momentum also places a weight that fits
            no role.

    Raises:
        UnplacedWeightsError: names the weights that need `heads`, or with unknown="error" those that fit no role.
        RuleError: a rule fits no block, or asks of one what it cannot keep.
        ShardedParametersError: parameters do not show their shapes (FSDP1, ZeRO-3).
        ValueError: `rank_ratio` is outside (0, 1], `heads` below 1, `state_dtype` is no type for state, or `unknown` is
            neither word.
    """
    if heads is not None and heads < 1:
        raise ValueError(f"Invalid heads: {heads}; it is the number of query heads, at least 1")
    named = dict(model.named_parameters()) if isinstance(model, nn.Module) else model
    refuse_sharded(named.items(), "a block plan", elementwise=True)
    policy = PlanOptions(**{**DEFAULTS, **options})
    _check_options(policy)
    rules = policy["rules"]
    root = tree(model) if isinstance(model, nn.Module) else tree_of_names(model, heads)
    parameter_sites, vocabulary_maps = sites(root), vocabularies(root)
    blocks: list[Block] = []
    unplaced: list[str] = []
    for name, parameter in named.items():
        if not parameter.requires_grad:
            continue
        plain = plain_name(name)
        places = find_roles(parameter_sites[id(parameter)], vocabulary_maps)
        if places[0].kind is BlockKind.OTHER and merge_rules(rules, plain, plain)[0] is None:
            unplaced.append(f"{plain} {tuple(parameter.shape)}")
        blocks += [_block(plain, parameter, role, policy) for role in places]
    check_rules(rules, blocks)
    per_head = [block.name for block in blocks if block.second_moment is SecondMoment.HEAD]
    if per_head and heads is None and not isinstance(model, nn.Module):
        raise UnplacedWeightsError(
            f"say heads=..., the number of query heads, for second moments per head of {', '.join(per_head)}"
        )
    if unplaced and policy["unknown"] != "full":
        _report(unplaced, policy["unknown"])
    return BlockPlan(tuple(blocks))


def _report(unplaced: Sequence[str], unknown: Unknown) -> None:
    """Raise or warn; the weights are named with their shapes."""
    fault = f"no rule of the block plan places {', '.join(unplaced)}"
    ways = "register_role(Role(...)) says what they are, rules=[Rule(...)] gives them a momentum"
    if unknown == "error":
        raise UnplacedWeightsError(f'{fault}; {ways}, unknown="full" keeps full Adam moments for them')
    warnings.warn(f'{fault}; they keep full Adam moments. {ways}, unknown="full" accepts them', stacklevel=3)


def _check_options(options: PlanOptions) -> None:
    """Raise ValueError for the first option that is out of its bounds."""
    rules, rank_ratio, state_dtype = options["rules"], options["rank_ratio"], options["state_dtype"]
    is_list = isinstance(rules, Sequence) and not isinstance(rules, str)
    if not is_list or not all(isinstance(rule, Rule) for rule in rules):
        raise ValueError(f"Invalid rules: {rules!r}; they are a list of Rule(pattern, …)")
    if not isinstance(rank_ratio, int | float) or not 0.0 < rank_ratio <= 1.0:
        raise ValueError(f"Invalid rank_ratio: {rank_ratio!r}; it is a share of min(m, n), in (0, 1]")
    if state_dtype not in _STATE_DTYPES:
        dtypes = ", ".join(str(dtype) for dtype in _STATE_DTYPES)
        raise ValueError(f"Invalid state_dtype: {state_dtype!r}; it is one of {dtypes}")
    if options["unknown"] not in get_args(Unknown):
        raise ValueError(f"Invalid unknown: {options['unknown']!r}; say 'warn', 'full' or 'error'")


def _block(name: str, parameter: Tensor, role: BlockRole, policy: PlanOptions) -> Block:
    shape = role.shape(tuple(parameter.shape))
    first_moment = policy["first_moments"][role.kind]
    if role.is_piece and first_moment is FirstMoment.LOW_RANK:
        first_moment = FirstMoment.FULL  # the paper has whole maps; head by head, low rank lost to it (docs/LOG.md)
    state_dtype = policy["state_dtype"]
    # Vectors, and stacks of such, are small, and their updates are not bounded: they are kept exactly.
    if state_dtype is None or (state_dtype is EIGHT_BIT and (role.kind is BlockKind.VECTOR or len(shape) < 2)):
        state_dtype = torch.promote_types(parameter.dtype, torch.float32)
    plain = Block(
        parameter=name,
        kind=role.kind,
        shape=shape,
        first_moment=first_moment,
        second_moment=policy["second_moments"][role.kind] if len(shape) == 2 else SecondMoment.ELEMENT,
        output_axis=role.output_axis,
        state_dtype=state_dtype,
        part=role.part,
        index=role.index,
        label=role.label,
    )
    first, second, rank = merge_rules(policy["rules"], name, plain.name)
    first, second = first or plain.first_moment, second or plain.second_moment
    if first is not FirstMoment.LOW_RANK:
        rank = 0
    elif rank is None:
        rank = rank_of(shape, policy["rank_ratio"])
    return replace(
        plain,
        first_moment=first,
        second_moment=second,
        rank=rank,
        head_size=role.head_size if second is SecondMoment.HEAD else 1,
    )
