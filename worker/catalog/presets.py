"""Models by name: the architecture and sizes of every preset, as data (no torch, no transformers).

`worker/models.py` turns a preset into a Hugging Face configuration and a seeded model.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from optim.nearest import unknown

Family = Literal["gpt2", "llama", "mixtral"]


@dataclass(frozen=True, kw_only=True)
class ModelPreset:
    """A model of the catalog; the fields carry the names of a decoder-only Transformer's dimensions."""

    name: str
    family: Family
    layers: int
    heads: int
    hidden_size: int
    max_positions: int
    vocabulary_size: int
    source: str
    """The source of the sizes."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further fields of the Hugging Face configuration, by their own names."""
    vocabulary_of_tokenizer: bool = False
    """Whether the model has as many tokens as the data's tokenizer: sizes of ours have no vocabulary to keep."""


@dataclass(frozen=True, kw_only=True)
class PublishedWeights:
    """Pretrained weights that a run may start from: safetensors of one commit."""

    repository: str
    """The repository on the Hugging Face hub."""
    revision: str
    """The commit."""
    preset: str
    """The model that they are weights of."""


# GPT-2's own sizes (heads of 64, learned positions, tied head). OpenAI's names count 117M, 345M, 762M and 1542M; the
# weights that it published have the parameters that are said here.
_GPT2 = "Radford et al. 2019, Language Models are Unsupervised Multitask Learners, table 2"
_GALORE = "Zhao et al. 2024, GaLore (arXiv 2403.03507), its published configuration; untied head"


def _gpt2(name: str, layers: int, heads: int, hidden_size: int, source: str) -> ModelPreset:
    """Return a GPT-2 of 1,024 positions over GPT-2's own 50,257 tokens."""
    return ModelPreset(
        name=name,
        family="gpt2",
        layers=layers,
        heads=heads,
        hidden_size=hidden_size,
        max_positions=1024,
        vocabulary_size=50257,
        source=source,
    )


def _tiny(
    name: str, layers: int, heads: int, hidden_size: int, source: str, family: Family = "gpt2", **extra: Any
) -> ModelPreset:
    """Return a size of ours that trains on a CPU: 256 positions, and as many tokens as the data's tokenizer."""
    return ModelPreset(
        name=name,
        family=family,
        layers=layers,
        heads=heads,
        hidden_size=hidden_size,
        max_positions=256,
        vocabulary_size=256,
        vocabulary_of_tokenizer=True,
        source=f"ours: about {source}",
        extra=extra,
    )


def _llama(
    name: str, layers: int, heads: int, hidden_size: int, intermediate_size: int, *, tied: bool = False, source: str
) -> ModelPreset:
    """Return a Llama of 1,024 positions over 32,000 tokens, with as many key-value heads as heads."""
    return ModelPreset(
        name=name,
        family="llama",
        layers=layers,
        heads=heads,
        hidden_size=hidden_size,
        max_positions=1024,
        vocabulary_size=32000,
        source=source,
        extra={"intermediate_size": intermediate_size, "rms_norm_eps": 1e-6, "tie_word_embeddings": tied},
    )


_IN_SECONDS = "parameters, trains on a CPU in seconds"
_OF_A_LAW = "parameters, a size of a scaling law that trains on a CPU"  # each some three times the one before
PRESETS: tuple[ModelPreset, ...] = (
    _tiny("gpt2-tiny", 4, 4, 128, f"1 M {_IN_SECONDS}"),
    _tiny("gpt2-nano", 2, 2, 48, f"0.08 M {_OF_A_LAW}"),
    _tiny("gpt2-micro", 3, 4, 80, f"0.27 M {_OF_A_LAW}"),
    _tiny("gpt2-mini", 6, 6, 192, f"2.8 M {_OF_A_LAW}"),
    _tiny("llama-nano", 2, 2, 48, f"0.08 M {_IN_SECONDS}", "llama", intermediate_size=128, num_key_value_heads=2),
    _tiny("llama-tiny", 4, 4, 128, f"1 M {_IN_SECONDS}", "llama", intermediate_size=344, num_key_value_heads=4),
    _gpt2(
        "gpt2-40m",
        *(12, 6, 384),
        "ours: GPT-2 small at half its width; the AdaPM paper trains a 40M and does not give its sizes",
    ),
    _gpt2("gpt2-124m", 12, 12, 768, f"{_GPT2}: small"),
    _gpt2("gpt2-355m", 24, 16, 1024, f"{_GPT2}: medium; the AdaPM paper's 330M and 350M"),
    _gpt2("gpt2-774m", 36, 20, 1280, f"{_GPT2}: large"),
    _gpt2("gpt2-1.5b", 48, 25, 1600, f"{_GPT2}: XL"),
    _llama("llama-60m", 8, 8, 512, 1376, source=_GALORE),
    _llama("llama-130m", 12, 12, 768, 2048, source=_GALORE),
    _llama(
        "llama-340m",
        *(24, 16, 1024, 2816),
        tied=True,
        source=(
            "ours: Llama's own rule for the MLP (8/3 of the width, up to a multiple of 256) and a tied head; the AdaPM "
            "paper's Llama has 340M parameters by its table 2 and it does not give their sizes"
        ),
    ),
    _llama("llama-350m", 24, 16, 1024, 2736, source=_GALORE),
    _llama("llama-1b", 24, 32, 2048, 5461, source=_GALORE),
    ModelPreset(
        name="llama3-8b",
        family="llama",
        layers=32,
        heads=32,
        hidden_size=4096,
        max_positions=8192,
        vocabulary_size=128256,
        source="Grattafiori et al. 2024, The Llama 3 Herd of Models (arXiv 2407.21783), table 3",
        extra={
            "intermediate_size": 14336,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
            "tie_word_embeddings": False,
        },
    ),
    # Mixtral's architecture: grouped key and value heads, a router and gated experts a layer, an untied head.
    _tiny(
        "mixtral-tiny",
        *(3, 4, 128),
        "0.8 M parameters in four experts a layer, trains on a CPU in seconds",
        "mixtral",
        num_experts_per_tok=2,
        intermediate_size=128,
        num_key_value_heads=2,
        num_local_experts=4,
    ),
    ModelPreset(
        name="mixtral-300m",
        family="mixtral",
        layers=12,
        heads=12,
        hidden_size=768,
        max_positions=1024,
        vocabulary_size=50257,
        source="ours: GPT-2 small's sizes in Mixtral's architecture (Jiang et al. 2024, arXiv 2401.04088)",
        extra={
            "num_experts_per_tok": 2,
            "intermediate_size": 1024,
            "num_key_value_heads": 4,
            "num_local_experts": 8,
        },
    ),
)
"""The presets, in the order of families and sizes."""

