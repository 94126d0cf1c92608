"""What training a model keeps under each optimizer, as records (torch-free): `worker/footprint/count.py` counts it."""

from pydantic import Field

from optim.catalog import Scalar
from worker.records.result import Record

BASELINE = "adamw"
"""What savings are against, as in the paper."""


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
    momentum_bytes: int | None = None
    """First moments; None where the optimizer keeps to no block plan."""
    published_bytes: int | None = None
    """The paper's figure, where it speaks of this model and these options."""
    unknown_because: str | None = None
    """Why it cannot run on `meta`; None where it can."""


class Footprint(Record):
    """What training a model keeps."""

    model: str
    parameters: int
    parameter_bytes: int
    gradient_bytes: int
    optimizers: tuple[OptimizerFootprint, ...]
    baseline_bytes: int | None
    """State of AdamW, which savings are against."""
    notes: tuple[str, ...]
    """Where the paper's figures and ours differ, and why."""
