"""Models by name: the architecture and sizes of every preset, as data (no torch, no transformers).

`worker/models.py` turns a preset into a Hugging Face configuration and a seeded model.
"""

from dataclasses import dataclass, field
from typing import Literal

Family = Literal["gpt2", "llama"]


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
    extra: dict[str, int | float | bool] = field(default_factory=dict)
    """Further fields of the Hugging Face configuration, by their own names."""


PRESETS: tuple[ModelPreset, ...] = (
    ModelPreset(
        name="gpt2-tiny",
        family="gpt2",
        layers=4,
        heads=4,
        hidden_size=128,
        max_positions=256,
        vocabulary_size=256,
        source="ours: about 1 M parameters, trains on a CPU in seconds",
    ),
    ModelPreset(
        name="llama-tiny",
        family="llama",
        layers=4,
        heads=4,
        hidden_size=128,
        max_positions=256,
        vocabulary_size=256,
        source="ours: about 1 M parameters, trains on a CPU in seconds",
        extra={"intermediate_size": 344, "num_key_value_heads": 4},
    ),
    ModelPreset(
        name="gpt2-124m",
        family="gpt2",
        layers=12,
        heads=12,
        hidden_size=768,
        max_positions=1024,
        vocabulary_size=50257,
        source="Radford et al. 2019, GPT-2 small",
    ),
)


def names() -> tuple[str, ...]:
    """The names of all presets, in catalog order."""
    return tuple(preset.name for preset in PRESETS)


def preset(name: str) -> ModelPreset:
    """The preset of that name; `KeyError` names the known ones."""
    for candidate in PRESETS:
        if candidate.name == name:
            return candidate
    raise KeyError(f"unknown model {name!r}; known: {', '.join(names())}")
