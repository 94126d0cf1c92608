"""From a model to its block plan: module structure first, names second.

Types, dimensions and head counts say what a module is (embedding, attention, MLP, LM head); names only tell query, key,
value and output apart inside a module that is known to be attention. What fits no rule is never guessed: all such
weights are named in one error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
    Slice,
    rank_of,
)
from optim.errors import UnplacedWeightsError

Unknown = Literal["error", "full"]

# The names under which public code keeps the same thing: Hugging Face, nanoGPT, Meta's Llama, timm, Megatron.
_ROLES: Mapping[str, BlockKind] = {
    **dict.fromkeys(("q_proj", "query", "q_lin", "wq", "to_q", "q"), BlockKind.QUERY),
    **dict.fromkeys(("k_proj", "key", "k_lin", "wk", "to_k", "k"), BlockKind.KEY),
    **dict.fromkeys(("v_proj", "value", "v_lin", "wv", "to_v", "v"), BlockKind.VALUE),
    **dict.fromkeys(("o_proj", "out_proj", "c_proj", "dense", "out_lin", "wo", "proj"), BlockKind.ATTENTION_OUTPUT),
}
_FUSED = frozenset({"c_attn", "qkv_proj", "qkv", "Wqkv", "attn_qkv"})
_HEADS = ("num_heads", "n_head", "n_heads", "num_attention_heads")
_KEY_VALUE_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_kv_head")
_HEAD_SIZES = ("head_dim", "head_size", "attention_head_size", "d_head")


@dataclass(frozen=True, kw_only=True)
class _Heads:
    """An attention module's heads."""

    query: int
    key_value: int
    size: int

    def width(self, kind: BlockKind) -> int:
        """Output neurons of that projection."""
        return self.size * (self.query if kind is BlockKind.QUERY else self.key_value)


@dataclass(frozen=True, kw_only=True)
class _Place:
    """The role of a parameter or of a part of it."""

    kind: BlockKind
    output_axis: int = 0
    head_size: int = 1
    part: Slice | None = None


@dataclass(frozen=True, kw_only=True)
class _Owner:
    """The module that holds a parameter, and the module around that one."""

    module: nn.Module
    name: str
    parent: nn.Module


def plan_blocks(
    model: nn.Module,
    *,
    rank_ratio: float = 0.05,
    first_moments: Mapping[BlockKind, FirstMoment] = PAPER_FIRST_MOMENTS,
    second_moments: Mapping[BlockKind, SecondMoment] = ADAM_SECOND_MOMENTS,
    state_dtype: torch.dtype | None = None,
    unknown: Unknown = "error",
) -> BlockPlan:
    """Plan every trainable parameter of `model`; works on any device, `meta` included.

    Args:
        model: A GPT-2, Llama or alike; tied parameters are planned once, as embeddings.
        rank_ratio: Rank of a low-rank momentum over min(m, n), in (0, 1].
        first_moments: What each block kind keeps of its momentum; the paper's partition by default.
        second_moments: Over what each kind averages squared gradients; Adam's by default.
        state_dtype: Type of all state; None for the parameter's own type, at least float32.
        unknown: "error" refuses weights that no rule places, "full" keeps them like Adam.

    Raises:
        UnplacedWeightsError: names every weight that no rule places.
        ValueError: `rank_ratio` is outside (0, 1], or `unknown` is neither word.
    """
    if not 0.0 < rank_ratio <= 1.0:
        raise ValueError(f"Invalid rank_ratio: {rank_ratio}; it is a share of min(m, n), in (0, 1]")
    if unknown not in ("error", "full"):
        raise ValueError(f"Invalid unknown: {unknown!r}; say 'error' or 'full'")
    places = _places(model, unknown)
    shapes = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    return BlockPlan(
        tuple(
            _block(name, shapes[name], place, rank_ratio, first_moments, second_moments, state_dtype)
            for name, parts in places.items()
            for place in parts
        )
    )


def _block(
    name: str,
    parameter: nn.Parameter,
    place: _Place,
    rank_ratio: float,
    first_moments: Mapping[BlockKind, FirstMoment],
    second_moments: Mapping[BlockKind, SecondMoment],
    state_dtype: torch.dtype | None,
) -> Block:
    shape = list(parameter.shape)
    if place.part is not None:
        shape[place.part.axis] = place.part.length
    first, second = first_moments[place.kind], second_moments[place.kind]
    return Block(
        parameter=name,
        kind=place.kind,
        shape=tuple(shape),
        first_moment=first,
        second_moment=second,
        rank=rank_of(tuple(shape), rank_ratio) if first is FirstMoment.LOW_RANK else 0,
        output_axis=place.output_axis,
        head_size=place.head_size if second is SecondMoment.HEAD else 1,
        state_dtype=state_dtype or torch.promote_types(parameter.dtype, torch.float32),
        part=place.part,
    )


def _places(model: nn.Module, unknown: Unknown) -> dict[str, tuple[_Place, ...]]:
    """Parameter name → its parts, for every trainable parameter."""
    owners = _owners(model)
    vocabularies = {
        (module.num_embeddings, module.embedding_dim) for module in model.modules() if isinstance(module, nn.Embedding)
    }
    found: dict[str, tuple[_Place, ...]] = {}
    unplaced: list[str] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        parts = _parts(parameter, owners[id(parameter)], vocabularies)
        if not parts:
            unplaced.append(f"{name} {tuple(parameter.shape)}")
            parts = (_Place(kind=BlockKind.OTHER),)
        found[name] = parts
    if unplaced and unknown == "error":
        raise UnplacedWeightsError(
            f"no rule of the block plan places {', '.join(unplaced)}; "
            f'say unknown="full" to keep full Adam moments for them, or freeze them'
        )
    return found


