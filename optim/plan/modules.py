"""A model as a tree of parts: what each is called, its weights, its heads.

The tree is grown from modules or from the names of parameters alone; `roles.py` reads both alike. Modules add what
names do not say: classes, head counts, and which axis of a weight counts outputs. No model library is imported.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple

from torch import Tensor, nn

from .blocks import BlockKind

_HEADS = ("num_heads", "n_head", "n_heads", "num_attention_heads", "num_attn_heads", "heads")
_KEY_VALUE_HEADS = (
    *("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_kv_head", "kv_heads"),
    "n_query_groups",  # litgpt's: the queries of a group share a key and value
)
_HEAD_SIZES = ("head_dim", "head_size", "attention_head_size", "d_head", "dim_head", "key_value_proj_dim")
_HEAD_NUMBERS = (_HEADS, _KEY_VALUE_HEADS, _HEAD_SIZES)
WRAPPED = "base_layer"
"""The attributes under which an adapter's wrapper keeps the linear map that it adapts."""
_TURNED_MAPS = frozenset({"c_attn", "q_attn", "c_fc", "c_proj"})
"""Kept inputs × outputs (`Conv1D`) by Hugging Face's GPT-2, outputs × inputs by nanoGPT."""
_FORWARDED = re.compile(r"\d+|linear|ln|default|modules_to_save|original_module")
"""Names inside a map that has another name: `to_out.0`, `q_proj.linear`, `lm_head.modules_to_save.default`."""
_EMBEDDINGS = re.compile(
    r"wte|wpe|shared|embedding|(?:tok|pos)(?:en)?_emb(?:eddings)?|embed_(?:tokens|positions|in)|(?:\w+_)?embeddings?"
    r"|(?:tokens|positions)_embed|relative_attention_bias"
)


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


@dataclass(kw_only=True)
class _Names:
    """The properties of a whole model of which only names are known."""

    heads: int | None
    is_turned: bool | None = None
    """Whether GPT-2's maps are inputs × outputs; None if no shape says so."""


@dataclass(eq=False)
class Part:
    """A module, or what names say of it. What is wrapped (by an adapter, a compiler) takes its wrapper's place."""

    name: str = ""
    """Its name in its parent; empty for the root."""
    parent: "Part | None" = None
    module: nn.Module | None = None
    names: _Names | None = None
    """The names, if there is no module."""
    own: dict[str, Tensor] = field(default_factory=dict)
    children: dict[str, "Part"] = field(default_factory=dict)

    @property
    def lineage(self) -> "Iterator[Part]":
        """This part and those around it, the root last."""
        part: Part | None = self
        while part is not None:
            yield part
            part = part.parent

    @property
    def word(self) -> str:
        """The name that says what it does: `to_out` for `to_out.0`."""
        named = (part.name for part in self.lineage if not _FORWARDED.fullmatch(part.name))
        return next(named, "")

    @property
    def is_embedding(self) -> bool:
        """Whether it is a table of which a step reads some rows."""
        if self.module is not None:
            return isinstance(self.module, nn.Embedding) or type(self.module).__name__.endswith("Embedding")
        return _EMBEDDINGS.fullmatch(self.name) is not None and "bias" not in self.own

    @cached_property
    def output_axis(self) -> int | None:
        """The axis of its weight that counts outputs; None if unknown."""
        if self.module is not None:
            return 1 if is_conv1d(self.module) else 0
        is_turned = self.names.is_turned if self.names is not None and self.name in _TURNED_MAPS else False
        return None if is_turned is None else int(is_turned)

    @cached_property
    def map(self) -> Map | None:
        """The linear map that it is; None for anything else."""
        weight = self.own.get("weight")
        if weight is None or weight.ndim != 2 or self.is_embedding or self.output_axis is None:
            return None
        if self.module is not None and (sizes := linear_map(self.module)) is not None:
            return sizes  # of a quantized weight, the shape is another
        return Map(weight.shape[1 - self.output_axis], weight.shape[self.output_axis])

    @cached_property
    def maps(self) -> tuple[tuple[str, Map], ...]:
        """(name, map) of the linear maps among its children, and of those inside of forwarding ones."""
        linear_maps: list[tuple[str, Map]] = []
        for child in self.children.values():
            if child.map is not None:
                linear_maps.append((child.word, child.map))
            elif child.children and all(_FORWARDED.fullmatch(name) for name in child.children):
                linear_maps += child.maps
        return tuple(linear_maps)

    @property
    def head_counts(self) -> tuple[int | None, int | None, int | None]:
        """Return (query heads, key-value heads, their size) by the module, its configuration or the caller."""
        if self.module is None:
            return (self.names.heads if self.names else None), None, None
        return tuple(read_number(self.module, names) for names in _HEAD_NUMBERS)  # type: ignore[return-value]  # three

    @property
    def path(self) -> tuple[str, ...]:
        """Names from the root, itself without a name, to it."""
        return tuple(part.name for part in self.lineage)[-2::-1]


@dataclass(frozen=True)
class Site:
    """The place of a parameter. A tied parameter has several."""

    tensor: Tensor
    name: str
    """Its own name in the part that holds it: `weight`."""
    part: Part

    @property
    def map(self) -> Map | None:
        """The linear map whose weight it is; None for anything else."""
        return self.part.map if self.name == "weight" else None

    @property
    def word(self) -> str:
        """The name that says what it is: the map's, or its own where that is not just `weight`."""
        return self.part.word if self.name == "weight" else self.name

    @property
    def output_axis(self) -> int:
        """The axis of the weight that counts output neurons."""
        return self.part.output_axis or 0

    @cached_property
    def path(self) -> str:
        """Its path, with `N` for numbers and without `.weight`: `model.layers.N.self_attn.q_proj`."""
        names = [*self.part.path, *([] if self.name == "weight" else [self.name])]
        return ".".join("N" if name.isdigit() else name for name in names)


