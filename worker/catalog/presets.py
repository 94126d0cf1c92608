"""Models by name: the architecture and sizes of every preset, as data (no torch, no transformers).

`worker/models/build.py` turns a preset into a Hugging Face configuration and a seeded model.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from optim.nearest import unknown

Family = Literal["gpt2", "llama", "mixtral"]


@dataclass(frozen=True, kw_only=True)
class ModelPreset:
    """One model of the catalog; the fields carry the names of a decoder-only Transformer's dimensions."""

    name: str
    family: Family
    layers: int
    heads: int
    hidden_size: int
    max_positions: int
    vocabulary_size: int
    source: str
    """Where the sizes come from."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Further fields of the Hugging Face configuration, by their own names."""
    vocabulary_of_tokenizer: bool = False
    """Whether the model has as many tokens as the data's tokenizer: sizes of ours have no vocabulary to keep."""


@dataclass(frozen=True, kw_only=True)
class PublishedWeights:
    """Pretrained weights that a run may start from: safetensors of one commit."""

    repository: str
    """On the Hugging Face hub."""
    revision: str
    """The commit."""
    preset: str
    """The model that they are weights of."""


# GPT-2's own sizes (heads of 64, learned positions, tied head). OpenAI's names count 117M, 345M, 762M and 1542M; the
# weights that it published have the parameters that are said here.
_GPT2 = "Radford et al. 2019, Language Models are Unsupervised Multitask Learners, table 2"
_GALORE = "Zhao et al. 2024, GaLore (arXiv 2403.03507), its published configuration; untied head"
_GALORE_EXTRA: dict[str, Any] = {"rms_norm_eps": 1e-6, "tie_word_embeddings": False}


def _gpt2(name: str, *, layers: int, heads: int, hidden_size: int, source: str) -> ModelPreset:
    """A GPT-2 of 1,024 positions over GPT-2's own 50,257 tokens."""
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


def _tiny_gpt2(name: str, *, layers: int, heads: int, hidden_size: int, about: str) -> ModelPreset:
    """A step in size below or above gpt2-tiny, each some three times the one before: a scaling law for a CPU."""
    return ModelPreset(
        name=name,
        family="gpt2",
        layers=layers,
        heads=heads,
        hidden_size=hidden_size,
        max_positions=256,
        vocabulary_size=256,
        vocabulary_of_tokenizer=True,
        source=f"ours: about {about} parameters, a size of a scaling law that trains on a CPU",
    )


def _llama(name: str, *, layers: int, heads: int, hidden_size: int, intermediate_size: int) -> ModelPreset:
    """A Llama of GaLore's paper: 1,024 positions, 32,000 tokens, as many key-value heads as heads."""
    return ModelPreset(
        name=name,
        family="llama",
        layers=layers,
        heads=heads,
        hidden_size=hidden_size,
        max_positions=1024,
        vocabulary_size=32000,
        source=_GALORE,
        extra={"intermediate_size": intermediate_size, **_GALORE_EXTRA},
    )


def _mixtral(name: str, *, layers: int, heads: int, hidden_size: int, source: str, **more: Any) -> ModelPreset:
    """A mixture of experts in Mixtral's architecture: grouped key and value heads, a router and gated experts a layer,
    two experts for each token, an untied head."""
    return ModelPreset(
        name=name,
        family="mixtral",
        layers=layers,
        heads=heads,
        hidden_size=hidden_size,
        max_positions=more.pop("max_positions"),
        vocabulary_size=more.pop("vocabulary_size"),
        vocabulary_of_tokenizer=more.pop("vocabulary_of_tokenizer", False),
        source=source,
        extra={"num_experts_per_tok": 2, **more},
    )


PRESETS: tuple[ModelPreset, ...] = (
    ModelPreset(
        name="gpt2-tiny",
        family="gpt2",
        layers=4,
        heads=4,
        hidden_size=128,
        max_positions=256,
        vocabulary_size=256,
        vocabulary_of_tokenizer=True,
        source="ours: about 1 M parameters, trains on a CPU in seconds",
    ),
    _tiny_gpt2("gpt2-nano", layers=2, heads=2, hidden_size=48, about="0.08 M"),
    _tiny_gpt2("gpt2-micro", layers=3, heads=4, hidden_size=80, about="0.27 M"),
    _tiny_gpt2("gpt2-mini", layers=6, heads=6, hidden_size=192, about="2.8 M"),
    ModelPreset(
        name="llama-tiny",
        family="llama",
        layers=4,
        heads=4,
        hidden_size=128,
        max_positions=256,
        vocabulary_size=256,
        vocabulary_of_tokenizer=True,
        source="ours: about 1 M parameters, trains on a CPU in seconds",
        extra={"intermediate_size": 344, "num_key_value_heads": 4},
    ),
    _gpt2(
        "gpt2-40m",
        layers=12,
        heads=6,
        hidden_size=384,
        source="ours: GPT-2 small at half its width; the AdaPM paper trains a 40M and does not give its sizes",
    ),
    _gpt2("gpt2-124m", layers=12, heads=12, hidden_size=768, source=f"{_GPT2}: small"),
    _gpt2(
        "gpt2-355m",
        layers=24,
        heads=16,
        hidden_size=1024,
        source=f"{_GPT2}: medium; the AdaPM paper's 330M and 350M",
    ),
    _gpt2("gpt2-774m", layers=36, heads=20, hidden_size=1280, source=f"{_GPT2}: large"),
    _gpt2("gpt2-1.5b", layers=48, heads=25, hidden_size=1600, source=f"{_GPT2}: XL"),
    _llama("llama-60m", layers=8, heads=8, hidden_size=512, intermediate_size=1376),
    _llama("llama-130m", layers=12, heads=12, hidden_size=768, intermediate_size=2048),
    ModelPreset(
        name="llama-340m",
        family="llama",
        layers=24,
        heads=16,
        hidden_size=1024,
        max_positions=1024,
        vocabulary_size=32000,
        source=(
            "ours: Llama's own rule for the MLP (8/3 of the width, up to a multiple of 256) and a tied head; the AdaPM "
            "paper's Llama has 340M parameters by its table 2 and it does not give their sizes"
        ),
        extra={"intermediate_size": 2816, "rms_norm_eps": 1e-6, "tie_word_embeddings": True},
    ),
    _llama("llama-350m", layers=24, heads=16, hidden_size=1024, intermediate_size=2736),
    _llama("llama-1b", layers=24, heads=32, hidden_size=2048, intermediate_size=5461),
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
    _mixtral(
        "mixtral-tiny",
        layers=3,
        heads=4,
        hidden_size=128,
        max_positions=256,
        vocabulary_size=256,
        vocabulary_of_tokenizer=True,
        source="ours: about 0.8 M parameters in four experts a layer, trains on a CPU in seconds",
        intermediate_size=128,
        num_key_value_heads=2,
        num_local_experts=4,
    ),
    _mixtral(
        "mixtral-300m",
        layers=12,
        heads=12,
        hidden_size=768,
        max_positions=1024,
        vocabulary_size=50257,
        source="ours: GPT-2 small's sizes in Mixtral's architecture (Jiang et al. 2024, arXiv 2401.04088)",
        intermediate_size=1024,
        num_key_value_heads=4,
        num_local_experts=8,
    ),
)
"""In the order of families and sizes."""


