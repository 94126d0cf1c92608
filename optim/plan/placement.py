"""From a model to its block plan: module structure first, names second, the user's rules last. Where there is no model
to look at, names and shapes (`skeleton.py`).

`roles.py` says which blocks a parameter is; here each gets what its kind keeps. What fits no role is never guessed: all
such weights are named in one error.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Literal, TypedDict, Unpack

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
from .modules import plain_name, sites
from .role_table import BlockRole
from .roles import find_roles, vocabularies
from .rules import Rule, check_rules, merge_rules
from .sharding import refuse_sharded
from .skeleton import skeleton

Unknown = Literal["error", "full"]
Rules = Sequence[Rule]
_Roles = Mapping[str, tuple[BlockRole, ...]]
_STATE_DTYPES = (None, torch.float32, torch.float64, torch.bfloat16, torch.float16, EIGHT_BIT)


class PlanOptions(TypedDict, total=False):
    """The keyword options of a plan; `plan_blocks` has their meaning."""

    rank_ratio: float
    first_moments: Mapping[BlockKind, FirstMoment]
    second_moments: Mapping[BlockKind, SecondMoment]
    state_dtype: torch.dtype | None
    unknown: Unknown
    rules: Rules


def plan_blocks(model: nn.Module, **options: Unpack[PlanOptions]) -> BlockPlan:
    """Plan every trainable parameter of `model`; works on any device, `meta` included.

    Args:
        model: A Transformer; tied parameters are planned once, as embeddings.
        rank_ratio: Rank of a low-rank momentum over min(m, n), in (0, 1]; 5 % by default.
        first_moments: What each block kind keeps of its momentum; the paper's partition by default.
        second_moments: Over what each kind averages squared gradients; Adam's by default.
        state_dtype: Type of all state; None for the parameter's own type, at least float32. `torch.int8` is 8 bits an
            element with scales, of everything but vectors (`adapm/eight_bit.py`).
        unknown: "error" refuses weights that fit no role, "full" keeps them like Adam.
        rules: What some blocks keep instead; later rules win. One that gives a momentum also places a weight that fits
            no role.

    Raises:
        UnplacedWeightsError: names every weight that fits no role.
        RuleError: a rule fits no block, or asks of one what it cannot keep.
        ShardedParametersError: parameters do not show their shapes (FSDP1, ZeRO-3).
        ValueError: `rank_ratio` is outside (0, 1], `state_dtype` is no type for state, or `unknown` is neither word.
    """
    refuse_sharded(model.named_parameters(), "a block plan", elementwise=True)
    policy = _Policy(**options)
    plan, unplaced = _make_plan(model, policy)
    if unplaced and policy.unknown == "error":
        raise UnplacedWeightsError(
            f"no rule of the block plan places {', '.join(unplaced)}; say what they are by register_role(Role(...)), "
            f'unknown="full" to keep full Adam moments for them, give them a momentum by rules=[Rule(...)], '
            f"or freeze them"
        )
    return plan


def plan_named(
    parameters: Mapping[str, Tensor], *, heads: int | None = None, **options: Unpack[PlanOptions]
) -> BlockPlan:
    """Plan parameters by names and shapes alone, where there is no model to look at.

    It knows the names of GPT-2 (Hugging Face's or nanoGPT's), nanochat, Llama and its kin, mixtures of experts, BERT,
    T5, `nn.MultiheadAttention` and LoRA. It has no module types and head counts to go by, so it refuses more than
    `plan_blocks` does.

    Args:
        parameters: All of the model's by name. Frozen ones get no block, but tell what the others are.
        heads: Query heads of every attention, for second moments per head; nothing else needs it.
        options: As for `plan_blocks`.

    Raises:
        UnplacedWeightsError: names every weight that names and shapes do not place, and those that need `heads`.
        RuleError, ShardedParametersError, ValueError: as `plan_blocks`; or `heads` is below 1.
    """
    if heads is not None and heads < 1:
        raise ValueError(f"Invalid heads: {heads}; it is the number of query heads, at least 1")
    refuse_sharded(parameters.items(), "a block plan", elementwise=True)
    policy = _Policy(**options)
    plan, unplaced = _make_plan(skeleton(parameters, heads), policy)
    per_head = [block.name for block in plan if block.second_moment is SecondMoment.HEAD and heads is None]
    faults = []
    if unplaced and policy.unknown == "error":
        faults.append(
            f"names and shapes do not place {', '.join(unplaced)}; for_model(model, ...) also looks at the modules, "
            f'unknown="full" keeps full Adam moments for them, rules=[Rule(...)] gives them a momentum'
        )
    if per_head:
        faults.append(f"say heads=..., the number of query heads, for second moments per head of {', '.join(per_head)}")
    if faults:
        raise UnplacedWeightsError("; ".join(faults))
    in_order = (block for name in parameters for block in plan.by_parameter.get(plain_name(name), ()))
    return BlockPlan(tuple(in_order))


@dataclass(frozen=True, kw_only=True)
class _Policy:
    """What blocks keep: the options of a plan, with their defaults."""

    rank_ratio: float = 0.05  # paper, section 5.1
    first_moments: Mapping[BlockKind, FirstMoment] = field(default_factory=lambda: PAPER_FIRST_MOMENTS)
    second_moments: Mapping[BlockKind, SecondMoment] = field(default_factory=lambda: ADAM_SECOND_MOMENTS)
    state_dtype: torch.dtype | None = None
    unknown: Unknown = "error"
    rules: Rules = ()

    def __post_init__(self) -> None:
        is_list = isinstance(self.rules, Sequence) and not isinstance(self.rules, str)
        if not is_list or not all(isinstance(rule, Rule) for rule in self.rules):
            raise ValueError(f"Invalid rules: {self.rules!r}; they are a list of Rule(pattern, …)")
        if not isinstance(self.rank_ratio, int | float) or not 0.0 < self.rank_ratio <= 1.0:
            raise ValueError(f"Invalid rank_ratio: {self.rank_ratio!r}; it is a share of min(m, n), in (0, 1]")
        if self.state_dtype not in _STATE_DTYPES:
            known = ", ".join(str(dtype) for dtype in _STATE_DTYPES)
            raise ValueError(f"Invalid state_dtype: {self.state_dtype!r}; it is one of {known}")
        if self.unknown not in ("error", "full"):
            raise ValueError(f"Invalid unknown: {self.unknown!r}; say 'error' or 'full'")


def _make_plan(model: nn.Module, policy: _Policy) -> tuple[BlockPlan, list[str]]:
    """(plan, what fits no role and is kept like Adam's in it)."""
    trainable = {plain_name(name): value for name, value in model.named_parameters() if value.requires_grad}
    roles = _roles_of(model, trainable)
    blocks: list[Block] = []
    unplaced: list[str] = []
    for name, parameter in trainable.items():
        parts = roles[name]
        if not parts and merge_rules(policy.rules, name, name)[0] is None:
            unplaced.append(f"{name} {tuple(parameter.shape)}")
        for place in parts or (BlockRole(kind=BlockKind.OTHER),):
            blocks.append(_block(name, parameter, place, policy))
    check_rules(policy.rules, blocks)
    return BlockPlan(tuple(blocks)), unplaced


_REMEMBERED: ContextVar[dict[int, tuple[nn.Module, _Roles]] | None] = ContextVar("roles by model", default=None)


@contextmanager
def remember_roles() -> Iterator[None]:
    """Within, the roles of a model's parameters are found once: for many optimizers of one that nobody changes."""
    token = _REMEMBERED.set({})
    try:
        yield
    finally:
        _REMEMBERED.reset(token)


def _roles_of(model: nn.Module, trainable: Mapping[str, Tensor]) -> _Roles:
    """The blocks of each trainable parameter, by its name."""
    remembered = _REMEMBERED.get()
    if remembered is not None and id(model) in remembered:
        return remembered[id(model)][1]
    where, known = sites(model), vocabularies(model)
    found = {name: find_roles(where[id(parameter)], known) for name, parameter in trainable.items()}
    if remembered is not None:
        remembered[id(model)] = model, found
    return found


def _block(name: str, parameter: nn.Parameter, place: BlockRole, policy: _Policy) -> Block:
    shape = place.shape(tuple(parameter.shape))
    first_moment = policy.first_moments[place.kind]
    if place.is_piece and first_moment is FirstMoment.LOW_RANK:
        first_moment = FirstMoment.FULL  # the paper has whole maps; head by head, low rank lost to it (docs/LOG.md)
    state_dtype = policy.state_dtype
    # Vectors, and stacks of such, are small, and their updates are not bounded: they are kept exactly.
    if state_dtype is None or (state_dtype is EIGHT_BIT and (place.kind is BlockKind.VECTOR or len(shape) < 2)):
        state_dtype = torch.promote_types(parameter.dtype, torch.float32)
    plain = Block(
        parameter=name,
        kind=place.kind,
        shape=shape,
        first_moment=first_moment,
        second_moment=policy.second_moments[place.kind],
        output_axis=place.output_axis,
        state_dtype=state_dtype,
        part=place.part,
        index=place.index,
        label=place.label,
    )
    first, second, rank = merge_rules(policy.rules, name, plain.name)
    first, second = first or plain.first_moment, second or plain.second_moment
    if first is not FirstMoment.LOW_RANK:
        rank = 0
    elif rank is None:
        rank = rank_of(shape, policy.rank_ratio)
    return replace(
        plain,
        first_moment=first,
        second_moment=second,
        rank=rank,
        head_size=place.head_size if second is SecondMoment.HEAD else 1,
    )
