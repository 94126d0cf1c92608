"""From a preset's name to a Hugging Face model with seeded random weights, or with pretrained ones.

Random weights are a function of (preset, vocabulary, seed) alone: they are drawn by torch's CPU generator, wherever the
model goes afterwards, and the global random state is left as it was found.
"""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import torch
from safetensors import SafetensorError
from torch import nn

from worker.catalog.presets import ModelPreset, preset
from worker.data.weights import InitialWeights, require_same_architecture
from worker.errors import WeightsError
from worker.families import family_classes
from worker.spec.run import Execution

if TYPE_CHECKING:
    from transformers.modeling_utils import PreTrainedModel


def is_pretrained(model: nn.Module) -> "TypeGuard[PreTrainedModel]":
    """Return whether it is a model of transformers, whether its weights are pretrained or not."""
    library: Any = sys.modules.get("transformers.modeling_utils")  # where it was never loaded, there is none
    return library is not None and isinstance(model, library.PreTrainedModel)


def build_model(
    name: str, seed: int, *, vocabulary_size: int | None = None, weights: InitialWeights | None = None
) -> "PreTrainedModel":
    """Return the model of that preset on the CPU in fp32, in training mode.

    Args:
        name: A preset; `KeyError` for an unknown one.
        seed: Of the random weights.
        vocabulary_size: Of the data's tokenizer; `WeightsError` if the model has fewer tokens.
        weights: Start from these instead; `WeightsError` if they are not those of this model.
    """
    chosen = preset_for(name, vocabulary_size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make_model(chosen)
    if weights is not None:
        model = _load_pretrained(model, weights)
    model.train()
    return model


def preset_for(name: str, vocabulary_size: int | None) -> ModelPreset:
    """Return the preset with a vocabulary for the tokenizer: its own, or the tokenizer's where the preset follows
    it."""
    chosen = preset(name)
    if vocabulary_size is None:
        return chosen
    if chosen.vocabulary_of_tokenizer:
        return replace(chosen, vocabulary_size=vocabulary_size)
    if vocabulary_size > chosen.vocabulary_size:
        raise WeightsError(
            f"the tokenizer has {vocabulary_size} tokens, more than the {chosen.vocabulary_size} of {name}. "
            "Choose a model or a tokenizer that fits."
        )
    return chosen


def _load_pretrained(model: "PreTrainedModel", weights: InitialWeights) -> "PreTrainedModel":
    """Return `model` with `weights`: every tensor of it must be there in its shape."""
    require_same_architecture(weights, model.config.to_dict())
    try:
        loading: Any = type(model).from_pretrained  # its annotation leaves out `output_loading_info`
        loaded, report = loading(
            weights.folder,
            config=model.config,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            ignore_mismatched_sizes=True,  # they are reported below, all at once
            output_loading_info=True,
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise WeightsError(
            f"cannot read the weights {weights.name!r} in {weights.folder}: {error}. Save them again."
        ) from error
    faults = [f"{name} is {tuple(shape)}, not {tuple(wanted)}" for name, shape, wanted in report["mismatched_keys"]]
    faults += [f"{name} is missing" for name in sorted(report["missing_keys"])]
    if faults:
        shown = "; ".join(faults[:4]) + (f"; and {len(faults) - 4} more" if len(faults) > 4 else "")
        raise WeightsError(
            f"the weights {weights.name!r} do not fit the model: {shown}. Choose their own model and tokenizer."
        )
    assert is_pretrained(loaded)
    return loaded


def outline_model(name: str, device: str = "meta", *, layers: int | None = None) -> "PreTrainedModel":
    """Return the model of that preset on `meta`: every shape and no memory; `KeyError` for an unknown name.

    Args:
        name: A preset.
        device: On another one its weights are drawn, which takes memory but in torch's `FakeTensorMode`.
        layers: Instead of the preset's.
    """
    chosen = preset(name)
    chosen = chosen if layers is None else replace(chosen, layers=layers)
    with torch.device(device):
        return make_model(chosen)


def parameter_counts(model: torch.nn.Module) -> tuple[int, int]:
    """Return (parameters, their bytes); tied weights are counted once."""
    parameters = list(model.parameters())
    return sum(p.numel() for p in parameters), sum(p.numel() * p.element_size() for p in parameters)


GPT2_SIZES: Final = ("n_positions", "n_embd", "n_layer", "n_head")
LLAMA_SIZES: Final = ("max_position_embeddings", "hidden_size", "num_hidden_layers", "num_attention_heads")
"""The names of positions, width, layers and heads in the configurations of GPT-2, and of Llama and its kin."""


def make_model(chosen: ModelPreset) -> "PreTrainedModel":
    """Return the model of a preset, its weights drawn by torch's global generator."""
    config_class, model_class = family_classes(chosen.family)
    sizes = (chosen.max_positions, chosen.hidden_size, chosen.layers, chosen.heads)
    config_fields: dict[str, Any] = dict(
        zip(GPT2_SIZES if chosen.family == "gpt2" else LLAMA_SIZES, sizes, strict=True)
    )
    if chosen.family == "gpt2":
        # GPT-2's own tanh approximation as one kernel; the configuration's default, "gelu_new", computes it in eight.
        config_fields |= {
            "activation_function": "gelu_pytorch_tanh",
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        }
    # No key-value cache, and no special tokens, whose default ids exceed 256.
    tokens = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    fields = {**config_fields, "attn_implementation": "sdpa", "use_cache": False, **tokens, **chosen.extra}
    model: PreTrainedModel = model_class(config_class(vocab_size=chosen.vocabulary_size, **fields))
    return model


def prepare(model: "PreTrainedModel", execution: Execution) -> None:
    """Make the model compute as the execution says, which changes nothing of what; once, with it on its device.

    * attention: transformers' own switch; every preset has both ways.
    * activation checkpointing: a layer's input is kept, the rest computed again in the backward pass.
    * compile: `torch.compile` of the forward pass and, with it, of the backward pass. It compiles anew for each shape.
    """
    model.set_attn_implementation(execution.attention)
    if execution.activation_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    if execution.compile:
        model.compile()


def reset_compiler() -> None:
    """Let `torch.compile` begin anew; nothing if it was never used, since its import alone takes seconds."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


def is_compiler_fault(error: BaseException) -> bool:
    """Return whether `torch.compile` could not compile the model here."""
    return "torch._dynamo" in sys.modules and isinstance(error, torch._dynamo.exc.TorchDynamoException)