def tree(model: nn.Module) -> Part:
    """Return the parts of a model."""
    root = Part(module=model)
    _grow(root, model, ())
    return root


def _grow(part: Part, module: nn.Module, path: tuple[str, ...]) -> None:
    part.module = module
    part.own.update((name, value) for name, value in module._parameters.items() if value is not None)
    wrapped = None
    for name, child in module._modules.items():
        if child is None:
            continue
        if name == WRAPPED or is_wrapped([*path, name]):
            wrapped = child
        else:
            part.children[name] = Part(name, part)
            _grow(part.children[name], child, (*path, name))
    if wrapped is not None:
        _grow(part, wrapped, path)


def tree_of_names(parameters: Mapping[str, Tensor], heads: int | None) -> Part:
    """Return the parts that parameter names imply; `heads` is the number of query heads of every attention."""
    root = Part(names=_Names(heads=heads))
    for name, parameter in parameters.items():
        *path, leaf = plain_name(name).split(".")
        part = root
        for step in path:
            if step != WRAPPED:
                part = part.children.setdefault(step, Part(step, part, names=root.names))
        part.own[leaf] = parameter
    assert root.names is not None
    root.names.is_turned = _is_stored_by_inputs(list(_walk(root)))
    return root


def _walk(part: Part) -> Iterator[Part]:
    yield part
    for child in part.children.values():
        yield from _walk(child)


def _is_stored_by_inputs(parts: list[Part]) -> bool | None:
    """Return whether GPT-2's maps are inputs × outputs: `c_attn` leads to more than it comes from; None if nothing
    tells."""
    fused = [part.own["weight"].shape for part in parts if part.name == "c_attn" and "weight" in part.own]
    orientations = {columns > rows for rows, columns in fused}
    if any(part.name == "c_q" for part in parts):  # nanochat's, which are `nn.Linear`
        orientations.add(False)
    return orientations.pop() if len(orientations) == 1 else None


def sites(root: Part) -> dict[int, list[Site]]:
    """Return parameter id → every site of that parameter."""
    sites_by_parameter: dict[int, list[Site]] = {}
    for part in _walk(root):
        for name, parameter in part.own.items():
            sites_by_parameter.setdefault(id(parameter), []).append(Site(parameter, name, part))
    return sites_by_parameter


def embeddings(root: Part) -> Iterable[Tensor]:
    """Yield every table of embeddings."""
    return (part.own["weight"] for part in _walk(root) if part.is_embedding and "weight" in part.own)


def linear_map(module: nn.Module) -> Map | None:
    """Return the map that a module is; None for any other module."""
    if isinstance(module, nn.Linear):
        return Map(module.in_features, module.out_features)
    if is_conv1d(module):
        return Map(*module.get_parameter("weight").shape)
    return None


def is_conv1d(module: nn.Module) -> bool:
    """Return whether it is GPT-2's `Conv1D`: a linear map stored in × out (known by its two sizes, `nx` and `nf`)."""
    return hasattr(module, "nx") and hasattr(module, "nf")


def read_heads(module: nn.Module) -> Heads | None:
    """Return the heads, if the module or its configuration says how many and how wide."""
    query, key_value, size = (read_number(module, names) for names in _HEAD_NUMBERS)
    return Heads(query=query, key_value=key_value or query, size=size) if query and size else None


def read_number(module: nn.Module, names: Iterable[str]) -> int | None:
    """Return the first of these whole numbers that the module itself, else its `config`, has; some configurations
    raise."""
    for holder in (module, getattr(module, "config", None)):
        for name in names:
            try:
                value = getattr(holder, name, None)
            except Exception:  # noqa: BLE001, S112  # a configuration may raise anything where layers differ
                continue
            if isinstance(value, int) and value > 0:
                return value
    return None


def expert_stacks(module: nn.Module) -> tuple[Tensor, Tensor] | None:
    """Return the stacks of a module that is all experts: gate and up projections, down projections, experts × m × n."""
    stacks = dict(module.named_parameters(recurse=False))
    gate_up, down = stacks.get("gate_up_proj"), stacks.get("down_proj")
    if gate_up is None or down is None or (gate_up.ndim, down.ndim) != (3, 3):
        return None
    return (gate_up, down) if gate_up.shape[0] == down.shape[0] else None


TRANSPARENT = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Under which name a wrapper holds what it wraps: `torch.compile`, FSDP, activation checkpointing."""

_AROUND_ALL = "module"
"""DDP's name for it, which is too common a word to be one anywhere but at the root."""


def is_wrapped(path: Sequence[str]) -> bool:
    """Return whether the module there is what its parent wraps; `path` are its plain names from the root, its own
    last."""
    return path[-1] in TRANSPARENT or list(path) == [_AROUND_ALL]


@cache
def plain_name(parameter: str) -> str:
    """Return a parameter's name without wrappers: `module._orig_mod.lm_head.weight` is `lm_head.weight`."""
    *path, leaf = parameter.split(".")
    plain: list[str] = []
    for name in path:
        if not is_wrapped([*plain, name]):
            plain.append(name)
    return ".".join([*plain, leaf])
