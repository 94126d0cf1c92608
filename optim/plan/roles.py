"""Which blocks a parameter is: one function a role, asked in order; the first that answers is right.

    LoRA factor, prompt · vector · the table · embedding · convolution · attention · BERT's attention output · router
    · experts · MLP · LM head · task head

A role's function gives the parameter's places, or nothing where the role is not its. Nothing from all of them means
that the weight is unknown. The table (`role_table.py`) names what structure does not tell, by the class of a module.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from torch import nn

from .blocks import BlockKind, Slice
from .modules import (
    FUSED,
    FUSED_GATES,
    MLP_NAMES,
    ROLES,
    Heads,
    Map,
    Site,
    child_maps,
    expert_stacks,
    experts_of,
    feed_forward_maps,
    heads_of,
    holds_output,
    is_attention,
    resembles_attention,
)
from .role_table import BlockRole, table_roles

Vocabularies = frozenset[Map]
"""The maps that an LM head can be: from the width of a token embedding to its tokens."""

_POSITIONS = frozenset({"pos_embed", "pos_embedding", "position_embedding", "position_embeddings", "wpe"})
TASK_HEADS = frozenset(
    {
        *("pooler", "transform", "vocab_transform", "head"),
        *("classifier", "pre_classifier", "score", "seq_relationship", "qa_outputs"),
    }
)
_QUERY_KEY_VALUE = (BlockKind.QUERY, BlockKind.KEY, BlockKind.VALUE)


def find_roles(where: Sequence[Site], vocabularies: Vocabularies) -> tuple[BlockRole, ...]:
    """The blocks of the parameter that lives there; empty where no role is its."""
    for role in _WHEREVER_TIED:
        for site in where:
            if found := tuple(role(site)):
                return found
    first = where[0]
    for role in _INSIDE_LAYERS:
        if found := tuple(role(first)):
            return found
    if first.map in vocabularies:
        return (BlockRole(kind=BlockKind.LM_HEAD, output_axis=first.output_axis),)
    return tuple(_task_head(first))


def vocabularies(model: nn.Module) -> Vocabularies:
    """For every width, the largest embedding is taken for the tokens': others count positions, or token types."""
    largest: dict[int, int] = {}
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            largest[module.embedding_dim] = max(module.num_embeddings, largest.get(module.embedding_dim, 0))
    return frozenset(Map(inputs=width, outputs=tokens) for width, tokens in largest.items())


def _vector(site: Site) -> Iterator[BlockRole]:
    """Fewer than two dimensions, or nothing in them, or a parameter of its own with one dimension above 1 (a class
    token, the scales of IA3); the biases of experts and of `nn.MultiheadAttention` are stacks of vectors."""
    stacked_bias = site.tensor.ndim == 2 and site.name.endswith("_bias") and expert_stacks(site.module) is not None
    attention_bias = isinstance(site.module, nn.MultiheadAttention) and site.name in ("bias_k", "bias_v")
    shape = site.tensor.shape
    lone = site.name != "weight" and site.tensor.numel() == max(shape, default=1)
    if site.tensor.ndim < 2 or site.tensor.numel() == 0 or lone or stacked_bias or attention_bias:
        yield BlockRole(kind=BlockKind.VECTOR)


_PROMPTS = frozenset({"prompt_encoder", "prompt_embeddings", "prompt_embedding", "prompt_tokens", "soft_prompt"})
"""What PEFT and others call trained prompts and what makes them."""


def _adapter(site: Site) -> Iterator[BlockRole]:
    """A factor of a LoRA update W + B A (Hu et al., arXiv 2106.09685): A is rank × in, B out × rank.

    So are prompts that are trained in front of a frozen model (Lester et al., arXiv 2104.08691) and what makes them, as
    PEFT's `prompt_encoder`: a table of vectors, all of which every step reads, unlike a table of tokens.
    """
    if site.tensor.ndim == 2 and any(name.startswith("lora_") or name in _PROMPTS for name in (*site.path, site.name)):
        yield BlockRole(kind=BlockKind.ADAPTER, output_axis=site.output_axis)


