"""A small model of each architecture that a rule of the planner or a row of its table is there for: of `transformers`
by its configuration, and of other libraries as modules with their names (`libraries.py`). Width 32, 100 tokens, four
heads of 8."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers.models.auto.configuration_auto import AutoConfig
from transformers.models.auto.modeling_auto import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForCTC,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForSeq2SeqLM,
)

from tests.plans import libraries

SIZES: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 80,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 34,
}
TOKENS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@dataclass(frozen=True)
class Shrunk:
    """A model of `transformers`: its type, what is built of it, and what is set beside `SIZES`."""

    model_type: str
    head: Any = AutoModelForCausalLM
    more: dict[str, Any] = field(default_factory=dict)

    def __call__(self) -> nn.Module:
        """The model, on torch's default device."""
        defaults = AutoConfig.for_model(self.model_type)
        settings = defaults.to_dict()
        names = {name: defaults.attribute_map.get(name, name) for name in SIZES}
        sizes = {attribute: SIZES[name] for name, attribute in names.items() if attribute in settings}
        model: nn.Module = self.head.from_config(type(defaults)(**{**sizes, **TOKENS, **self.more}))
        return model


def masked(model_type: str, **more: Any) -> Shrunk:
    """A model for masked words."""
    return Shrunk(model_type, AutoModelForMaskedLM, more)


def causal(model_type: str, **more: Any) -> Shrunk:
    """A model for the next word."""
    return Shrunk(model_type, AutoModelForCausalLM, more)


def image(model_type: str, **more: Any) -> Shrunk:
    """A model for images of 2 × 2 patches."""
    return Shrunk(model_type, AutoModelForImageClassification, {"image_size": 16, "patch_size": 8, **more})


