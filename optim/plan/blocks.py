"""The block plan: what AdaPM keeps for every block of a Transformer, as frozen records.

A *block* is a weight matrix with one role (query, key, MLP, …). Most blocks are whole parameters; a fused parameter
such as GPT-2's `c_attn` is several blocks, each a slice of it, and a stack of experts is some for every expert.
`placement.py` makes a plan from a model, `adapm.py` allocates exactly the tensors that the plan names, so the plan's
bytes are the optimizer's bytes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from types import MappingProxyType

import torch
from torch import Tensor

from ..str_enum import StrEnum


class BlockKind(StrEnum):
    """The role of a block in the model."""

    EMBEDDING = "embedding"
    LM_HEAD = "lm_head"
    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    ATTENTION_OUTPUT = "attention_output"
    MLP = "mlp"
    ROUTER = "router"
    """The map that chooses a token's experts, and the gate of a shared expert."""
    ADAPTER = "adapter"
    """A factor of a LoRA update, or trained prompts."""
    TASK_HEAD = "task_head"
    """A map behind the Transformer's layers that is no LM head: pooler, transform, classifier."""
    LATENT = "latent"
    """A map to or from the latents of latent attention (DeepSeek)."""
    GATE = "gate"
    """A map to the gate of an attention's output, or of another map's."""
    MIXER = "mixer"
    """A weight of a layer that mixes tokens without attention: state-space models, linear recurrences, short
    convolutions."""
    CONVOLUTION = "convolution"
    PROJECTION = "projection"
    """A map between the widths of embeddings, layers and heads, or of relative positions."""
    POSITION_BIAS = "position_bias"
    """A table of attention biases by relative position, as T5 has it."""
    VECTOR = "vector"
    """Norms, biases and scalars: every parameter of fewer than two dimensions, and stacks of such."""
    OTHER = "other"
    """A weight that the plan cannot place, kept like Adam's because the user said `unknown="full"` or gave a rule."""


class FirstMoment(StrEnum):
    """The momentum that is kept."""

    FULL = "full"
    LOW_RANK = "low rank"
    NONE = "none"


class SecondMoment(StrEnum):
    """Over what the squared gradient is averaged: one stored value for each of these."""

    ELEMENT = "element"
    ROW = "row"
    """One value per token or position of an embedding, one per token of an LM head."""
    NEURON = "neuron"
    """One value an output neuron."""
    HEAD = "head"
    """One value an attention head."""


PAPER_FIRST_MOMENTS: Mapping[BlockKind, FirstMoment] = MappingProxyType(
    # The paper is silent on most kinds, and nobody has measured them: nothing is risked.
    dict.fromkeys(BlockKind, FirstMoment.FULL)
    | {
        BlockKind.EMBEDDING: FirstMoment.NONE,  # paper, §4.1 (1)
        BlockKind.ATTENTION_OUTPUT: FirstMoment.NONE,  # paper, §4.1 (1)
        BlockKind.LM_HEAD: FirstMoment.NONE,  # paper silent; its Llama-350M memory (table 2) only fits without
        BlockKind.QUERY: FirstMoment.LOW_RANK,  # paper, §4.1 (2)
        BlockKind.KEY: FirstMoment.LOW_RANK,  # paper, §4.1 (2)
        BlockKind.MLP: FirstMoment.LOW_RANK,  # paper, §4.1 (2)
        BlockKind.VALUE: FirstMoment.FULL,  # paper, §4.1 (3)
    }
)
"""AdaPM's partition of the momentum (paper, section 4.1)."""

ADAM_SECOND_MOMENTS: Mapping[BlockKind, SecondMoment] = MappingProxyType(dict.fromkeys(BlockKind, SecondMoment.ELEMENT))
"""Adam's second moment: one value a parameter. AdaPM keeps it."""

