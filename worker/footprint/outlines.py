"""Outlines of the catalog's models on `meta`, without transformers, which takes seconds to load.

What tells optimizers their blocks is the same as in the model that is trained: modules by name and class, head counts,
parameters by name, order, shape and tie. A test holds each preset's outline against transformers' model of it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import nn

from worker.catalog.presets import Family, ModelPreset, preset


def outline(name: str) -> nn.Module:
    """Every parameter of that preset's model, and no memory; `KeyError` for an unknown name."""
    chosen = preset(name)
    with torch.device("meta"):
        return OUTLINES[chosen.family](chosen)


class Conv1D(nn.Module):
    """GPT-2's linear map, stored inputs × outputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        """With a bias."""
        super().__init__()
        self.nf, self.nx = outputs, inputs
        self.weight, self.bias = _parameter(inputs, outputs), _parameter(outputs)


def _gpt2(chosen: ModelPreset) -> nn.Module:
    width = chosen.hidden_size

    def layer() -> nn.Module:
        attention = {"c_attn": Conv1D(width, 3 * width), "c_proj": Conv1D(width, width)}
        mlp = {"c_fc": Conv1D(width, 4 * width), "c_proj": Conv1D(4 * width, width)}
        return _module(
            "GPT2Block",
            ln_1=nn.LayerNorm(width),
            attn=_module("GPT2Attention", {"num_heads": chosen.heads, "head_dim": width // chosen.heads}, **attention),
            ln_2=nn.LayerNorm(width),
            mlp=_module("GPT2MLP", **mlp),
        )

    embedding = nn.Embedding(chosen.vocabulary_size, width)
    body = _module(
        "GPT2Model",
        wte=embedding,
        wpe=nn.Embedding(chosen.max_positions, width),
        h=nn.ModuleList(layer() for _ in range(chosen.layers)),
        ln_f=nn.LayerNorm(width),
    )
    return _with_head("GPT2LMHeadModel", "transformer", body, embedding, is_tied=True)


def _llama(chosen: ModelPreset) -> nn.Module:
    return _llama_like("Llama", chosen, _gated_mlp)


def _mixtral(chosen: ModelPreset) -> nn.Module:
    return _llama_like("Mixtral", chosen, _experts)


def _llama_like(family: str, chosen: ModelPreset, mlp: Callable[[int, Mapping[str, Any]], nn.Module]) -> nn.Module:
    """Rotary positions, no biases, grouped key and value heads."""
    width, shape = chosen.hidden_size, chosen.extra
    size = width // chosen.heads
    grouped = int(shape.get("num_key_value_heads", chosen.heads))
    heads = {"num_heads": chosen.heads, "num_key_value_heads": grouped, "head_dim": size}

    def norm() -> nn.Module:
        return _module(f"{family}RMSNorm", weight=_parameter(width))

    def layer() -> nn.Module:
        maps = {name: _linear(width, size * grouped) for name in ("k_proj", "v_proj")}
        return _module(
            f"{family}DecoderLayer",
            self_attn=_module(
                f"{family}Attention", heads, q_proj=_linear(width, width), **maps, o_proj=_linear(width, width)
            ),
            mlp=mlp(width, shape),
            input_layernorm=norm(),
            post_attention_layernorm=norm(),
        )

    embedding = nn.Embedding(chosen.vocabulary_size, width)
    body = _module(
        f"{family}Model",
        embed_tokens=embedding,
        layers=nn.ModuleList(layer() for _ in range(chosen.layers)),
        norm=norm(),
    )
    is_tied = bool(shape.get("tie_word_embeddings"))
    return _with_head(f"{family}ForCausalLM", "model", body, embedding, is_tied=is_tied)


def _gated_mlp(width: int, shape: Mapping[str, Any]) -> nn.Module:
    inner = int(shape["intermediate_size"])
    gate, up, down = _linear(width, inner), _linear(width, inner), _linear(inner, width)
    return _module("LlamaMLP", gate_proj=gate, up_proj=up, down_proj=down)


def _experts(width: int, shape: Mapping[str, Any]) -> nn.Module:
    """A router, and every expert's maps in two stacks."""
    experts, inner = int(shape["num_local_experts"]), int(shape["intermediate_size"])
    gate_up, down = _parameter(experts, 2 * inner, width), _parameter(experts, width, inner)
    return _module(
        "MixtralSparseMoeBlock",
        gate=_module("MixtralTopKRouter", weight=_parameter(experts, width)),
        experts=_module("MixtralExperts", gate_up_proj=gate_up, down_proj=down),
    )


def _with_head(cls: str, called: str, body: nn.Module, embedding: nn.Embedding, *, is_tied: bool) -> nn.Module:
    head = _linear(embedding.embedding_dim, embedding.num_embeddings)
    if is_tied:
        head.weight = embedding.weight
    return _module(cls, **{called: body}, lm_head=head)


def _module(cls: str, numbers: Mapping[str, int] | None = None, /, **parts: nn.Module | nn.Parameter) -> nn.Module:
    """A module of a class with that name, which holds those numbers, modules and parameters."""
    made: nn.Module = type(cls, (nn.Module,), {})()
    for name, value in {**(numbers or {}), **parts}.items():
        setattr(made, name, value)
    return made


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def _parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape))


OUTLINES: "Final[dict[Family, Callable[[ModelPreset], nn.Module]]]" = {
    "gpt2": _gpt2,
    "llama": _llama,
    "mixtral": _mixtral,
}
