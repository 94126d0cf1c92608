"""One small model of every architecture that the block plan knows, on `meta`: width 32, 64 tokens, four heads of 8."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.models.bert.configuration_bert import BertConfig
from transformers.models.bert.modeling_bert import BertForPreTraining
from transformers.models.gemma.configuration_gemma import GemmaConfig
from transformers.models.gemma.modeling_gemma import GemmaForCausalLM
from transformers.models.gpt2.configuration_gpt2 import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel
from transformers.models.gpt_oss.configuration_gpt_oss import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssForCausalLM
from transformers.models.mistral.configuration_mistral import MistralConfig
from transformers.models.mistral.modeling_mistral import MistralForCausalLM
from transformers.models.mixtral.configuration_mixtral import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralForCausalLM
from transformers.models.phi3.configuration_phi3 import Phi3Config
from transformers.models.phi3.modeling_phi3 import Phi3ForCausalLM
from transformers.models.qwen2.configuration_qwen2 import Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM
from transformers.models.qwen2_moe.configuration_qwen2_moe import Qwen2MoeConfig
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeForCausalLM
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM
from transformers.models.t5.configuration_t5 import T5Config
from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration

COMMON: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 80,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "tie_word_embeddings": False,
}
GROUPED: dict[str, Any] = {**COMMON, "num_key_value_heads": 2}


def gpt2_with_cross_attention() -> nn.Module:
    config = GPT2Config(
        vocab_size=64,
        n_positions=32,
        n_embd=32,
        n_layer=1,
        n_head=4,
        add_cross_attention=True,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def mistral() -> nn.Module:
    return MistralForCausalLM(MistralConfig(**GROUPED))


def qwen2() -> nn.Module:
    return Qwen2ForCausalLM(Qwen2Config(**GROUPED))


def qwen3() -> nn.Module:
    return Qwen3ForCausalLM(Qwen3Config(**GROUPED, head_dim=16))


def gemma() -> nn.Module:
    return GemmaForCausalLM(GemmaConfig(**{**GROUPED, "tie_word_embeddings": True}, head_dim=24))


def phi3() -> nn.Module:
    return Phi3ForCausalLM(Phi3Config(**GROUPED))


def mixtral() -> nn.Module:
    return MixtralForCausalLM(MixtralConfig(**GROUPED, num_local_experts=2))


def qwen2_moe() -> nn.Module:
    config = Qwen2MoeConfig(
        **GROUPED,
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=24,
        shared_expert_intermediate_size=40,
        decoder_sparse_step=1,
    )
    return Qwen2MoeForCausalLM(config)


def gpt_oss() -> nn.Module:
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    return GptOssForCausalLM(GptOssConfig(**GROUPED, num_local_experts=2, head_dim=8, rope_parameters=rope))


def bert() -> nn.Module:
    config = {name: value for name, value in COMMON.items() if name != "tie_word_embeddings"}
    return BertForPreTraining(BertConfig(**config))


def t5() -> nn.Module:
    config = T5Config(
        vocab_size=64, d_model=32, d_kv=16, d_ff=80, num_layers=1, num_heads=4, feed_forward_proj="gated-gelu"
    )
    return T5ForConditionalGeneration(config)


class TorchEncoder(nn.Module):
    """torch's own layers behind an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 32)
        self.positions = nn.Embedding(16, 32)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(32, 4, 80)])
        self.cross = nn.MultiheadAttention(32, 4, kdim=24, vdim=20, add_bias_kv=True)
        self.head = nn.Linear(32, 64, bias=False)


class Lora(nn.Module):
    """A frozen linear map with a trained update of rank 4, as adapters wrap it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, 4, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(4, base.out_features, bias=False)})


def mistral_with_lora() -> nn.Module:
    """Everything frozen but adapters of query and value, and the norms."""
    model = mistral()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("norm" in name)
    attention = model.get_submodule("model.layers.0.self_attn")
    for name in ("q_proj", "v_proj"):
        base = attention.get_submodule(name)
        assert isinstance(base, nn.Linear)
        setattr(attention, name, Lora(base))
    return model


ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {
    "gpt2 with cross-attention": gpt2_with_cross_attention,
    "mistral": mistral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "gemma": gemma,
    "phi3": phi3,
    "mixtral": mixtral,
    "qwen2-moe": qwen2_moe,
    "gpt-oss": gpt_oss,
    "bert": bert,
    "t5": t5,
    "torch encoder": TorchEncoder,
    "mistral with lora": mistral_with_lora,
}


def outline(name: str) -> nn.Module:
    """That architecture on `meta`."""
    with torch.device("meta"):
        return ARCHITECTURES[name]()