def _embedding(site: Site) -> Iterator[BlockRole]:
    """A table of tokens or learned positions; a column a head inside attention is T5's relative position bias."""
    if isinstance(site.module, nn.Embedding):
        heads = heads_of(site.parent) if is_attention(site.parent) else None
        bias = heads is not None and site.module.embedding_dim == heads.query
        yield BlockRole(kind=BlockKind.POSITION_BIAS if bias else BlockKind.EMBEDDING)
    elif site.name in _POSITIONS and site.tensor.ndim == 2:
        yield BlockRole(kind=BlockKind.EMBEDDING)
    elif site.name in _POSITIONS and site.tensor.ndim == 3 and site.tensor.shape[0] == 1:
        yield BlockRole(kind=BlockKind.EMBEDDING, index=0, label="0")


def _convolution(site: Site) -> Iterator[BlockRole]:
    """The kernel of a convolution: patches of an image, frames of sound, the taps of a short one."""
    if isinstance(site.module, nn.modules.conv._ConvNd) and site.name == "weight":
        yield BlockRole(kind=BlockKind.CONVOLUTION)


def _torch_attention(site: Site) -> Iterator[BlockRole]:
    """`nn.MultiheadAttention`: query, key and value stacked in `in_proj_weight`, or separate where widths differ."""
    attention = site.module if isinstance(site.module, nn.MultiheadAttention) else site.parent
    if not isinstance(attention, nn.MultiheadAttention) or site.tensor.ndim != 2:
        return
    heads = Heads(query=attention.num_heads, key_value=attention.num_heads, size=attention.head_dim)
    separate = dict(zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), _QUERY_KEY_VALUE, strict=True))
    if site.name == "in_proj_weight":
        yield from _fused_roles(_QUERY_KEY_VALUE, heads, 0, site.tensor.shape[0])
    elif site.name in separate:
        yield BlockRole(kind=separate[site.name], head_size=heads.size)
    elif site.module is attention.out_proj:
        yield BlockRole(kind=BlockKind.ATTENTION_OUTPUT)


def _attention(site: Site) -> Iterator[BlockRole]:
    """A projection of a module that is known to be attention."""
    if site.map is None or not is_attention(site.parent) or (heads := heads_of(site.parent)) is None:
        return
    axis, outputs, kind = site.output_axis, site.map.outputs, ROLES.get(site.module_name)
    if site.module_name in FUSED:
        separate_query = any(ROLES.get(name) is BlockKind.QUERY for name in child_maps(site.parent))
        yield from _fused_roles(_QUERY_KEY_VALUE[1:] if separate_query else _QUERY_KEY_VALUE, heads, axis, outputs)
    elif kind is BlockKind.ATTENTION_OUTPUT:
        yield BlockRole(kind=kind, output_axis=axis)
    elif kind is not None and outputs == heads.width(kind):
        yield BlockRole(kind=kind, output_axis=axis, head_size=heads.size)