def _owners(model: nn.Module) -> dict[int, list[_Owner]]:
    """Parameter id → every module that holds it: tied parameters have several."""
    modules = dict(model.named_modules(remove_duplicate=False))
    owners: dict[int, list[_Owner]] = {}
    for path, module in modules.items():
        above, _, name = path.rpartition(".")
        for parameter in module.parameters(recurse=False):
            owner = _Owner(module=module, name=name, parent=modules[above])
            owners.setdefault(id(parameter), []).append(owner)
    return owners


def _parts(parameter: nn.Parameter, owners: list[_Owner], vocabularies: set[tuple[int, int]]) -> tuple[_Place, ...]:
    """The blocks of one parameter; empty where no rule places it."""
    if parameter.ndim < 2:
        return (_Place(kind=BlockKind.VECTOR),)
    if any(isinstance(owner.module, nn.Embedding) for owner in owners):
        return (_Place(kind=BlockKind.EMBEDDING),)
    owner = owners[0]
    sizes = _projection(owner.module)
    if sizes is None or parameter.ndim != 2:
        return ()
    if _is_attention(owner.parent):
        return tuple(_attention_parts(owner))
    if _is_mlp(owner.parent):
        return (_Place(kind=BlockKind.MLP, output_axis=_output_axis(owner.module)),)
    if (sizes[1], sizes[0]) in vocabularies:
        return (_Place(kind=BlockKind.LM_HEAD, output_axis=_output_axis(owner.module)),)
    return ()


def _projection(module: nn.Module) -> tuple[int, int] | None:
    """(inputs, outputs) of a linear map; None for any other module."""
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    if _is_conv1d(module):
        inputs, outputs = module.get_parameter("weight").shape
        return inputs, outputs
    return None


def _is_conv1d(module: nn.Module) -> bool:
    """Whether it is GPT-2's `Conv1D`: a linear map stored in × out (known by its two sizes, `nx` and `nf`)."""
    return hasattr(module, "nx") and hasattr(module, "nf")


def _output_axis(module: nn.Module) -> int:
    return 1 if _is_conv1d(module) else 0


def _is_attention(module: nn.Module) -> bool:
    projections = {name for name, child in module.named_children() if _projection(child) is not None}
    roles = {_ROLES.get(name) for name in projections}
    separate = {BlockKind.QUERY, BlockKind.KEY, BlockKind.VALUE} <= roles
    return (separate or bool(projections & _FUSED)) and _number(module, _HEADS) is not None


def _is_mlp(module: nn.Module) -> bool:
    """Whether its direct children lead d → h and back h → d."""
    sizes = {found for child in module.children() if (found := _projection(child)) is not None}
    return len(list(module.children())) > 1 and any((outputs, inputs) in sizes for inputs, outputs in sizes)


def _attention_parts(owner: _Owner) -> Iterator[_Place]:
    sizes = _projection(owner.module)
    heads = _heads(owner.parent)
    if sizes is None or heads is None:
        return
    axis, outputs = _output_axis(owner.module), sizes[1]
    if owner.name in _FUSED:
        yield from _fused_parts(heads, axis, outputs)
    elif (kind := _ROLES.get(owner.name)) is BlockKind.ATTENTION_OUTPUT:
        yield _Place(kind=kind, output_axis=axis)
    elif kind is not None and outputs == heads.width(kind):
        yield _Place(kind=kind, output_axis=axis, head_size=heads.size)


def _fused_parts(heads: _Heads, axis: int, outputs: int) -> Iterator[_Place]:
    """Query, key and value in this order along the output axis; nothing where the widths do not add up."""
    kinds = (BlockKind.QUERY, BlockKind.KEY, BlockKind.VALUE)
    if outputs != sum(heads.width(kind) for kind in kinds):
        return
    start = 0
    for kind in kinds:
        part = Slice(axis=axis, start=start, length=heads.width(kind))
        yield _Place(kind=kind, output_axis=axis, head_size=heads.size, part=part)
        start += part.length


def _heads(attention: nn.Module) -> _Heads | None:
    query = _number(attention, _HEADS)
    if query is None:
        return None
    key_value = _number(attention, _KEY_VALUE_HEADS) or query
    size = _number(attention, _HEAD_SIZES) or _head_size(attention, query, key_value)
    return None if size is None else _Heads(query=query, key_value=key_value, size=size)


def _head_size(attention: nn.Module, query: int, key_value: int) -> int | None:
    """The size of a head, from the width of the query or fused projection."""
    for name, child in attention.named_children():
        sizes = _projection(child)
        if sizes is not None and name in _FUSED:
            return sizes[1] // (query + 2 * key_value)
        if sizes is not None and _ROLES.get(name) is BlockKind.QUERY:
            return sizes[1] // query
    return None


def _number(module: nn.Module, names: tuple[str, ...]) -> int | None:
    """The first of these whole numbers that the module itself, else its `config`, has."""
    for holder in (module, getattr(module, "config", None)):
        for name in names:
            value = getattr(holder, name, None)
            if isinstance(value, int) and value > 0:
                return value
    return None
