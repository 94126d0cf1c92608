"""How many parameters a preset has, counted from its dimensions alone (no torch): what tokens per parameter rest on.

GPT-2: learned positions, biases, a tied head. Llama: rotary positions, no biases, grouped key and value heads, a gated
MLP. Mixtral: a router and several such MLPs instead of one. Tied weights count once. A test holds every preset against
the model that `worker/models.py` makes of it.
"""

from collections.abc import Callable

from worker.presets import Family, ModelPreset


def parameter_count(preset: ModelPreset, vocabulary_size: int | None = None) -> int:
    """The parameters of a preset; `vocabulary_size` is the tokenizer's, which counts where the preset follows it."""
    follows = preset.vocabulary_of_tokenizer and vocabulary_size is not None
    vocabulary = vocabulary_size if follows and vocabulary_size else preset.vocabulary_size
    return COUNTERS[preset.family](preset, vocabulary)


def _gpt2(preset: ModelPreset, vocabulary: int) -> int:
    width = preset.hidden_size
    norm, attention = 2 * width, 4 * width * width + 4 * width
    mlp = 8 * width * width + 5 * width
    return (vocabulary + preset.max_positions) * width + preset.layers * (2 * norm + attention + mlp) + norm


def _llama(preset: ModelPreset, vocabulary: int) -> int:
    width, shape = preset.hidden_size, preset.extra
    grouped = int(shape.get("num_key_value_heads", preset.heads)) * (width // preset.heads)
    attention = 2 * width * width + 2 * width * grouped
    heads = 1 if shape.get("tie_word_embeddings") else 2
    return heads * vocabulary * width + preset.layers * (2 * width + attention + _gated_mlp(preset)) + width


def _mixtral(preset: ModelPreset, vocabulary: int) -> int:
    experts = int(preset.extra["num_local_experts"])
    more = (experts - 1) * _gated_mlp(preset) + experts * preset.hidden_size
    return _llama(preset, vocabulary) + preset.layers * more


def _gated_mlp(preset: ModelPreset) -> int:
    return 3 * preset.hidden_size * int(preset.extra["intermediate_size"])


COUNTERS: dict[Family, Callable[[ModelPreset, int], int]] = {"gpt2": _gpt2, "llama": _llama, "mixtral": _mixtral}