PUBLISHED_WEIGHTS: dict[str, PublishedWeights] = {
    weights.repository: weights
    for weights in (
        PublishedWeights(
            repository="openai-community/gpt2",
            revision="607a30d783dfa663caf39e06633721c8d4cfcd7e",
            preset="gpt2-124m",
        ),
        PublishedWeights(
            repository="openai-community/gpt2-medium",
            revision="6dcaa7a952f72f9298047fd5137cd6e4f05f41da",
            preset="gpt2-355m",
        ),
        PublishedWeights(
            repository="openai-community/gpt2-large",
            revision="32b71b12589c2f8d625668d2335a01cac3249519",
            preset="gpt2-774m",
        ),
        PublishedWeights(
            repository="openai-community/gpt2-xl",
            revision="15ea56dee5df4983c59b2538573817e1667135e2",
            preset="gpt2-1.5b",
        ),
        PublishedWeights(
            repository="meta-llama/Meta-Llama-3-8B",
            revision="8cde5ca8380496c9a6cc7ef3a8b46a0372a1d920",
            preset="llama3-8b",
        ),
    )
}
"""The allowlist, by repository."""


def weights_names() -> tuple[str, ...]:
    """What `initial_weights` may be: all repositories, then the pattern of own ones."""
    return (*PUBLISHED_WEIGHTS, "own/<name>")


def names() -> tuple[str, ...]:
    """The names of all presets, in catalog order."""
    return tuple(preset.name for preset in PRESETS)


def preset(name: str) -> ModelPreset:
    """The preset of that name; `KeyError` names the known ones."""
    for candidate in PRESETS:
        if candidate.name == name:
            return candidate
    raise KeyError(unknown("model", name, names()))


def parameter_count(preset: ModelPreset, vocabulary_size: int | None = None) -> int:
    """The parameters of a preset, tied ones once, from its dimensions alone.

    `vocabulary_size` is the tokenizer's, which counts where the preset follows it. A test holds every preset against
    the model that `worker/models/build.py` makes of it.
    """
    follows = preset.vocabulary_of_tokenizer and vocabulary_size is not None
    vocabulary = vocabulary_size if follows and vocabulary_size else preset.vocabulary_size
    return COUNTERS[preset.family](preset, vocabulary)


def _gpt2_parameters(preset: ModelPreset, vocabulary: int) -> int:
    """Learned positions, biases, a tied head."""
    width = preset.hidden_size
    norm, attention = 2 * width, 4 * width * width + 4 * width
    mlp = 8 * width * width + 5 * width
    return (vocabulary + preset.max_positions) * width + preset.layers * (2 * norm + attention + mlp) + norm


def _llama_parameters(preset: ModelPreset, vocabulary: int) -> int:
    """Rotary positions, no biases, grouped key and value heads, a gated MLP."""
    width, shape = preset.hidden_size, preset.extra
    grouped = int(shape.get("num_key_value_heads", preset.heads)) * (width // preset.heads)
    attention = 2 * width * width + 2 * width * grouped
    heads = 1 if shape.get("tie_word_embeddings") else 2
    return heads * vocabulary * width + preset.layers * (2 * width + attention + _gated_mlp(preset)) + width


def _mixtral_parameters(preset: ModelPreset, vocabulary: int) -> int:
    """Llama's with a router and several MLPs instead of one."""
    experts = int(preset.extra["num_local_experts"])
    more = (experts - 1) * _gated_mlp(preset) + experts * preset.hidden_size
    return _llama_parameters(preset, vocabulary) + preset.layers * more


def _gated_mlp(preset: ModelPreset) -> int:
    return 3 * preset.hidden_size * int(preset.extra["intermediate_size"])


COUNTERS: dict[Family, Callable[[ModelPreset, int], int]] = {
    "gpt2": _gpt2_parameters,
    "llama": _llama_parameters,
    "mixtral": _mixtral_parameters,
}
