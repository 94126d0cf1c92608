"""What training a model keeps under each optimizer, as records (torch-free): `worker/footprint/count.py` counts it; and
what the AdaPM paper publishes about it (arXiv 2510.09103, table 2), to be held against.
"""

from dataclasses import dataclass

from pydantic import Field

from optim.catalog import Scalar
from worker.records.result import Record

BASELINE = "adamw"
"""What savings are against, as in the paper."""


class BlockSlice(Record):
    """The part of a fused parameter that a block is: so many rows of that axis."""

    axis: int
    start: int
    length: int

    def __str__(self) -> str:
        rows = f"{self.start}:{self.start + self.length}"
        return f"[{rows}]" if self.axis == 0 else f"[{':, ' * self.axis}{rows}]"


class PlannedBlock(Record):
    """What an optimizer keeps for one block: a parameter, or a slice of one that holds several weights."""

    block: str
    parameter: str
    index: int | None
    """Which matrix of a stack; null where the parameter is none."""
    slice: BlockSlice | None
    """Null where it is the whole parameter."""
    shape: tuple[int, ...]
    kind: str
    first_moment: str
    second_moment: str
    """What shares one value: `element`, `row`, `neuron` or `head`."""
    rank: int
    """Of the first moment's factors; 0 unless it is low rank."""
    state_dtype: str
    state_bytes: int


class OptimizerFootprint(Record):
    """What one optimizer keeps for a model."""

    optimizer: str
    title: str
    options: dict[str, Scalar]
    """Options other than the catalog's defaults."""
    state_bytes: int | None
    """Everything that it keeps, step counters included; None where it cannot be known without running it."""
    counter_bytes: int = 0
    state_by_block: dict[str, int] = Field(default_factory=dict)
    """Block kind → bytes."""
    blocks: tuple[PlannedBlock, ...] = ()
    """The block plan, where it is asked for and the optimizer has one; what is kept beside it are step counters."""
    momentum_bytes: int | None = None
    """First moments; None where the optimizer keeps to no block plan."""
    published_bytes: int | None = None
    """The paper's figure, where it speaks of this model and these options."""
    unknown_because: str | None = None
    """Why it cannot run on `meta`, or not on a sharded model; None where it can."""


class Footprint(Record):
    """What training a model keeps."""

    model: str
    ranks: int = 1
    """Processes among which FSDP2 divides it. Bytes are those of the first one, which holds the most: of so many rows
    each rank has as many as the others, rounded up, until there are none left."""
    parameters: int
    """Of the whole model."""
    parameter_bytes: int
    gradient_bytes: int
    optimizers: tuple[OptimizerFootprint, ...]
    baseline_bytes: int | None
    """State of AdamW, which savings are against."""
    notes: tuple[str, ...]
    """Where the paper's figures and ours differ, and why."""


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
