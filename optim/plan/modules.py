"""What a module is, by its type, its dimensions and its head counts: linear map, attention, experts, MLP.

Names come second: they tell query, key, value and output apart inside a module that is known to be attention, and
nothing here decides by a name alone. No model library is imported; their modules are known by what they hold.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

from torch import Tensor, nn

from .blocks import BlockKind

# The names under which public code keeps the same thing: Hugging Face, nanoGPT, nanochat, Meta's Llama, timm,
# torchtune, torchtitan, litgpt, OLMo-core, lucidrains.
ROLES: Mapping[str, BlockKind] = {
    **dict.fromkeys(
        ("q_proj", "query", "query_proj", "q_lin", "q_attn", "c_q", "wq", "w_q", "to_q", "q"), BlockKind.QUERY
    ),
    **dict.fromkeys(("k_proj", "key", "key_proj", "k_lin", "c_k", "wk", "w_k", "to_k", "k"), BlockKind.KEY),
    **dict.fromkeys(("v_proj", "value", "value_proj", "v_lin", "c_v", "wv", "w_v", "to_v", "v"), BlockKind.VALUE),
    **dict.fromkeys(
        (
            *("o_proj", "out_proj", "output_proj", "c_proj", "dense", "out_lin"),
            *("wo", "Wo", "w_out", "to_out", "proj", "o"),
        ),
        BlockKind.ATTENTION_OUTPUT,
    ),
}
FUSED = frozenset({"c_attn", "qkv_proj", "qkv", "Wqkv", "attn_qkv", "to_qkv", "to_kv"})
"""Query, key and value in one map, in this order; in GPT-2's cross-attention key and value."""
FUSED_OTHERWISE = frozenset({"CodeGenAttention", "GPTBigCodeAttention", "MiniMaxLightningAttention"})
"""Modules of `transformers` whose fused map has such a name but another order, by groups of query, value and key, or by
heads, which the table of roles knows. What does not divide as it says is refused, not guessed."""
FUSED_GATES = frozenset({"gate_up_proj", "gate_up", "Wi", "w12", "input_linear"})
"""The two input maps of a gated MLP in one."""
MLP_NAMES = frozenset(
    {
        *("fc1", "fc2", "c_fc", "c_proj", "lin1", "lin2", "linear1", "linear2", "w1", "w2", "w3"),
        *("gate_proj", "up_proj", "down_proj", "wi", "wi_0", "wi_1", "wo", "dense_h_to_4h", "dense_4h_to_h"),
    }
)
"""Needed only where an MLP is as wide as the model, which no shape tells from any other pair of square maps."""

_HEADS = ("num_heads", "n_head", "n_heads", "num_attention_heads", "heads")
_KEY_VALUE_HEADS = (
    *("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_kv_head", "kv_heads"),
    "n_query_groups",  # litgpt's: the queries of a group share a key and value
)
_HEAD_SIZES = ("head_dim", "head_size", "attention_head_size", "d_head", "dim_head", "key_value_proj_dim")
WRAPPED = "base_layer"
"""Where an adapter's wrapper keeps the linear map that it adapts."""


class Map(NamedTuple):
    """A linear map."""

    inputs: int
    outputs: int


@dataclass(frozen=True, kw_only=True)
class Heads:
    """An attention module's heads."""

    query: int
    key_value: int
    size: int

    def width(self, kind: BlockKind) -> int:
        """Output neurons of that projection."""
        return self.size * (self.query if kind is BlockKind.QUERY else self.key_value)


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where a parameter lives. A tied parameter has several."""

    tensor: nn.Parameter
    name: str
    """Its own name in the module that holds it: `weight`."""
    path: tuple[str, ...]
    """Names of the modules from the root, itself without a name, to that module."""
    modules: tuple[nn.Module, ...]
    """The root and those modules: one more than `path`."""

    @property
    def module(self) -> nn.Module:
        """The module that holds it."""
        return self.modules[-1]

    @property
    def parent(self) -> nn.Module:
        """The module around that; the root is around itself."""
        return self.modules[-2] if self.path else self.modules[0]

    @property
    def module_name(self) -> str:
        """What `parent` calls `module`; empty for the root."""
        return self.path[-1] if self.path else ""

    @cached_property
    def map(self) -> Map | None:
        """The linear map whose weight it is; None for anything else."""
        return linear_map(self.module) if self.name == "weight" and self.tensor.ndim == 2 else None

    @property
    def output_axis(self) -> int:
        """The axis of the weight that counts output neurons."""
        return 1 if is_conv1d(self.module) else 0


def sites(model: nn.Module) -> dict[int, list[Site]]:
    """Parameter id → every place where it lives. What is wrapped (by an adapter, a compiler) takes its wrapper's."""
    modules = dict(model.named_modules(remove_duplicate=False))
    found: dict[int, list[Site]] = {}
    for qualified, module in modules.items():
        path, around = _unwrap_path(qualified, modules)
        for name, parameter in module.named_parameters(recurse=False):
            site = Site(tensor=parameter, name=name, path=path, modules=around)
            found.setdefault(id(parameter), []).append(site)
    return found


def _unwrap_path(qualified: str, modules: Mapping[str, nn.Module]) -> tuple[tuple[str, ...], tuple[nn.Module, ...]]:
    """(path, the root and the modules along it) of that module, with wrapped modules in their wrappers' places."""
    names = qualified.split(".") if qualified else []
    path: list[str] = []
    around = [modules[""]]
    for depth, name in enumerate(names, 1):
        module = modules[".".join(names[:depth])]
        if name == WRAPPED or is_wrapped([*path, name]):
            around[-1] = module
        else:
            path.append(name)
            around.append(module)
    return tuple(path), tuple(around)


