"""From a preset's name to a Hugging Face model with seeded random weights. Nothing is downloaded.

The weights are a function of (preset, seed) alone: they are drawn by torch's CPU generator, wherever the model
goes afterwards, and the global random state is left as it was found.
"""

from collections.abc import Callable
from typing import Any, Final

import torch
from transformers.modeling_utils import PreTrainedModel

from worker.presets import Family, ModelPreset, preset


def build_model(name: str, seed: int) -> PreTrainedModel:
    """The model of that preset on the CPU in fp32, in training mode; `KeyError` for an unknown name."""
    chosen = preset(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BUILDERS[chosen.family](chosen)
    model.train()
    return model


def outline_model(name: str) -> PreTrainedModel:
    """The model of that preset on `meta`: every shape and no memory; `KeyError` for an unknown name."""
    chosen = preset(name)
    with torch.device("meta"):
        return BUILDERS[chosen.family](chosen)


def parameter_counts(model: torch.nn.Module) -> tuple[int, int]:
    """(parameters, their bytes); tied weights are counted once."""
    parameters = list(model.parameters())
    return sum(p.numel() for p in parameters), sum(p.numel() * p.element_size() for p in parameters)


# Each family imports its own module only: transformers costs about one second per modelling file otherwise.


def _gpt2(chosen: ModelPreset) -> PreTrainedModel:
    from transformers.models.gpt2.configuration_gpt2 import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=chosen.vocabulary_size,
        n_positions=chosen.max_positions,
        n_embd=chosen.hidden_size,
        n_layer=chosen.layers,
        n_head=chosen.heads,
        # GPT-2's own tanh approximation as one kernel; the configuration's default, "gelu_new", computes it in eight.
        activation_function="gelu_pytorch_tanh",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        **_common(chosen),
    )
    return GPT2LMHeadModel(config)


def _llama(chosen: ModelPreset) -> PreTrainedModel:
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=chosen.vocabulary_size,
        max_position_embeddings=chosen.max_positions,
        hidden_size=chosen.hidden_size,
        num_hidden_layers=chosen.layers,
        num_attention_heads=chosen.heads,
        **_common(chosen),
    )
    return LlamaForCausalLM(config)


def _common(chosen: ModelPreset) -> dict[str, Any]:
    """Fields of every family: no key-value cache, and no special tokens (their default ids exceed 256)."""
    return {
        "attn_implementation": "sdpa",
        "use_cache": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        **chosen.extra,
    }


BUILDERS: Final[dict[Family, Callable[[ModelPreset], PreTrainedModel]]] = {"gpt2": _gpt2, "llama": _llama}
