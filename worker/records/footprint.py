"""The memory of training a model under each optimizer, as records (torch-free), which `worker/footprint/count.py`
counts."""

from pydantic import Field

from optim.catalog import Scalar
from worker.records.result import Record

BASELINE = "adamw"
"""The baseline of savings, as in the paper."""


class BlockSlice(Record):
    """The part of a fused parameter that a block is: so many rows of that axis."""

    axis: int
    start: int
    length: int

    def __str__(self) -> str:
        rows = f"{self.start}:{self.start + self.length}"
        return f"[{rows}]" if self.axis == 0 else f"[{':, ' * self.axis}{rows}]"


class PlannedBlock(Record):
    """The state of an optimizer for one block: a parameter, or a slice of one that holds several weights."""

    block: str
    parameter: str
    index: int | None
    """The index of the matrix in a stack; null if the parameter is none."""
    slice: BlockSlice | None
    """Null where it is the whole parameter."""
    shape: tuple[int, ...]
    kind: str
    first_moment: str
    second_moment: str
    """The weights that share one value: `element`, `row`, `neuron` or `head`."""
    rank: int
    """The rank of the first moment's factors; 0 unless it is low rank."""
    state_dtype: str
    state_bytes: int


class MemoryLine(Record):
    """The memory of one moment of a pass, for any number of sequences."""

    fixed_bytes: int
    bytes_per_sequence: int


class PassMemory(Record):
    """The memory of a micro-batch's forward and backward pass above weights and optimizer state: activations and
    gradients, those of the step's earlier micro-batches included."""

    checkpointing: bool
    """Whether activations are computed again in the backward pass (`execution.activation_checkpointing`)."""
    lines: tuple[MemoryLine, ...]
    """The highest of them at a number of sequences is the peak there."""

    def peak_bytes(self, sequences: int) -> int:
        """Return the highest moment of a micro-batch of so many sequences."""
        return max(line.fixed_bytes + line.bytes_per_sequence * sequences for line in self.lines)

    def most_sequences(self, available_bytes: int) -> int:
        """Return the largest micro-batch that takes no more; 0 where not even one sequence fits."""
        if self.peak_bytes(1) > available_bytes:
            return 0
        growing = [line for line in self.lines if line.bytes_per_sequence > 0]
        return min((available_bytes - line.fixed_bytes) // line.bytes_per_sequence for line in growing)


class OptimizerFootprint(Record):
    """The state of an optimizer for a model."""

    optimizer: str
    title: str
    options: dict[str, Scalar]
    """Options other than the catalog's defaults."""
    state_bytes: int | None
    """All bytes of state, step counters included; None if they cannot be known without running it."""
    counter_bytes: int = 0
    state_by_block: dict[str, int] = Field(default_factory=dict)
    """Block kind → bytes."""
    blocks: tuple[PlannedBlock, ...] = ()
    """The block plan, where it is asked for and the optimizer has one; what is kept beside it are step counters."""
    transient_bytes: int | None = None
    """The bytes that a step takes for a while above weights, gradients and state; None if they were not counted."""
    unknown_because: str | None = None
    """The reason why it cannot run on `meta`, or not on a sharded model; None if it can."""


class CardFit(Record):
    """The training of one optimizer within the memory of a card."""

    optimizer: str
    title: str
    checkpointing: bool
    peak_bytes: int
    """The highest moment of a step at the micro-batch that was asked for."""
    activation_bytes: int
    """The bytes of the passes above the gradients."""
    most_sequences: int
    """The largest micro-batch that fits; 0 where none does."""
    limit: str
    """The largest part of the memory where the next sequence does not fit: `activations`, `weights`, `gradients`,
    `state` or `step` (what the optimizer's step takes for a while)."""


class Footprint(Record):
    """The memory of training a model."""

    model: str
    ranks: int = 1
    """Processes among which FSDP2 divides it. Bytes are those of the first one, which holds the most: of so many rows
    each rank has as many as the others, rounded up, until there are none left."""
    parameters: int
    """The parameters of the whole model."""
    parameter_bytes: int
    gradient_bytes: int
    optimizers: tuple[OptimizerFootprint, ...]
    baseline_bytes: int | None
    """State of AdamW, which savings are against."""
    precision: str | None = None
    """The precision of the passes: `fp32`, or `bf16` for autocast; None if none were counted."""
    sequence_length_tokens: int | None = None
    passes: tuple[PassMemory, ...] = ()
    """The passes without and with activation checkpointing."""
    passes_unknown_because: str | None = None
    """The reason why requested passes could not be counted."""
    fits: tuple[CardFit, ...] = ()
    """The fits into `card_gib`, if a request names it; the most memory-efficient optimizer first."""

    def fit(self, card_gib: float, sequences: int = 1) -> "Footprint":
        """Return the same with `fits`: of every optimizer, without and with checkpointing, the peak of a micro-batch of
        so many sequences, and the largest micro-batch within `card_gib` of tensors."""
        fits = [
            self._fit(usage, counted, card_gib, sequences)
            for usage in self.optimizers
            if usage.state_bytes is not None and usage.transient_bytes is not None
            for counted in self.passes
        ]
        return self.model_copy(update={"fits": tuple(sorted(fits, key=lambda fit: fit.peak_bytes))})

    def _fit(self, usage: OptimizerFootprint, counted: PassMemory, card_gib: float, sequences: int) -> CardFit:
        available, state, step = int(card_gib * 2**30), usage.state_bytes or 0, usage.transient_bytes or 0
        kept_bytes = self.parameter_bytes + state
        step_fits = kept_bytes + self.gradient_bytes + step <= available
        most_sequences = counted.most_sequences(available - kept_bytes) if step_fits else 0
        parts = {
            "weights": self.parameter_bytes,
            "gradients": self.gradient_bytes,
            "state": state,
            "activations": counted.peak_bytes(most_sequences + 1) - self.gradient_bytes if step_fits else 0,
            "step": 0 if step_fits else step,
        }
        return CardFit(
            optimizer=usage.optimizer,
            title=usage.title,
            checkpointing=counted.checkpointing,
            peak_bytes=kept_bytes + max(counted.peak_bytes(sequences), self.gradient_bytes + step),
            activation_bytes=counted.peak_bytes(sequences) - self.gradient_bytes,
            most_sequences=most_sequences,
            limit=max(parts, key=lambda part: parts[part]),
        )