def linear_map(module: nn.Module) -> Map | None:
    """The map that a module is; None for any other module."""
    if isinstance(module, nn.Linear):
        return Map(module.in_features, module.out_features)
    if is_conv1d(module):
        return Map(*module.get_parameter("weight").shape)
    return None


def is_conv1d(module: nn.Module) -> bool:
    """Whether it is GPT-2's `Conv1D`: a linear map stored in × out (known by its two sizes, `nx` and `nf`)."""
    return hasattr(module, "nx") and hasattr(module, "nf")


def child_maps(module: nn.Module) -> dict[str, Map]:
    """The linear maps among the direct children, seen through adapters' wrappers."""
    found = {name: linear_map(getattr(child, WRAPPED, child)) for name, child in module.named_children()}
    return {name: sizes for name, sizes in found.items() if sizes is not None}


def is_attention(module: nn.Module) -> bool:
    """Whether its children are query, key and value, separate or fused, and it knows its heads."""
    if isinstance(module, nn.MultiheadAttention):
        return True
    if type(module).__name__ in FUSED_OTHERWISE:
        return False
    names = set(child_maps(module))
    roles = {ROLES.get(name) for name in names}
    separate = {BlockKind.QUERY, BlockKind.KEY, BlockKind.VALUE} <= roles
    return (separate or bool(names & FUSED)) and _number(module, _HEADS) is not None


def holds_output(attention: nn.Module) -> bool:
    """Whether the output projection is the attention's own child; BERT's is its sibling's."""
    return any(ROLES.get(name) is BlockKind.ATTENTION_OUTPUT for name in child_maps(attention))


def resembles_attention(module: nn.Module) -> bool:
    """Whether it is attention, or calls itself so and holds none: then a pair of its maps is no MLP."""
    if is_attention(module):
        return True
    called = type(module).__name__.lower()
    return ("attention" in called or called.endswith("attn")) and not any(map(is_attention, module.modules()))


def heads_of(attention: nn.Module) -> Heads | None:
    """Its heads; None where it does not say how many, or how wide."""
    query = _number(attention, _HEADS)
    if query is None:
        return None
    key_value = _number(attention, _KEY_VALUE_HEADS) or query
    size = _number(attention, _HEAD_SIZES) or _head_size(attention, query, key_value)
    return None if size is None else Heads(query=query, key_value=key_value, size=size)


def feed_forward_maps(module: nn.Module) -> Iterator[tuple[str, Map]]:
    """(name, map) of every linear map of it, apart from those of children that do attention."""
    for name, child in module.named_children():
        inner = getattr(child, WRAPPED, child)
        if any(resembles_attention(part) for part in inner.modules()):
            continue
        for path, part in inner.named_modules():
            if (sizes := linear_map(part)) is not None:
                yield path.rpartition(".")[2] or name, sizes


def expert_stacks(module: nn.Module) -> tuple[Tensor, Tensor] | None:
    """The stacks of a module that is all experts: gate and up projections, down projections, experts × m × n."""
    own = dict(module.named_parameters(recurse=False))
    gate_up, down = own.get("gate_up_proj"), own.get("down_proj")
    if gate_up is None or down is None or (gate_up.ndim, down.ndim) != (3, 3):
        return None
    return (gate_up, down) if gate_up.shape[0] == down.shape[0] else None


def experts_of(module: nn.Module) -> int | None:
    """How many experts its direct children hold, as stacks or as a list; None for none."""
    for name, child in module.named_children():
        if (stacked := expert_stacks(child)) is not None:
            return stacked[0].shape[0]
        if isinstance(child, nn.ModuleList) and "expert" in name:
            return len(child)
    return None


def _head_size(attention: nn.Module, query: int, key_value: int) -> int | None:
    """The size of a head, from the width of the query or fused projection."""
    for name, sizes in child_maps(attention).items():
        if ROLES.get(name) is BlockKind.QUERY:
            return sizes.outputs // query
        if name in FUSED:
            return sizes.outputs // (query + 2 * key_value)
    return None


def _number(module: nn.Module, names: tuple[str, ...]) -> int | None:
    """The first of these whole numbers that the module itself, else its `config`, has."""
    for holder in (module, getattr(module, "config", None)):
        for name in names:
            value = getattr(holder, name, None)
            if isinstance(value, int) and value > 0:
                return value
    return None


TRANSPARENT = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Under which name a wrapper holds what it wraps: `torch.compile`, FSDP, activation checkpointing."""

_AROUND_ALL = "module"
"""DDP's name for it, which is too common a word to be one anywhere but at the root."""


def is_wrapped(path: Sequence[str]) -> bool:
    """Whether the module there is what its parent wraps; `path` are its plain names from the root, its own last."""
    return path[-1] in TRANSPARENT or list(path) == [_AROUND_ALL]


@cache
def plain_name(parameter: str) -> str:
    """A parameter's name without wrappers: `module._orig_mod.lm_head.weight` is `lm_head.weight`."""
    *path, own = parameter.split(".")
    plain: list[str] = []
    for name in path:
        if not is_wrapped([*plain, name]):
            plain.append(name)
    return ".".join([*plain, own])
