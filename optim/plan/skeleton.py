"""A model's skeleton from the names and shapes of its parameters alone: modules without weights, in which `roles.py`
then finds the blocks.

    names, shapes  →  skeleton  →  placement.py  →  plan

What names cannot say, shapes must: whether a GPT-2 keeps its maps inputs × outputs (its widest map tells), how many
key-value heads there are (their width tells). What neither says is left a bare tensor, for which no role is found; the
plan then refuses it by name. Only names that public code uses for one thing are taken for that thing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from .blocks import BlockKind
from .modules import FUSED, FUSED_GATES, MLP_NAMES, ROLES, WRAPPED, Map, child_maps, plain_name
from .roles import TASK_HEADS

EMBEDDINGS = frozenset(
    {
        *("wte", "wpe", "tokens_embed", "positions_embed", "embed_tokens", "embed_positions", "embed_in", "shared"),
        *("word_embeddings", "position_embeddings", "token_type_embeddings", "tok_embeddings", "tok_emb", "pos_emb"),
        *("token_embedding", "position_embedding", "embedding", "token_emb", "position_emb"),
    }
)
LM_HEADS = frozenset({"lm_head", "embed_out", "output"})
_MAPS = frozenset({*ROLES, *FUSED, *FUSED_GATES, *MLP_NAMES, *LM_HEADS, *TASK_HEADS})
_GPT2_MAPS = frozenset({"c_attn", "q_attn", "c_fc", "c_proj"})
"""Kept inputs × outputs (`Conv1D`) by Hugging Face, outputs × inputs by nanoGPT."""
_RELATIVE_BIAS = "relative_attention_bias"
"""T5's table of position biases: a column a head."""
_TORCH_ATTENTION = frozenset({"in_proj_weight", "q_proj_weight"})


def skeleton(parameters: Mapping[str, Tensor], heads: int | None = None) -> nn.Module:
    """Modules on `meta` that hold parameters of those names, shapes and types.

    Args:
        parameters: Every parameter by name, frozen ones too: all help to tell what the others are.
        heads: Query heads of every attention; None takes key and value for one head each, so that blocks are divided
            rightly, but not heads.
    """
    root = _Node("")
    for name, parameter in parameters.items():
        *path, own = plain_name(name).split(".")
        node = root
        for step in path:
            node = node.children.setdefault(step, _Node(node.name if step == WRAPPED else step))
        node.own[own] = parameter
    nodes = list(_walk(root))
    return _Builder(heads=heads or _columns_of_position_biases(nodes), turned=_is_stored_by_inputs(nodes)).module(root)


@dataclass
class _Node:
    """A module to be: what it is called, its own parameters, its children."""

    name: str
    own: dict[str, Tensor] = field(default_factory=dict)
    children: "dict[str, _Node]" = field(default_factory=dict)

    @property
    def matrix(self) -> Tensor | None:
        """The weight, where it has two dimensions and is all that the module has but a bias."""
        weight = self.own.get("weight")
        return weight if weight is not None and weight.ndim == 2 and not self.own.keys() - {"weight", "bias"} else None


def _walk(node: _Node) -> "list[_Node]":
    return [node, *(inner for child in node.children.values() for inner in _walk(child))]


def _is_stored_by_inputs(nodes: list[_Node]) -> bool | None:
    """Whether GPT-2's maps are inputs × outputs: `c_attn` leads to more than it comes from; None if nothing tells."""
    found = {weight.shape[1] > weight.shape[0] for weight in _matrices(nodes, "c_attn")}
    if _matrices(nodes, "c_q"):  # nanochat's, which are `nn.Linear`
        found.add(False)
    return found.pop() if len(found) == 1 else None


def _columns_of_position_biases(nodes: list[_Node]) -> int | None:
    found = {weight.shape[1] for weight in _matrices(nodes, _RELATIVE_BIAS)}
    return found.pop() if len(found) == 1 else None


def _matrices(nodes: list[_Node], name: str) -> list[Tensor]:
    return [node.matrix for node in nodes if node.name == name and node.matrix is not None]


class _Part(nn.Module):
    """A module of which nothing is known."""


class _Attention(nn.Module):
    """A module that calls itself attention: `resembles_attention` goes by this class's name."""


