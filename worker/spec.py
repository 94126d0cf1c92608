"""What to train: `RunSpec`, the frozen, hashable description of one run.

A spec is validated once, at the border, with every fault named; afterwards it is trusted. It imports no torch.

    RunSpec = Workload (equal between compared optimizers) + OptimizerSpec + seed + Resources
"""

import hashlib
import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from optim import catalog
from optim.catalog import Scalar
from worker import presets
from worker.data import catalog as data_catalog

Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)]
CountOrZero = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
Seed = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
Precision = Literal["fp32", "bf16"]
LearningRate = Annotated[float, Field(strict=True, gt=0, le=1e6, allow_inf_nan=False)]


class Spec(BaseModel):
    """The base of everything that a user may send: frozen, closed, finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    def content_hash(self) -> str:
        """SHA-256 of the canonical JSON: equal hashes mean equal specs."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).hexdigest()


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys and no spaces, as UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def one_of(kind: str, value: str, known: tuple[str, ...]) -> str:
    """Return `value` if it is known; else a fault that names what is allowed."""
    if value in known:
        return value
    raise PydanticCustomError(
        "unknown_name",
        "unknown {kind} '{value}'; known: {known}",
        {"kind": kind, "value": value, "known": ", ".join(known)},
    )


class DataSpec(Spec):
    """Which tokens, cut into which sequences."""

    dataset: str = "python-stdlib"
    tokenizer: str = "byte"
    sequence_length_tokens: Count = 128

    @field_validator("dataset")
    @classmethod
    def _known_dataset(cls, value: str) -> str:
        return one_of("dataset", value, data_catalog.dataset_names())

    @field_validator("tokenizer")
    @classmethod
    def _known_tokenizer(cls, value: str) -> str:
        return one_of("tokenizer", value, data_catalog.tokenizer_names())


class Budget(Spec):
    """How much is trained: the whole budget is always run, unless the loss stops being a number."""

    steps: Count
    batch_sequences: Annotated[int, Field(strict=True, ge=1, le=65_536)] = 8
    """Sequences in one optimizer step, over all devices and micro-batches."""


class Schedule(Spec):
    """Linear warm-up to the optimizer's learning rate, then a cosine down to a fraction of it."""

    warmup_steps: CountOrZero = 0
    final_lr_ratio: Annotated[float, Field(strict=True, ge=0, le=1)] = 0.1


class Evaluation(Spec):
    """Validation on the same held-out sequences for every run."""

    every_steps: Count = 100
    """Validation loss is also taken before the first step and after the last one."""
    sequences: Annotated[int, Field(strict=True, ge=1, le=65_536)] = 64


class Execution(Spec):
    """How a step is computed: what it costs, not what is trained; losses move by rounding only."""

    micro_batch_sequences: Annotated[int, Field(strict=True, ge=1, le=65_536)] | Literal["auto"] | None = None
    """Sequences in one forward and backward pass; gradients add up to the whole batch. null is the whole batch at once,
    auto the most that the memory holds, found by trial steps."""
    memory_cap_gib: Annotated[float, Field(strict=True, gt=0, le=1e6)] | None = None
    """Tensor memory that the run may use on its device, so that a large device can stand in for a small one."""
    activation_checkpointing: bool = False
    """Keep each layer's input only and compute the rest again in the backward pass."""
    compile: bool = False
    """`torch.compile` the model."""
    attention: Literal["sdpa", "eager"] = "sdpa"
    """sdpa is torch's fused scaled dot-product attention, eager the plain formula."""


class Workload(Spec):
    """All that is equal between compared optimizers: task, model, data, budget, schedule, evaluation."""

    task: Literal["pretrain"] = "pretrain"
    model: str
    data: DataSpec = DataSpec()
    budget: Budget
    schedule: Schedule = Schedule()
    evaluation: Evaluation = Evaluation()
    clip_grad_norm: Annotated[float, Field(strict=True, gt=0)] | None = 1.0
    """Global gradient-norm clipping threshold; null means none."""
    precision: Precision = "fp32"
    """bf16 is autocast: parameters stay in fp32."""
    execution: Execution = Execution()

    @field_validator("model")
    @classmethod
    def _known_model(cls, value: str) -> str:
        return one_of("model", value, presets.names())

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        raise_faults(type(self).__name__, list(self._misfits()))
        return self

    def _misfits(self) -> "list[Fault]":
        faults: list[Fault] = []
        model = presets.preset(self.model)
        length = self.data.sequence_length_tokens
        if length > model.max_positions:
            allowed = f"must be at most {model.max_positions}, the positions of {self.model}"
            faults.append((("data", "sequence_length_tokens"), length, allowed))
        vocabulary = data_catalog.tokenizer(self.data.tokenizer).vocabulary_size
        if vocabulary > model.vocabulary_size:
            allowed = f"has {vocabulary} tokens, more than the {model.vocabulary_size} of {self.model}"
            faults.append((("data", "tokenizer"), self.data.tokenizer, allowed))
        if self.schedule.warmup_steps >= self.budget.steps:
            allowed = f"must be below budget.steps = {self.budget.steps}"
            faults.append((("schedule", "warmup_steps"), self.schedule.warmup_steps, allowed))
        micro_batch, batch = self.execution.micro_batch_sequences, self.budget.batch_sequences
        if isinstance(micro_batch, int) and micro_batch > batch:
            allowed = f"must be at most budget.batch_sequences = {batch}; null is the whole batch at once"
            faults.append((("execution", "micro_batch_sequences"), micro_batch, allowed))
        return faults

    def tokens(self) -> int:
        """Training tokens of the whole budget."""
        return self.budget.steps * self.budget.batch_sequences * self.data.sequence_length_tokens


class OptimizerSpec(Spec):
    """One optimizer at one learning rate, with the options that differ from the catalog's defaults."""

    name: str
    lr: LearningRate
    options: dict[str, Scalar] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _known_name(cls, value: str) -> str:
        return one_of("optimizer", value, catalog.names())

    @model_validator(mode="after")
    def _known_options(self) -> Self:
        raise_faults(type(self).__name__, option_faults(self.name, self.options))
        return self


class Resources(Spec):
    """What one run occupies while it trains."""

    cpus: Annotated[int, Field(strict=True, ge=1, le=1024)] = 1
    gpus: Annotated[int, Field(strict=True, ge=0, le=1024)] = 0


class RunSpec(Spec):
    """One training, to the bit: the same spec on the same device gives the same losses."""

    workload: Workload
    optimizer: OptimizerSpec
    seed: Seed
    """Seeds the initial weights and the data order; equal seeds pair the runs of a comparison."""
    resources: Resources = Resources()


Fault = tuple[tuple[str | int, ...], object, str]
"""Where in the spec, the value found there, and what is allowed."""


def option_faults(optimizer: str, options: dict[str, Scalar]) -> list[Fault]:
    """The faults of an optimizer's options, located under `options`."""
    found = catalog.entry(optimizer).faults(options)
    return [(("options", name), options[name], allowed) for name, allowed in found]


def raise_faults(title: str, faults: list[Fault]) -> None:
    """Raise one `ValidationError` holding every fault; pydantic prefixes the place of this spec in the whole."""
    if not faults:
        return
    details = [
        InitErrorDetails(
            type=PydanticCustomError("not_allowed", "{allowed}", {"allowed": allowed}), loc=where, input=value
        )
        for where, value, allowed in faults
    ]
    raise ValidationError.from_exception_data(title, details)
