"""Roles of a parameter's blocks: rules in order, the first that answers is right.

    adapter · vector · the table (`role_table.py`) · position bias · mixer · embedding · convolution · attention
    · router · experts · LM head · task head · projection · MLP · by shape: LM head, MLP

A rule goes by names (patterns for paths such as `model.layers.N.mlp.down_proj`), by the shapes of the maps beside a
weight, and by head counts where a module or its configuration says them. It gives the parameter's places or nothing.
Only names that public code uses for one thing are here; a weight that no rule places is `OTHER`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from torch import nn

from .blocks import BlockKind, Slice
from .modules import Heads, Map, Part, Site, embeddings
from .role_table import BlockRole, table_roles

Vocabularies = frozenset[Map]
"""The maps that an LM head can be: from the width of a token embedding to its tokens."""

_ADAPTER = re.compile(
    r"(?:^|\.)(?:(?:lora|hada|lokr|oft|boft|hra|vera|vblora|miss|bone|trainable_tokens)_\w+"
    r"|prompt_(?:encoder|embeddings?|tokens)|soft_prompt|\w+_adapter_list)(?:\.|$)"
)
"""PEFT's names of LoRA's, LoHa's, LoKr's, OFT's, … factors and of trained prompts, and Zamba2's adapters."""
_POSITION_BIAS = re.compile(
    r"rel(?:ative)?_(?:pos|position|attention|attn)_?\w*(?:bias|_h$|_w$|_embed$|_embeddings$)|position_bias"
    r"|attention_bias(?:es)?$|(?:^|\.)seg_embed$|cpb_mlp"
)
_POSITIONS = re.compile(r"(?:absolute_)?pos(?:ition)?_?(?:embed(?:ding)?s?|emb)?(?:_\w+)?|wpe")
_STACKED_VECTORS = re.compile(r"\w*(?:_bias|scale|norm|latents|(?<!prompt_)tokens?)|query")
"""Biases of experts, scales of heads, learned tokens and queries: parameters of their own."""
_MIXER_STATE = frozenset({"A_log", "time_decay"})
"""Decay rates: whoever keeps them mixes tokens by a recurrence (Mamba and its kin, gated delta nets, RWKV)."""
_MIXER_CLASS = re.compile(r"\w*(?:ShortConv|RecurrentBlock|LSTMLayer|DeltaAttention)")
"""Layers without such a name (LFM2, RecurrentGemma, xLSTM, Kimi)."""
_ROUTER = re.compile(r"(?:^|\.)rout(?:er|ing)(?:\.|_|$)")
_OTHER_GATES = re.compile(r"(?:^|[._])hc(?:[._]|$)|receptance$")
"""Maps to the gates of several residual streams (DeepSeek V4's hyper-connections), and RWKV's."""

_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)
_MLP = re.compile(r"mlp|ffn|feed_?forward|denserelu|expert|moe", re.IGNORECASE)
_QUERY_KEY_VALUE = re.compile(
    r"(?!\w*key_value)(?:to_|c_|[wW]_?|project(?:ion)?_|\w+_(?=query|key|value))?(?:(q|query)|(k|key)|(v|value))(?:_?(?:proj|lin|attn|head|weight|global|current|delayed))*"
)
_FUSED = re.compile(r"c_attn|(?:to_|attn_|W)?qkv(?:_proj)?")
"""Query, key and value in one map, in this order; in GPT-2's cross-attention key and value."""
_FUSED_KEY_VALUE = re.compile(r"c_attn|(?:to_)?kv(?:_proj)?")
_OUTPUT = re.compile(
    r"(?:c_|o_|out_|output_|post_)?proj|proj_o|output|[oO]|[wW]_?[oO]|w_out|to_out|out_lin|dense|attention_out|merge"
)
_LATENT = re.compile(r"(?:^|\.)(?:(?:q|k|v|kv|o)_[ab]_proj\w*$|w(?:q|kv|o)_[ab]$|indexer\.|compressor\.)")
"""Maps to and from the latents of latent attention (DeepSeek), and what looks at tokens for it."""
_GATE = re.compile(r"\w*gate\w*|g_proj|dt_proj|receptance")
_BESIDE_ATTENTION = re.compile(r"(?:pos|r|rel|sink|linear_pos)(?:_\w+)?|proj_[lw]|\w*relative_pos\w*|conv_\w+_layer")
"""Maps of relative positions, of attention sinks, between heads, and to the kernels of convolutions."""

_LM_HEAD = re.compile(
    r"(?:^|\.)(?:lm_head|embed_out|to_logits)(?:\.decoder|\.modules_to_save\.\w+)?$|predictions\.decoder$"
)
_TASK_HEAD = re.compile(
    r"^(?!.*\.N\.)(?:.*\.)?(?:pooler|transform|vocab_transform|(?:pre_)?classifier|score|seq_relationship|qa_outputs"
    r"|(?:\w+_)?heads?|head_dist|fc|pre_logits)(?:\.(?!mlp)\w+){0,2}$|(?:lm_head|predictions|projection_head)\.dense\w*$"
    r"|(?:^|\.)(?:pooler|transform)\.\w+$"
)
"""Maps behind the layers, which no number precedes."""
_PROJECTION = re.compile(
    r"project(?:or|ion|_in|_out|_inputs)?(?:_\w+)?(?:\.\w+)?$(?<!layers\.N\.per_layer_projection)|bottleneck\.|connector\.|embedding_hidden_mapping_in$"
    r"|embedding_transformation$|map_inputs_layer$|(?:vision|image|patch)_embed\w*$|img_projection|_for_\w*speech$"
    r"|embeddings?_(?:project|dense)$|embed(?:der)?\.out$|conv_out$"
)
_MLP_NAMES = re.compile(
    r"(?:fc|lin|linear|dense|w)_?[123]|c_fc|fc_(?:in|out)|(?:gate|up|down)_proj|wi(?:_[01])?|wo"
    r"|dense_(?:h_to_4h|4h_to_h)|gate_up\w*|Wi|w12|input_linear|output_linear|w[123]_\w+"
)
_FUSED_GATES = re.compile(r"gate_up\w*|Wi|w12|input_linear|fc1")
"""The two input maps of a gated MLP in one, where the way back is half as wide."""

_KINDS = (BlockKind.QUERY, BlockKind.KEY, BlockKind.VALUE)


def find_roles(parameter_sites: Sequence[Site], vocabulary_maps: Vocabularies) -> tuple[BlockRole, ...]:
    """Return the blocks of the parameter at these sites."""
    for rule in _RULES:
        for site in parameter_sites:
            if roles := tuple(rule(site)):
                is_lm_head = site.map in vocabulary_maps and site.word in ("head", "decoder", "output_projection")
                return (replace(roles[0], kind=BlockKind.LM_HEAD),) if is_lm_head else roles
    first = parameter_sites[0]
    if first.map in vocabulary_maps:
        return (BlockRole(kind=BlockKind.LM_HEAD, output_axis=first.output_axis),)
    return tuple(_mlp_by_shape(first)) or tuple(_LONE_PROJECTION(first)) or (BlockRole(kind=BlockKind.OTHER),)


def vocabularies(root: Part) -> Vocabularies:
    """Return the largest embedding of every width as the tokens': others count positions, or token types."""
    largest: dict[int, int] = {}
    for table in embeddings(root):
        if table.ndim == 2:
            tokens, width = table.shape
            largest[width] = max(tokens, largest.get(width, 0))
    return frozenset(Map(inputs=width, outputs=tokens) for width, tokens in largest.items())


def _adapter(site: Site) -> Iterator[BlockRole]:
    """Yield a factor of a LoRA update W + B A (Hu et al., arXiv 2106.09685): A is rank × in, B out × rank; and its kin.

    So are prompts that are trained in front of a frozen model (Lester et al., arXiv 2104.08691) and what makes them, as
    PEFT's `prompt_encoder`: a table of vectors, all of which every step reads, unlike a table of tokens.
    """
    if site.tensor.ndim >= 2 and _ADAPTER.search(site.path) and ("lora_" in site.path or not _is_lone(site)):
        yield BlockRole(kind=BlockKind.ADAPTER, output_axis=site.output_axis)


def _vector(site: Site) -> Iterator[BlockRole]:
    """Yield a vector's role: fewer than two dimensions, or nothing in them, or one dimension above 1 in a parameter
    of its own (a class token, the scales of IA3); stacks of biases (of experts, of heads) and of scales."""
    is_stack = _STACKED_VECTORS.fullmatch(site.name) is not None and _POSITION_BIAS.search(site.path) is None
    if site.tensor.ndim < 2 or site.tensor.numel() == 0 or _is_lone(site) or is_stack:
        yield BlockRole(kind=BlockKind.VECTOR)


def _is_lone(site: Site) -> bool:
    """Return whether one dimension alone is above 1, in what is neither a map nor a kernel."""
    is_own = site.name != "weight" or (site.tensor.ndim > 2 and not _is_convolution(site.part))
    return is_own and site.tensor.numel() == max(site.tensor.shape, default=1)


def _position_bias(site: Site) -> Iterator[BlockRole]:
    """Yield a table of attention biases by relative position, as T5 and Swin have it, or the small map that makes
    it."""
    attention = _attention_around(site) if site.part.is_embedding else None
    is_column_a_head = attention is not None and site.tensor.shape[-1] == attention.head_counts[0]
    if (is_column_a_head or _POSITION_BIAS.search(site.path)) and site.map is None:
        yield BlockRole(kind=BlockKind.POSITION_BIAS)
    elif "cpb_mlp" in site.path or "position_bias_mlp" in site.path:
        yield BlockRole(kind=BlockKind.PROJECTION)


def _mixer(site: Site) -> Iterator[BlockRole]:
    """Yield a weight of a recurrence. What is no `weight` there decays no more than a bias does."""
    if any(
        _MIXER_STATE & part.own.keys() or _MIXER_CLASS.fullmatch(type(part.module).__name__)
        for part in site.part.lineage
    ):
        yield BlockRole(kind=BlockKind.MIXER if site.name.endswith("weight") else BlockKind.VECTOR)


def _embedding(site: Site) -> Iterator[BlockRole]:
    """Yield a table of tokens or learned positions."""
    if site.part.is_embedding and site.tensor.ndim == 2:
        yield BlockRole(kind=BlockKind.EMBEDDING)
    elif site.name != "weight" and _POSITIONS.fullmatch(site.name):
        if site.tensor.ndim == 2:
            yield BlockRole(kind=BlockKind.EMBEDDING)
        elif site.tensor.ndim == 3 and site.tensor.shape[0] == 1:
            yield BlockRole(kind=BlockKind.EMBEDDING, index=0, label="0")
        else:
            yield BlockRole(kind=BlockKind.POSITION_BIAS)


def _convolution(site: Site) -> Iterator[BlockRole]:
    """Yield the kernel of a convolution: patches of an image, frames of sound, the taps of a short one."""
    if _is_convolution(site.part) and site.name == "weight":
        yield BlockRole(kind=BlockKind.CONVOLUTION)


def _is_convolution(part: Part) -> bool:
    return isinstance(part.module, nn.modules.conv._ConvNd)


def _attention_around(site: Site) -> Part | None:
    """Return the attention that the weight belongs to, by its name, class or maps."""
    lineage = [part for part in site.part.lineage if part.name and not part.name.isdigit()]
    if site.name == "weight":
        lineage = list(site.part.lineage)[1:]
    for part in lineage[:4]:
        called = type(part.module).__name__.lower() if part.module is not None else ""
        if _MLP.search(part.name):
            return None
        if _ATTENTION.search(part.name) or called.endswith(("attention", "attn")) or _holds_queries(part):
            return part
    return None


def _holds_queries(part: Part) -> bool:
    kinds = {_kind_of(name) for name, _ in part.maps}
    fused = any(_FUSED.fullmatch(name) for name, _ in part.maps)
    return (
        fused
        or {BlockKind.QUERY, BlockKind.KEY} <= kinds
        or "in_proj_weight" in part.own
        or "q_proj_weight" in part.own
    )


def _kind_of(word: str) -> BlockKind | None:
    """Return query, key or value, if the name says so."""
    matched = _QUERY_KEY_VALUE.fullmatch(word)
    return None if matched is None else _KINDS[(matched.lastindex or 1) - 1]


def _attention(site: Site) -> Iterator[BlockRole]:
    """Yield a weight of attention: query, key, value or all in one, output, latents, gates, relative positions."""
    if site.tensor.ndim > 3 or site.part.output_axis is None or (attention := _attention_around(site)) is None:
        return
    axis, outputs, word = site.output_axis, site.tensor.shape[site.output_axis], site.word
    if site.tensor.ndim == 3:  # XLNet's maps are width × heads × head size
        names = (_QUERY_KEY_VALUE, _OUTPUT, _BESIDE_ATTENTION)
        if site.name != "weight" and any(name.fullmatch(word) for name in names):
            yield BlockRole(kind=BlockKind.PROJECTION)
        return
    heads = heads_of(attention)
    separate_query = any(_kind_of(name) is BlockKind.QUERY for name, _ in attention.maps)
    is_latent = any(_LATENT.search(name) for name, _ in attention.maps)
    if _LATENT.search(site.path) or (is_latent and word == "kv_proj"):
        yield BlockRole(kind=BlockKind.LATENT, output_axis=axis)
    elif word == "in_proj_weight" or _FUSED.fullmatch(word) or (separate_query and _FUSED_KEY_VALUE.fullmatch(word)):
        yield from _fused(_KINDS[1:] if separate_query else _KINDS, heads, axis, outputs)
    elif (kind := _kind_of(word)) is not None:
        if heads is not None or attention.names is None or attention.names.heads is None:
            size = _head_size(heads, kind, outputs, is_latent=is_latent)
            yield BlockRole(kind=kind, output_axis=axis, head_size=size)
    elif any(_BESIDE_ATTENTION.fullmatch(name) for name in (word, site.part.name)):
        yield BlockRole(kind=BlockKind.PROJECTION, output_axis=axis)
    elif _OUTPUT.fullmatch(word):
        yield BlockRole(kind=BlockKind.ATTENTION_OUTPUT, output_axis=axis)
    elif _GATE.fullmatch(word):
        yield BlockRole(kind=BlockKind.GATE, output_axis=axis)


def heads_of(attention: Part) -> Heads | None:
    """Return the heads: as the module, its configuration or the caller says, and as wide as its maps; None if unknown.

    Where nobody says how many, every neuron is one: blocks are divided rightly all the same.
    """
    counts = [part.head_counts for part in [*attention.lineage][:2]]  # some hold their maps in a part of their own
    number, key_values, size = next((numbers for numbers in counts if numbers[0]), (None, None, None))
    query, key_value = _widths(attention)
    if number is None:
        return Heads(query=query, key_value=key_value, size=1) if query and key_value else None
    if not size and not query:  # a fused map alone
        fused = next((sizes.outputs for name, sizes in attention.maps if _FUSED.fullmatch(name)), 0)
        query = number * (fused // (number + 2 * (key_values or number)))
        key_value = query // number * (key_values or number)
    size = size or (query // number if query % number == 0 else 0)
    if not size or (attention.module is None and key_value % size):
        return None
    return Heads(query=number, key_value=key_values or (number if attention.module else key_value // size), size=size)


def _widths(attention: Part) -> tuple[int, int]:
    """Return the outputs of query and key, 0 if the maps do not determine them.

    Of a fused map, the output projection tells: what comes from the heads is as wide as the query.
    """
    if "in_proj_weight" in attention.own:
        return (attention.own["in_proj_weight"].shape[0] // 3,) * 2
    separate = {_kind_of(name): sizes.outputs for name, sizes in attention.maps}
    query = separate.get(BlockKind.QUERY, 0)
    if BlockKind.KEY in separate:
        return query, separate[BlockKind.KEY]
    fused = [
        sizes.outputs for name, sizes in attention.maps if _FUSED.fullmatch(name) or _FUSED_KEY_VALUE.fullmatch(name)
    ]
    if len(fused) != 1 or ({name for name, _ in attention.maps} >= _CODEGEN and attention.module is None):
        return query, 0
    if query:
        return query, fused[0] // 2
    query = next((sizes.inputs for name, sizes in attention.maps if _OUTPUT.fullmatch(name)), 0)
    return (query, (fused[0] - query) // 2) if query < fused[0] else (0, 0)


def _head_size(heads: Heads | None, kind: BlockKind, outputs: int, *, is_latent: bool) -> int:
    """Return the outputs of one head of a separate map; 1 if unknown. Some models have other heads in each layer."""
    if heads is None:
        return 1
    if outputs % heads.size == 0 and not (is_latent and outputs != heads.width(kind)):
        return heads.size
    number = heads.width(kind) // heads.size
    return outputs // number if outputs % number == 0 else 1


_CODEGEN = frozenset({"qkv_proj", "out_proj"})
"""Names of CodeGen's, which groups query, value and key in another order than all others."""


def _fused(kinds: Sequence[BlockKind], heads: Heads | None, axis: int, outputs: int) -> Iterator[BlockRole]:
    """Yield these kinds in this order along the output axis; nothing if the widths do not add up."""
    if heads is None or outputs != sum(heads.width(kind) for kind in kinds):
        return
    start = 0
    for kind in kinds:
        part = Slice(axis=axis, start=start, length=heads.width(kind))
        yield BlockRole(kind=kind, output_axis=axis, head_size=heads.size, part=part)
        start += part.length


def _router(site: Site) -> Iterator[BlockRole]:
    """Yield a row for every expert, beside the experts; one row, the gate of a shared expert; a map of such a
    choice."""
    if site.tensor.ndim != 2:
        return
    holder = site.part.parent
    beside_experts = holder is not None and any("expert" in name for name in holder.children)
    is_gate = re.fullmatch(r"gate|gating|wg|\w*expert_gate", site.part.name) is not None
    if _ROUTER.search(site.path) or (beside_experts and is_gate) or re.search(r"(?:mlp|moe)\.gate\.", site.path):
        yield BlockRole(kind=BlockKind.ROUTER, output_axis=site.output_axis)


def _experts(site: Site) -> Iterator[BlockRole]:
    """Yield a stack of expert matrices, every expert's a block or, where gate and up projection are fused, two.

    Stored experts × out × in (Mixtral, Qwen) or experts × in × out (gpt-oss, Llama 4): the two stacks' shapes tell.
    """
    if site.tensor.ndim != 3 or site.name == "weight" or not _MLP_NAMES.fullmatch(site.name):
        return
    axis = 0
    gate_up, down = site.part.own.get("gate_up_proj"), site.part.own.get("down_proj")
    if gate_up is not None and down is not None:
        (_, rows, columns), (_, down_rows, down_columns) = gate_up.shape, down.shape
        axis = int(columns == 2 * down_rows and rows == down_columns)
        if not axis and not (rows == 2 * down_columns and columns == down_rows):
            return
    # gpt-oss takes gate and up from alternating neurons, which no slice can tell apart; its stacks alone have biases.
    alternates = not getattr(site.part.module, "is_concatenated", "gate_up_proj_bias" not in site.part.own)
    for expert in range(site.tensor.shape[0]):
        if site.name == "gate_up_proj" and not alternates:
            yield from _gate_and_up(axis, site.tensor.shape[1 + axis], expert)
        else:
            yield BlockRole(kind=BlockKind.MLP, output_axis=axis, index=expert, label=str(expert))


def _gate_and_up(axis: int, outputs: int, expert: int | None = None) -> Iterator[BlockRole]:
    prefix = "" if expert is None else f"{expert}."
    for position, name in enumerate(("gate", "up")):
        part = Slice(axis=axis, start=position * outputs // 2, length=outputs // 2)
        yield BlockRole(kind=BlockKind.MLP, output_axis=axis, part=part, index=expert, label=prefix + name)


def _name_rule(pattern: re.Pattern[str], kind: BlockKind) -> "_Rule":
    """Return a rule that assigns that kind to a matrix at such a path."""

    def rule(site: Site) -> Iterator[BlockRole]:
        if site.tensor.ndim == 2 and pattern.search(site.path):
            yield BlockRole(kind=kind, output_axis=site.output_axis)

    return rule


def _mlp(site: Site) -> Iterator[BlockRole]:
    """Yield a map that is named as those of an MLP, or stands in one; two in one where the way back is half as wide."""
    if site.map is None or site.part.parent is None or _attention_around(site) is not None:
        return
    part_names = [part.name for part in site.part.lineage if not part.name.isdigit()][:3]
    if not _MLP_NAMES.fullmatch(site.word) and not any(map(_MLP.search, part_names)):
        return
    inputs, outputs = site.map
    if _FUSED_GATES.fullmatch(site.word) and Map(outputs // 2, inputs) in dict(site.part.parent.maps).values():
        yield from _gate_and_up(site.output_axis, outputs)
    else:
        yield BlockRole(kind=BlockKind.MLP, output_axis=site.output_axis)


def _mlp_by_shape(site: Site) -> Iterator[BlockRole]:
    """Yield a map d → h beside one that leads h → d, whatever their names."""
    if site.map is None or _attention_around(site) is not None:
        return
    inputs, outputs = site.map
    for ancestor in [*site.part.lineage][1:3]:
        maps = [sizes for part in (ancestor, *ancestor.children.values()) for _, sizes in part.maps]
        if inputs != outputs and Map(outputs, inputs) in maps:
            yield BlockRole(kind=BlockKind.MLP, output_axis=site.output_axis)
            return


_Rule = Callable[[Site], Iterable[BlockRole]]
_LONE_PROJECTION = _name_rule(re.compile(r"(?:^|\.)(?:proj|reduction)$"), BlockKind.PROJECTION)
"""Between the widths of stages of a model of images: nothing leads back."""

_RULES: tuple[_Rule, ...] = (
    _adapter,
    _vector,
    table_roles,
    _position_bias,
    _mixer,
    _embedding,
    _convolution,
    _attention,
    _router,
    _name_rule(_OTHER_GATES, BlockKind.GATE),
    _experts,
    _name_rule(_LM_HEAD, BlockKind.LM_HEAD),
    _name_rule(_TASK_HEAD, BlockKind.TASK_HEAD),
    _name_rule(_PROJECTION, BlockKind.PROJECTION),
    _mlp,
)
"""Each is asked at every place of a tied parameter before the next: a tied LM head is an embedding."""