class _Turned(nn.Module):
    """A map stored inputs × outputs, under the two sizes by which `is_conv1d` knows one."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.nx, self.nf = inputs, outputs


class _TorchAttention(nn.MultiheadAttention):
    """torch's, without its parameters."""

    def __init__(self, width: int, heads: int) -> None:
        nn.Module.__init__(self)
        self.num_heads, self.head_dim = heads, width // heads


@dataclass(frozen=True, kw_only=True)
class _Builder:
    """What holds for the whole model."""

    heads: int | None
    turned: bool | None

    def module(self, node: _Node) -> nn.Module:
        """The module, with all that is in it."""
        module = self._bare_module(node)
        for name, parameter in node.own.items():
            empty = torch.empty(parameter.shape, dtype=parameter.dtype, device="meta")
            module.register_parameter(name, nn.Parameter(empty, requires_grad=parameter.requires_grad))
        for name, child in node.children.items():
            module.add_module(name, self.module(child))
        self._give_heads(module)
        # gpt-oss, whose stacks alone have biases, takes gate and up from alternating neurons.
        module.is_concatenated = "gate_up_proj_bias" not in node.own  # type: ignore[assignment]  # a mark on a module
        return module

    def _bare_module(self, node: _Node) -> nn.Module:
        """A module of the kind that the name and the parameters tell, without anything in it."""
        stacked = next((node.own[name] for name in _TORCH_ATTENTION if name in node.own), None)
        if stacked is not None:
            width = stacked.shape[0] // 3 if "in_proj_weight" in node.own else stacked.shape[0]
            return _Part() if width % (self.heads or 1) else _TorchAttention(width, self.heads or 1)
        if node.matrix is not None and (known := self._module_by_name(node, node.matrix)) is not None:
            return known
        if node.children and all(name.isdigit() for name in node.children):
            return nn.ModuleList()
        return _Attention() if "attn" in node.name.lower() or "attention" in node.name.lower() else _Part()

    def _module_by_name(self, node: _Node, weight: Tensor) -> nn.Module | None:
        """The embedding or linear map of that name; None where it has none that is known, or its sizes deny it."""
        rows, columns = weight.shape
        bias = node.own.get("bias")
        if node.name in EMBEDDINGS or (node.name == _RELATIVE_BIAS and columns == self.heads):
            return nn.Embedding(rows, columns, device="meta") if bias is None else None
        if node.name not in _MAPS or (node.name in _GPT2_MAPS and self.turned is None):
            return None
        turned = node.name in _GPT2_MAPS and self.turned
        inputs, outputs = (rows, columns) if turned else (columns, rows)
        if bias is not None and tuple(bias.shape) != (outputs,):
            return None
        return _Turned(inputs, outputs) if turned else nn.Linear(inputs, outputs, bias=bias is not None, device="meta")

    def _give_heads(self, module: nn.Module) -> None:
        """Tell an attention module its heads, where its maps' widths allow any."""
        widths = _widths(child_maps(module))
        if widths is None:
            return
        query, key = widths
        size = key if self.heads is None else query // self.heads
        if size and query % size == 0 and key % size == 0 and (self.heads is None or query == size * self.heads):
            numbers = {"num_heads": query // size, "num_key_value_heads": key // size, "head_dim": size}
            for name, number in numbers.items():
                setattr(module, name, number)


def _widths(maps: Mapping[str, Map]) -> tuple[int, int] | None:
    """Outputs of the query, and of key and value alike; None where the maps are no attention that names can divide.

    Of a fused map, the output projection tells: what comes from the heads is as wide as the query.
    """
    by_role = {ROLES[name]: sizes for name, sizes in maps.items() if name in ROLES}
    query, key, value, output = (by_role.get(kind) for kind in _ATTENTION)
    if query and key and value:
        return (query.outputs, key.outputs) if key.outputs == value.outputs else None
    fused = [sizes.outputs for name, sizes in maps.items() if name in FUSED]
    if len(fused) != 1 or maps.keys() >= _CODEGEN:
        return None
    if query:
        return query.outputs, fused[0] // 2
    if output and 0 < output.inputs < fused[0]:
        return output.inputs, (fused[0] - output.inputs) // 2
    return None


_ATTENTION = (BlockKind.QUERY, BlockKind.KEY, BlockKind.VALUE, BlockKind.ATTENTION_OUTPUT)
_CODEGEN = frozenset({"qkv_proj", "out_proj"})
"""Names of CodeGen's, which groups query, value and key in another order than all others."""