def pair(model_type: str) -> Shrunk:
    """A text and an image model beside each other."""
    sizes = {"hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 1, "num_attention_heads": 4}
    text = {**sizes, "vocab_size": 100, "max_position_embeddings": 16, **TOKENS}
    vision = {**sizes, "image_size": 16, "patch_size": 8}
    return Shrunk(model_type, AutoModel, {"projection_dim": 16, "text_config": text, "vision_config": vision})


_LAYERS = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 80, "decoder_ffn_dim": 80}
_ENCODER_DECODER = {"d_model": 32, "encoder_attention_heads": 4, "decoder_attention_heads": 4, **_LAYERS}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 80, "num_layers": 1, "num_heads": 4}
_LATENT = {
    "q_lora_rank": 12,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "head_dim": 4,
    "num_key_value_heads": 4,
}
_ROUTED = {"n_routed_experts": 2, "n_shared_experts": 1, "num_experts_per_tok": 1, "moe_intermediate_size": 24}
_EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 24}
_SHARED_EXPERT = {**_EXPERTS, "shared_expert_intermediate_size": 40}
_DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
_HYBRID = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
_DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 16}

ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {
    # Query, key and value fused.
    "gpt2": causal("gpt2"),
    "openai-gpt": causal("openai-gpt"),
    "mpt": causal("mpt"),
    "phi3": causal("phi3"),
    "modernbert": masked("modernbert", cls_token_id=1, sep_token_id=2),
    "gpt-neox": causal("gpt_neox"),
    "gpt-neox-japanese": causal("gpt_neox_japanese", intermediate_multiple_size=2),
    "bloom": causal("bloom", n_layer=1, n_head=4),
    "falcon-7b": causal("falcon", multi_query=True, new_decoder_architecture=False),
    "falcon-rw": causal("falcon", multi_query=False, new_decoder_architecture=False, alibi=True, parallel_attn=False),
    "falcon-40b": causal("falcon", new_decoder_architecture=True, num_kv_heads=2),
    "persimmon": causal("persimmon"),
    "codegen": causal("codegen", n_ctx=34, rotary_dim=4),
    "bigcode-multi-query": causal("gpt_bigcode", multi_query=True),
    "bigcode-multi-head": causal("gpt_bigcode", multi_query=False),
    "deberta": masked("deberta", **_DEBERTA),
    "minimax": causal("minimax", **_HYBRID, num_local_experts=2),
    "qwen3-next": causal("qwen3_next", **_HYBRID, **_SHARED_EXPERT, **_DELTA),
    "qwen3.5": causal("qwen3_5_text", **_HYBRID, **_DELTA),
    # Query, key and value apart.
    "opt-350m": causal("opt", word_embed_proj_dim=16, ffn_dim=80),
    "llama": causal("llama"),
    "gemma3": causal("gemma3_text"),
    "phi": causal("phi", num_key_value_heads=4),
    "gpt2-cross-attention": causal("gpt2", add_cross_attention=True),
    # Mixtures of experts.
    "mixtral": causal("mixtral", num_local_experts=2),
    "qwen2-moe": causal("qwen2_moe", **_SHARED_EXPERT, decoder_sparse_step=1),
    "jetmoe": causal("jetmoe", kv_channels=8, num_local_experts=2, num_experts_per_tok=2),
    "dbrx": causal(
        "dbrx",
        d_model=32,
        n_heads=4,
        n_layers=1,
        max_seq_len=64,
        attn_config={"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        ffn_config={"ffn_hidden_size": 40, "moe_num_experts": 3, "moe_top_k": 2},
    ),
    "gpt-oss": causal("gpt_oss", num_local_experts=2, num_experts_per_tok=1, rope_parameters={"rope_theta": 1e4}),
    # Latent attention.
    "deepseek-v3": causal("deepseek_v3", **_LATENT, **_ROUTED, first_k_dense_replace=0, n_group=1, topk_group=1),
    # State spaces, linear recurrences, short convolutions.
    "mamba": causal("mamba", state_size=4, time_step_rank=4),
    "zamba2": causal(
        "zamba2",
        num_hidden_layers=2,
        layers_block_type=["mamba", "hybrid"],
        mamba_d_state=4,
        n_mamba_heads=8,
        mamba_headdim=8,
        num_key_value_heads=4,
    ),
    "nemotron-h": causal(
        "nemotron_h",
        num_hidden_layers=3,
        layers_block_type=["mamba", "attention", "moe"],
        mamba_num_heads=8,
        mamba_head_dim=8,
        ssm_state_size=4,
        n_groups=1,
        n_routed_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=24,
        moe_shared_expert_intermediate_size=24,
    ),
    "kimi-linear": causal("kimi_linear", linear_head_dim=8, linear_num_heads=4),
    "lfm2": causal("lfm2", num_hidden_layers=2, layer_types=["conv", "full_attention"]),
    "recurrent-gemma": causal("recurrent_gemma", num_hidden_layers=3, lru_width=32),
    "rwkv": causal("rwkv", attention_hidden_size=32),
    "xlstm": causal("xlstm", num_heads=4),
    # Encoders of text.
    "bert": masked("bert"),
    "bert-pretraining": Shrunk("bert", AutoModelForPreTraining),
    "mobilebert": masked("mobilebert", true_hidden_size=16, intra_bottleneck_size=16, embedding_size=16),
    "xlnet": causal("xlnet", d_model=32, n_layer=1, n_head=4, d_inner=80),
    # Encoders and decoders.
    "t5": Shrunk("t5", AutoModelForSeq2SeqLM, _T5),
    "bart": Shrunk("bart", AutoModelForSeq2SeqLM, _ENCODER_DECODER),
    # Images and sound.
    "vit": image("vit"),
    "clip": pair("clip"),
    "wav2vec2": Shrunk(
        "wav2vec2",
        AutoModelForCTC,
        {
            "conv_dim": [8, 8],
            "conv_kernel": [3, 3],
            "conv_stride": [2, 2],
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
        },
    ),
    # Other libraries.
    **libraries.MODELS,
}


def outline(name: str) -> nn.Module:
    """Return that architecture on `meta`."""
    with torch.device("meta"):
        return ARCHITECTURES[name]()