ADAM_MINI_SECOND_MOMENTS: Mapping[BlockKind, SecondMoment] = MappingProxyType(
    dict.fromkeys(BlockKind, SecondMoment.ELEMENT)
    | {
        BlockKind.EMBEDDING: SecondMoment.ROW,
        BlockKind.LM_HEAD: SecondMoment.ROW,
        BlockKind.QUERY: SecondMoment.HEAD,
        BlockKind.KEY: SecondMoment.HEAD,
        BlockKind.VALUE: SecondMoment.NEURON,
        BlockKind.ATTENTION_OUTPUT: SecondMoment.NEURON,
        BlockKind.MLP: SecondMoment.NEURON,
        BlockKind.ADAPTER: SecondMoment.NEURON,
    }
)
"""Adam-mini's second-version partition (Zhang et al., arXiv 2406.16793v6, algorithm 3). AdaPM-mini keeps it."""


EIGHT_BIT = torch.int8
"""The type of state that stands for 8 bits per element (`adapm/eight_bit.py`)."""
SCALED_ELEMENTS = 128
"""Neighbours of a row that share a scale there."""
SCALE = "_scale"
"""Behind the name of such a state, the name of its scales."""


@dataclass(frozen=True, kw_only=True)
class Slice:
    """The part of a fused matrix that one block is: `matrix.narrow(axis, start, length)`."""

    axis: int
    start: int
    length: int

    def __str__(self) -> str:
        rows = f"{self.start}:{self.start + self.length}"
        return f"[{rows}]" if self.axis == 0 else f"[{':, ' * self.axis}{rows}]"


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block and its state."""

    parameter: str
    """The parameter's qualified name in the model."""
    kind: BlockKind
    shape: tuple[int, ...]
    """The block's own shape; m × n for a matrix, as it is stored."""
    first_moment: FirstMoment
    second_moment: SecondMoment
    rank: int = 0
    """Rank of the momentum's factors; 0 unless the first moment is low rank."""
    output_axis: int = 0
    """The axis that counts output neurons: 0 for `nn.Linear` (out × in), 1 for `Conv1D` (in × out)."""
    head_size: int = 1
    """Neighbouring output neurons that share one second moment where that is per head; else 1."""
    state_dtype: torch.dtype
    """The type of all state; `EIGHT_BIT` is that of momentum, its factors, and second moments of one value an
    element."""
    part: Slice | None = None
    """None if the block is a whole matrix."""
    index: int | None = None
    """The matrix of a stack (experts × m × n) that is this block; None if the parameter is not a stack."""
    label: str = ""
    """Tells the blocks of one parameter apart, `gate` or `3.up`; empty if the kind does, or there is one only."""

    @property
    def name(self) -> str:
        """Unique in the model: the parameter's name, and the role where the parameter is several blocks."""
        return f"{self.parameter}:{self._label}" if self._label else self.parameter

    @property
    def decays(self) -> bool:
        """Weight decay is for matrices: vectors and biases never decay."""
        return len(self.shape) > 1 and self.kind not in (BlockKind.VECTOR, BlockKind.POSITION_BIAS)

    @cached_property
    def state_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The tensors kept for this block: state name → shape."""
        shapes: dict[str, tuple[int, ...]] = {}
        if self.first_moment is FirstMoment.FULL:
            shapes["exp_avg"] = self.shape
        elif self.first_moment is FirstMoment.LOW_RANK:
            rows, columns = self.shape
            shapes |= {"momentum_left": (rows, self.rank), "momentum_right": (self.rank, columns)}
        is_shared = self.second_moment is not SecondMoment.ELEMENT
        shapes["exp_avg_sq"] = (self.shape[self.output_axis] // self.head_size,) if is_shared else self.shape
        for name, shape in [*shapes.items()]:
            if self._is_coded(shape):
                shapes[f"{name}{SCALE}"] = shape[0], ceil(prod(shape[1:]) / SCALED_ELEMENTS)
        return shapes

    @cached_property
    def state_dtypes(self) -> Mapping[str, torch.dtype]:
        """The types of `state_shapes`."""
        return {name: self._dtype_of(name, shape) for name, shape in self.state_shapes.items()}

    @property
    def state_bytes(self) -> int:
        """Bytes of `state_shapes`. The parameter's step counter (4 bytes) is not the block's."""
        return sum(prod(shape) * self.state_dtypes[name].itemsize for name, shape in self.state_shapes.items())

    def key(self, state_name: str) -> str:
        """Return the optimizer's name of that state tensor: `exp_avg_sq`, or `query.exp_avg_sq` in a fused
        parameter."""
        return f"{self._label}.{state_name}" if self._label else state_name

    def view(self, tensor: Tensor) -> Tensor:
        """Return this block of a parameter-shaped tensor (parameter or gradient), without a copy."""
        matrix = tensor if self.index is None else tensor[self.index]
        if self.part is None:
            return matrix
        return matrix.narrow(self.part.axis, self.part.start, self.part.length)

    @property
    def _label(self) -> str:
        return self.label or ("" if self.part is None else str(self.kind))

    def _is_coded(self, shape: tuple[int, ...]) -> bool:
        """Return whether state of that shape is kept in 8 bits: vectors are not, which are small."""
        return self.state_dtype is EIGHT_BIT and len(shape) > 1

    def _dtype_of(self, name: str, shape: tuple[int, ...]) -> torch.dtype:
        if self.state_dtype is not EIGHT_BIT:
            return self.state_dtype
        if name.endswith(SCALE) or not self._is_coded(shape):
            return torch.float32
        return torch.uint8 if name == "exp_avg_sq" else EIGHT_BIT


@dataclass(frozen=True)
class BlockPlan:
    """Every block of a model, in the order of its parameters. `print(plan)` shows it as a table."""

    blocks: tuple[Block, ...]

    @cached_property
    def parameter_blocks(self) -> Mapping[str, tuple[Block, ...]]:
        """Parameter name → its blocks."""
        blocks_by_parameter: dict[str, tuple[Block, ...]] = {}
        for block in self.blocks:
            blocks_by_parameter[block.parameter] = (*blocks_by_parameter.get(block.parameter, ()), block)
        return blocks_by_parameter

    @property
    def by_parameter(self) -> Mapping[str, tuple[Block, ...]]:
        """Return `parameter_blocks`, by its name in earlier versions."""
        return self.parameter_blocks

    @cached_property
    def elements(self) -> Mapping[str, int]:
        """Parameter name → elements of its blocks, which are all of its own."""
        return {name: sum(prod(block.shape) for block in blocks) for name, blocks in self.parameter_blocks.items()}

    @cached_property
    def largest(self) -> int:
        """Elements of the largest block."""
        return max((prod(block.shape) for block in self.blocks), default=0)

    @property
    def state_bytes(self) -> int:
        """Bytes of everything that is kept, step counters (4 bytes per parameter) excepted."""
        return sum(block.state_bytes for block in self.blocks)

    def __str__(self) -> str:
        """Return the plan as a table: parameter, slice, shape, block, first moment, second moment, rank, state
        bytes."""
        total = ("total", *[""] * (len(_HEADINGS) - 2), f"{self.state_bytes:,}")
        rows = [_HEADINGS, *map(_row, self.blocks), total]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
        return "\n".join(_line(row, widths) for row in rows)

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)


def rank_of(shape: tuple[int, ...], rank_ratio: float) -> int:
    """Return the rank for an m × n block: `rank_ratio` of min(m, n), rounded, at least 1 (the paper's "5 % of the
    dimension")."""
    return max(1, round(rank_ratio * min(shape)))


_HEADINGS = ("parameter", "slice", "shape", "block", "first moment", "second moment", "rank", "state bytes")
_NUMERIC = ("rank", "state bytes")


def _row(block: Block) -> tuple[str, ...]:
    return (
        block.parameter,
        _slice_text(block),
        "×".join(str(size) for size in block.shape) or "scalar",
        block.kind,
        block.first_moment,
        f"per {block.second_moment}",
        str(block.rank or ""),
        f"{block.state_bytes:,}",
    )


def _slice_text(block: Block) -> str:
    """Return `[:, 0:768]` of a fused matrix, `[3]` of a stack, `[3][0:80]` of both."""
    index = "" if block.index is None else f"[{block.index}]"
    return index + ("" if block.part is None else str(block.part))


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = (
        cell.rjust(width) if heading in _NUMERIC else cell.ljust(width)
        for cell, width, heading in zip(row, widths, _HEADINGS, strict=True)
    )
    return "  ".join(cells).rstrip()
