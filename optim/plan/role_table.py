"""The table of roles: what the weights of a library's modules are, where no rule of `roles.py` knows.

    module (its class)   weight                     is, along its outputs
    GPTNeoXAttention     query_key_value.weight     query, key, value for each query head

Rows are data, asked before the rules: `register_role` adds those of a library that is not here, and later rows win.
Most modules need none.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from torch import nn

from ..errors import RuleError
from .blocks import BlockKind, Slice
from .modules import Heads, Site, read_heads

Repeats = int | Literal["query head", "key-value head", "expert"]
"""The repetition of a fused weight's kinds: once, a fixed number of times, for every head or expert."""


@dataclass(frozen=True, kw_only=True)
class BlockRole:
    """The role of a parameter or of a part of it; the fields are `Block`'s."""

    kind: BlockKind
    output_axis: int = 0
    head_size: int = 1
    part: Slice | None = None
    index: int | None = None
    label: str = ""
    is_piece: bool = False
    """Whether others of its kind lie apart in the same matrix, as the heads' queries where query and key alternate."""

    def shape(self, parameter: tuple[int, ...]) -> tuple[int, ...]:
        """Return the block's shape in a parameter of that shape."""
        sizes = list(parameter if self.index is None else parameter[1:])
        if self.part is not None:
            sizes[self.part.axis] = self.part.length
        return tuple(sizes)