PUBLISHED_WEIGHTS: dict[str, PublishedWeights] = {
    repository: PublishedWeights(repository=repository, revision=revision, preset=preset_name)
    for repository, revision, preset_name in (
        ("openai-community/gpt2", "607a30d783dfa663caf39e06633721c8d4cfcd7e", "gpt2-124m"),
        ("openai-community/gpt2-medium", "6dcaa7a952f72f9298047fd5137cd6e4f05f41da", "gpt2-355m"),
        ("openai-community/gpt2-large", "32b71b12589c2f8d625668d2335a01cac3249519", "gpt2-774m"),
        ("openai-community/gpt2-xl", "15ea56dee5df4983c59b2538573817e1667135e2", "gpt2-1.5b"),
        ("meta-llama/Meta-Llama-3-8B", "8cde5ca8380496c9a6cc7ef3a8b46a0372a1d920", "llama3-8b"),
    )
}
"""The allowlist, by repository."""


def names() -> tuple[str, ...]:
    """Return the names of all presets, in catalog order."""
    return tuple(preset.name for preset in PRESETS)


def preset(name: str) -> ModelPreset:
    """Return the preset of that name; `KeyError` names the known ones."""
    for candidate in PRESETS:
        if candidate.name == name:
            return candidate
    raise KeyError(unknown("model", name, names()))


def parameter_count(preset: ModelPreset, vocabulary_size: int | None = None) -> int:
    """Return the parameters of a preset, tied ones once, from its dimensions alone.

    `vocabulary_size` is the tokenizer's, which counts where the preset follows it. A test holds every preset against
    the model that `worker/models.py` makes of it.
    """
    follows = preset.vocabulary_of_tokenizer and vocabulary_size is not None
    vocabulary = vocabulary_size if follows and vocabulary_size else preset.vocabulary_size
    return COUNTERS[preset.family](preset, vocabulary)


def _gpt2_parameters(preset: ModelPreset, vocabulary: int) -> int:
    """Count with learned positions, biases and a tied head."""
    width = preset.hidden_size
    norm, attention = 2 * width, 4 * width * width + 4 * width
    mlp = 8 * width * width + 5 * width
    return (vocabulary + preset.max_positions) * width + preset.layers * (2 * norm + attention + mlp) + norm


def _llama_parameters(preset: ModelPreset, vocabulary: int) -> int:
    """Count with rotary positions, no biases, grouped key and value heads and a gated MLP."""
    width, shape = preset.hidden_size, preset.extra
    grouped = int(shape.get("num_key_value_heads", preset.heads)) * (width // preset.heads)
    attention = 2 * width * width + 2 * width * grouped
    heads = 1 if shape.get("tie_word_embeddings") else 2
    return heads * vocabulary * width + preset.layers * (2 * width + attention + _gated_mlp(preset)) + width


def _mixtral_parameters(preset: ModelPreset, vocabulary: int) -> int:
    """Count Llama's parameters with a router and several MLPs instead of one."""
    experts = int(preset.extra["num_local_experts"])
    extra_parameters = (experts - 1) * _gated_mlp(preset) + experts * preset.hidden_size
    return _llama_parameters(preset, vocabulary) + preset.layers * extra_parameters


def _gated_mlp(preset: ModelPreset) -> int:
    return 3 * preset.hidden_size * int(preset.extra["intermediate_size"])


COUNTERS: dict[Family, Callable[[ModelPreset, int], int]] = {
    "gpt2": _gpt2_parameters,
    "llama": _llama_parameters,
    "mixtral": _mixtral_parameters,
}