def _latent_attention(site: Site) -> Iterator[BlockRole]:
    """The output, and a query without latent, of attention whose keys and values come from latents (DeepSeek)."""
    if site.map is None or "kv_b_proj" not in child_maps(site.parent):
        return
    kind, heads = ROLES.get(site.module_name), heads_of(site.parent)
    if kind is BlockKind.ATTENTION_OUTPUT:
        yield BlockRole(kind=kind, output_axis=site.output_axis)
    elif kind is BlockKind.QUERY and heads is not None and site.map.outputs % heads.query == 0:
        yield BlockRole(kind=kind, output_axis=site.output_axis, head_size=site.map.outputs // heads.query)


def _fused_roles(kinds: Sequence[BlockKind], heads: Heads, axis: int, outputs: int) -> Iterator[BlockRole]:
    """These kinds in this order along the output axis; nothing where the widths do not add up."""
    if outputs != sum(heads.width(kind) for kind in kinds):
        return
    start = 0
    for kind in kinds:
        part = Slice(axis=axis, start=start, length=heads.width(kind))
        yield BlockRole(kind=kind, output_axis=axis, head_size=heads.size, part=part)
        start += part.length


def _sibling_output(site: Site) -> Iterator[BlockRole]:
    """BERT's attention output: the one map beside an attention module that has none of its own."""
    if site.map is None:
        return
    for around in site.modules[-2:-4:-1]:
        cores = [child for child in around.children() if is_attention(child) and not holds_output(child)]
        if (
            len(cores) == 1
            and cores[0] not in site.modules
            and [sizes for _, sizes in feed_forward_maps(around)] == [site.map]
        ):
            yield BlockRole(kind=BlockKind.ATTENTION_OUTPUT, output_axis=site.output_axis)
            return


def _router(site: Site) -> Iterator[BlockRole]:
    """A row for every expert, beside the experts; or one row, the gate of a shared expert."""
    experts = experts_of(site.parent)
    if experts is None or site.tensor.ndim != 2 or site.name != "weight":
        return
    rows = site.tensor.shape[0]
    if rows == experts or (rows == 1 and "gate" in site.module_name):
        yield BlockRole(kind=BlockKind.ROUTER)


def _experts(site: Site) -> Iterator[BlockRole]:
    """A stack of expert matrices, every expert's a block or, where gate and up projection are fused, two.

    Stored experts × out × in (Mixtral, Qwen) or experts × in × out (gpt-oss, Llama 4): the two stacks' shapes tell.
    """
    stacked = expert_stacks(site.module)
    if stacked is None or site.name not in ("gate_up_proj", "down_proj"):
        return
    (_, rows, columns), (_, down_rows, down_columns) = (stack.shape for stack in stacked)
    turned = columns == 2 * down_rows and rows == down_columns
    if not turned and not (rows == 2 * down_columns and columns == down_rows):
        return
    axis = 1 if turned else 0
    # gpt-oss takes gate and up from alternating neurons, which no slice can tell apart.
    fused = site.name == "gate_up_proj" and getattr(site.module, "is_concatenated", True)
    for expert in range(site.tensor.shape[0]):
        if fused:
            yield from _gate_and_up(axis, site.tensor.shape[1 + axis], expert)
        else:
            yield BlockRole(kind=BlockKind.MLP, output_axis=axis, index=expert, label=str(expert))


def _gate_and_up(axis: int, outputs: int, expert: int | None = None) -> Iterator[BlockRole]:
    prefix = "" if expert is None else f"{expert}."
    for position, name in enumerate(("gate", "up")):
        part = Slice(axis=axis, start=position * outputs // 2, length=outputs // 2)
        yield BlockRole(kind=BlockKind.MLP, output_axis=axis, part=part, index=expert, label=prefix + name)


def _mlp(site: Site) -> Iterator[BlockRole]:
    """A map d → h whose module, or the layer around it, also leads h → d, or the other way round."""
    if site.map is None or any(resembles_attention(module) for module in site.modules[:-1]):
        return
    for around in site.modules[-2:-4:-1]:
        if _is_model(around):
            return
        maps = list(feed_forward_maps(around))
        if site.module_name in FUSED_GATES and Map(site.map.outputs // 2, site.map.inputs) in dict(maps).values():
            yield from _gate_and_up(site.output_axis, site.map.outputs)
            return
        if _has_way_back(site, maps):
            yield BlockRole(kind=BlockKind.MLP, output_axis=site.output_axis)
            return


def _has_way_back(site: Site, maps: list[tuple[str, Map]]) -> bool:
    """Whether another of the maps leads back from where this one leads."""
    assert site.map is not None
    inputs, outputs = site.map
    if inputs == outputs:
        return site.module_name in MLP_NAMES and [sizes for _, sizes in maps].count(site.map) >= 2
    fused = any(name in FUSED_GATES and sizes == (outputs, 2 * inputs) for name, sizes in maps)
    return fused or any(sizes == (outputs, inputs) for _, sizes in maps)


def _is_model(module: nn.Module) -> bool:
    """Whether it holds a list of layers: two of its maps are then no MLP."""
    return any(
        isinstance(part, nn.ModuleList) and any(resembles_attention(inner) for inner in part.modules())
        for part in module.modules()
    )


def _task_head(site: Site) -> Iterator[BlockRole]:
    """A map behind the layers, by name: it can have any shape."""
    if site.map is not None and any(name in TASK_HEADS for name in site.path[-2:]):
        yield BlockRole(kind=BlockKind.TASK_HEAD, output_axis=site.output_axis)


_Role = Callable[[Site], Iterable[BlockRole]]

_WHEREVER_TIED: tuple[_Role, ...] = (_adapter, _vector, table_roles, _embedding)
"""Asked at every place of a tied parameter: a tied LM head is an embedding."""
_INSIDE_LAYERS: tuple[_Role, ...] = (
    _convolution,
    _torch_attention,
    _attention,
    _latent_attention,
    _sibling_output,
    _router,
    _experts,
    _mlp,
)