@dataclass(frozen=True)
class Role:
    """The role of the weights of that name in modules of that class.

    A fused weight is several kinds in a row. Query, key and value are as wide as their heads say, other kinds share the
    outputs equally. With `repeats` that row follows itself: GPT-NeoX has query, key and value of the first head, then
    those of the second, and each head's is a block of its own.
    """

    module: str
    """A shell pattern (`*`, `?`, `[…]`) for the name of the module's class or of one that it inherits from."""
    weight: str
    """A shell pattern for the weight's name from that module on: `query_key_value.weight`."""
    kinds: BlockKind | tuple[BlockKind, ...]
    """Its kind; several in their order along the outputs, experts along the first dimension."""
    _: KW_ONLY
    repeats: Repeats = 1
    heads: Heads | Callable[[nn.Module], Heads | None] | None = None
    """The module's heads; None if it has them under one of the usual names (`num_heads`, `num_kv_heads`, …)."""
    output_axis: int | None = None
    """The axis of a matrix that counts outputs; None for 0, and 1 for GPT-2's `Conv1D`."""
    is_stack: bool = False
    """Whether its first dimension counts experts, each a matrix of its own."""

    def __post_init__(self) -> None:
        if not self.sequence:
            raise RuleError(f"the role of {self.weight!r} in {self.module!r} names no kind; give it a BlockKind")
        if self.repeats not in ("query head", "key-value head", "expert") and not (
            isinstance(self.repeats, int) and self.repeats >= 1
        ):
            raise RuleError(
                f"the role of {self.weight!r} in {self.module!r} repeats {self.repeats!r}; say how often, at least 1, "
                f"or for every 'query head', 'key-value head' or 'expert'"
            )

    @property
    def sequence(self) -> tuple[BlockKind, ...]:
        """Return the kinds, a single one too."""
        return (self.kinds,) if isinstance(self.kinds, BlockKind) else tuple(self.kinds)

    def fits_class(self, cls: type) -> bool:
        """Return whether it speaks of modules of that class."""
        return any(fnmatchcase(base.__name__, self.module) for base in cls.__mro__)

    def blocks(self, site: Site, module: nn.Module) -> tuple[BlockRole, ...]:
        """Return the blocks of the weight that lives there, in a module that the role speaks of.

        Raises:
            RuleError: the weight cannot be divided as the role says.
        """
        shape = tuple(site.tensor.shape)
        if self.is_stack and len(shape) != 3:
            raise self._error(site, "is not a stack of matrices")
        matrix = shape[1:] if self.is_stack else shape
        axis = site.output_axis if self.output_axis is None else self.output_axis
        if len(self.sequence) > 1 or self.repeats != 1 or set(self.sequence) & _HEADED:
            if len(matrix) != 2:
                raise self._error(site, "is not a matrix")
            divided = 0 if self.repeats == "expert" else axis
            parts = tuple(self._parts(site, module, axis, divided, matrix[divided]))
        else:
            parts = (BlockRole(kind=self.sequence[0], output_axis=axis),)
        if not self.is_stack:
            return parts
        return tuple(
            replace(part, index=expert, label=".".join(filter(None, (str(expert), part.label or _kind_of(part)))))
            for expert in range(shape[0])
            for part in parts
        )

    def _parts(self, site: Site, module: nn.Module, axis: int, divided: int, length: int) -> Iterator[BlockRole]:
        heads = self._heads(module)
        repeats = self._number(heads, module)
        sizes = self._sizes(heads, repeats, length)
        is_even = heads is None or len(self.sequence) == 1 or all(size % heads.size == 0 for size in sizes or ())
        if repeats is None or sizes is None or sum(sizes) * repeats != length or not is_even:
            raise self._error(site, f"cannot be divided so by {heads or 'unknown heads'}")
        if len(sizes) * repeats == 1:
            yield BlockRole(kind=self.sequence[0], output_axis=axis, head_size=self._head_size(heads, 0, sizes[0]))
            return
        start = 0
        for repeat in range(repeats):
            for position, (kind, size) in enumerate(zip(self.sequence, sizes, strict=True)):
                names = [str(repeat)] if repeats > 1 else []
                names += [str(position)] if self.sequence.count(kind) > 1 else []
                yield BlockRole(
                    kind=kind,
                    output_axis=axis,
                    head_size=self._head_size(heads, position, size),
                    part=Slice(axis=divided, start=start, length=size),
                    label=".".join([*names, str(kind)]) if names else "",
                    is_piece=repeats > 1 and self.repeats != "expert",
                )
                start += size

    def _heads(self, module: nn.Module) -> Heads | None:
        if self.heads is None:
            return read_heads(module)
        return self.heads if isinstance(self.heads, Heads) else self.heads(module)

    def _number(self, heads: Heads | None, module: nn.Module) -> int | None:
        if isinstance(self.repeats, int):
            return self.repeats
        if self.repeats == "expert":
            return next((n for n in (getattr(module, name, None) for name in _EXPERTS) if isinstance(n, int)), None)
        if heads is None:
            return None
        return heads.query if self.repeats == "query head" else heads.key_value

    def _sizes(self, heads: Heads | None, number: int | None, outputs: int) -> list[int] | None:
        """Return the outputs of each kind in one of so many repetitions."""
        if not number:
            return None
        if heads is not None and len(self.sequence) > 1 and set(self.sequence) <= _HEADED:
            if self.repeats == "query head":
                return [heads.size] * len(self.sequence)
            return [heads.width(kind) // number for kind in self.sequence]
        return [outputs // (number * len(self.sequence))] * len(self.sequence)

    def _head_size(self, heads: Heads | None, position: int, size: int) -> int:
        kind = self.sequence[position]
        if heads is None or kind not in _HEADED:
            return 1
        if len(self.sequence) > 1:
            return heads.size
        number = heads.query if kind is BlockKind.QUERY else heads.key_value
        return size // number if size % number == 0 else 1

    def _error(self, site: Site, fault: str) -> RuleError:
        name = ".".join((*site.part.path, site.name))
        return RuleError(
            f"{name} {tuple(site.tensor.shape)} {fault}, as the role of {self.weight!r} in {self.module!r} says; "
            f"register another role for it"
        )


def _kind_of(part: BlockRole) -> str:
    """Return the kind, where the matrix of an expert is several blocks."""
    return "" if part.part is None else str(part.kind)


def register_role(role: Role) -> None:
    """Add a row to the table, for every plan from now on; it wins over those that are there.

    A registered role that fits a weight and cannot divide it is an error of the plan; rows that come with the table
    leave such a weight without a role.
    """
    _REGISTERED.insert(0, role)
    _rows_of.cache_clear()


def table_roles(site: Site) -> tuple[BlockRole, ...]:
    """Return the roles of the weight there according to the table; empty if it has none.

    A weight that its shipped row cannot divide is `OTHER`: names alone, which say nothing of its order, would mislead.
    """
    names = [site.name]
    parts = []
    for part in site.part.lineage:
        if part.module is not None:
            parts.append((part.module, ".".join(reversed(names))))
        names.append(part.name)
    for is_registered in (True, False):
        for module, name in reversed(parts):
            cls: type = type(module)
            for role in _rows_of(cls, is_registered):
                if not fnmatchcase(name, role.weight):
                    continue
                try:
                    return role.blocks(site, module)
                except RuleError:
                    if is_registered:
                        raise
                    return (BlockRole(kind=BlockKind.OTHER),)
    return ()


_REGISTERED: list[Role] = []


@lru_cache(maxsize=4096)
def _rows_of(cls: type, is_registered: bool) -> tuple[Role, ...]:
    rows: Sequence[Role] = _REGISTERED if is_registered else SHIPPED
    return tuple(role for role in rows if role.fits_class(cls))


_Q, _K, _V, _OUT = BlockKind.QUERY, BlockKind.KEY, BlockKind.VALUE, BlockKind.ATTENTION_OUTPUT
_HEADED = frozenset({_Q, _K, _V})
_EXPERTS = ("moe_num_experts", "num_experts")
"""Under which a module has the number of experts whose matrices stand below each other in one."""


def _jetmoe_heads(attention: nn.Module) -> Heads | None:
    """Return the heads of one expert, who has as many queries as all have keys."""
    number, size = getattr(attention, "num_key_value_heads", None), getattr(attention, "head_dim", None)
    return (
        Heads(query=number, key_value=number, size=size) if isinstance(number, int) and isinstance(size, int) else None
    )


def _litgpt_heads(attention: nn.Module) -> Heads | None:
    """Return the heads of litgpt's attention before its fused map was called `qkv`: others give the common class that
    map in another order."""
    return read_heads(attention) if hasattr(getattr(attention, "config", None), "n_query_groups") else None


SHIPPED: tuple[Role, ...] = (
    # Query, key and value of each head, or of each key-value head and the queries that share it, after each other.
    Role("GPTNeoX*Attention", "query_key_value.weight", (_Q, _K, _V), repeats="query head"),
    Role("BloomAttention", "query_key_value.weight", (_Q, _K, _V), repeats="query head"),
    Role("PersimmonAttention", "query_key_value.weight", (_Q, _K, _V), repeats="query head"),
    Role("FalconAttention", "query_key_value.weight", (_Q, _K, _V), repeats="key-value head"),
    Role("GPTBigCodeAttention", "c_attn.weight", (_Q, _K, _V), repeats="key-value head"),
    Role("CausalSelfAttention", "attn.weight", (_Q, _K, _V), repeats="key-value head", heads=_litgpt_heads),
    Role("CodeGenAttention", "qkv_proj.weight", (_Q, _V, _K), repeats=4),  # as for four TPU cores
    Role("DisentangledSelfAttention", "in_proj.weight", (_Q, _K, _V), repeats="query head"),
    Role("MiniMaxLightningAttention", "qkv_proj.weight", (_Q, _K, _V), repeats="query head"),
    Role("Qwen3Next*Attention", "q_proj.weight", (_Q, BlockKind.GATE), repeats="query head"),
    Role("Qwen3_5*Attention", "q_proj.weight", (_Q, BlockKind.GATE), repeats="query head"),
    # Keys and values of all, queries and outputs of each expert.
    Role("JetMoeAttention", "kv_proj.weight", (_K, _V), heads=_jetmoe_heads),
    Role("JetMoeAttention", "experts.input_linear.weight", _Q, is_stack=True, heads=_jetmoe_heads),
    Role("JetMoeAttention", "experts.output_linear.weight", BlockKind.ATTENTION_OUTPUT, is_stack=True),
    Role("JetMoeMoE", "input_linear.weight", (BlockKind.MLP, BlockKind.MLP), is_stack=True),
    Role("JetMoeMoE", "output_linear.weight", BlockKind.MLP, is_stack=True),
    # The experts below each other in one matrix: inner × in, and inner × out.
    Role("DbrxExpertGLU", "[wv]1", BlockKind.MLP, repeats="expert", output_axis=0),
    Role("DbrxExpertGLU", "w2", BlockKind.MLP, repeats="expert", output_axis=1),
    # Names that stand for something else elsewhere.
    Role("BottleneckLayer", "dense.weight", BlockKind.PROJECTION),  # MobileBERT's
    Role("Zamba*HybridLayer", "linear.weight", BlockKind.PROJECTION),
    # The inputs of the head that MobileBERT's tied embeddings are too narrow for, inputs × outputs.
    Role("MobileBertLMPredictionHead", "dense.weight", BlockKind.LM_HEAD, output_axis=1),
    Role("*ForCTC", "lm_head.weight", BlockKind.TASK_HEAD),
    # A convolution whose norm is a parameter of its own.
    Role("ParametrizedConv?d", "parametrizations.weight.original1", BlockKind.CONVOLUTION),
)
"""The rows that come with the library: orders and names that no rule of `roles.py` knows."""
