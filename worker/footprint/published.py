"""What the AdaPM paper publishes about memory (arXiv 2510.09103, table 2), as data, to be held against (no torch)."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PublishedState:
    """One figure of the table."""

    models: tuple[str, ...]
    """The presets that it can be held against."""
    optimizer: str
    """The catalog's name of it."""
    gigabytes: float
    """Optimizer state in float32, in units of 1e9 bytes, to two digits behind the point."""


# The paper's Llama-350M has 340 M parameters by its AdamW figure, and no sizes are given: both presets are near it.
_LLAMA = ("llama-340m", "llama-350m")
_GPT2 = ("gpt2-1.5b",)

PAPER_STATES: tuple[PublishedState, ...] = (
    PublishedState(models=_LLAMA, optimizer="adamw", gigabytes=2.72),
    PublishedState(models=_LLAMA, optimizer="adam-mini", gigabytes=1.36),
    PublishedState(models=_LLAMA, optimizer="adapm", gigabytes=1.48),
    PublishedState(models=_LLAMA, optimizer="adapm-mini", gigabytes=0.12),
    PublishedState(models=_GPT2, optimizer="adamw", gigabytes=12.48),
    PublishedState(models=_GPT2, optimizer="adam-mini", gigabytes=6.24),
    PublishedState(models=_GPT2, optimizer="adapm", gigabytes=6.98),
    PublishedState(models=_GPT2, optimizer="adapm-mini", gigabytes=0.74),
)


def published_gigabytes(model: str, optimizer: str) -> float | None:
    """The paper's figure for that preset and optimizer; None where it is silent."""
    for figure in PAPER_STATES:
        if model in figure.models and optimizer == figure.optimizer:
            return figure.gigabytes
    return None
