"""The parts of a workload that every task has: data, budget, schedule, evaluation, execution, probes (torch-free)."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from worker.catalog import datasets as data_catalog
from worker.schema import Count, CountOrZero, Flag, Spec, omit_default, raise_faults, require_known

Precision = Literal["fp32", "bf16"]
ScheduleShape = Literal["cosine", "linear", "wsd", "constant", "phases"]
FinalLrRatio = Annotated[float, Field(strict=True, ge=0, le=1)]
DecayShare = Annotated[float, Field(strict=True, gt=0, le=1)]
USUAL_DECAY_SHARE = 0.2
"""The share of the decay, as in Hägele et al., "Scaling laws and compute-optimal training beyond fixed training
durations" (2024)."""
EmaDecay = Annotated[float, Field(strict=True, gt=0, lt=1)]
PromptText = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00]+$")]
MOST_PROMPTS = 8
MOST_SAMPLED_EVALUATIONS = 1_000
"""The most evaluations with texts: with 8 prompts these are some megabytes of a run."""
ProbeName = Literal["gradient-sparsity", "momentum-spectrum", "residual"]


class DataSpec(Spec):
    """Tokens, cut into sequences."""

    dataset: str = "python-stdlib"
    """A name of the catalog, or `own/<name>` as given to `adapm-bench data prepare`."""
    tokenizer: str = "byte"
    """A name of the catalog, `bpe-<vocabulary>`, or `own/<name>`."""
    data_hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """SHA-256 of the tokens; others are refused. null: whatever is prepared. Every result has it."""
    sequence_length_tokens: Count = 128
    """Tokens of one sequence, at most the model's positions."""

    @field_validator("dataset")
    @classmethod
    def _check_dataset(cls, value: str) -> str:
        is_known = data_catalog.OWN_NAME.fullmatch(value) is not None
        return value if is_known else require_known("dataset", value, data_catalog.dataset_names())

    @field_validator("tokenizer")
    @classmethod
    def _check_tokenizer(cls, value: str) -> str:
        is_known = data_catalog.trained_size(value) is not None or data_catalog.OWN_NAME.fullmatch(value) is not None
        return value if is_known else require_known("tokenizer", value, data_catalog.tokenizer_names())


class Budget(Spec):
    """The training's length."""

    steps: Count
    """Optimizer steps."""
    batch_sequences: Annotated[int, Field(strict=True, ge=1, le=65_536)] = 8
    """Sequences in one optimizer step, over all devices and micro-batches."""


class Schedule(Spec):
    """Linear warm-up to the optimizer's learning rate, then a shape."""

    shape: ScheduleShape = "cosine"
    """`cosine`, `linear`: falls to `final_lr_ratio`; `wsd`: stays, then falls linearly over the last steps; `constant`:
    stays; `phases`: T / log2(T) steps each, at a quarter of the rate before (AdaPM's theorem 1)."""
    warmup_steps: CountOrZero = 0
    """Steps of the linear warm-up."""
    final_lr_ratio: FinalLrRatio = 0.1
    """Final rate of `cosine`, `linear` and `wsd` over the learning rate."""
    decay_share: DecayShare = omit_default(USUAL_DECAY_SHARE)
    """Share of all steps over which `wsd` decays."""

    def decays(self) -> bool:
        """Return whether it ends at `final_lr_ratio`."""
        return self.shape in ("cosine", "linear", "wsd")

    @model_validator(mode="after")
    def _require_use(self) -> Self:
        if self.shape != "wsd" and self.decay_share != USUAL_DECAY_SHARE:
            allowed = f"says when `wsd` decays, and shape is {self.shape}; leave it out, or take wsd"
            raise_faults(type(self).__name__, [(("decay_share",), self.decay_share, allowed)])
        return self


class Samples(Spec):
    """Texts that the model writes at each evaluation, from the same prompts and seeds; they change no loss."""

    prompts: Annotated[tuple[PromptText, ...], Field(min_length=1, max_length=MOST_PROMPTS)]
    """Texts to continue; in conversations, the user's message."""
    tokens: Annotated[int, Field(strict=True, ge=1, le=256)] = 64
    """Most tokens to write; a prompt that is too long loses its beginning."""
    temperature: Annotated[float, Field(strict=True, ge=0, le=10)] = 1.0
    """Temperature of sampling; 0 takes the most likely token."""
    seed: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] = 0
    """Seed of the first prompt; each further one has the next number."""


class Evaluation(Spec):
    """Validation on the same held-out sequences for every run."""

    every_steps: Count = 100
    """Steps between evaluations; also before the first step and after the last one."""
    sequences: Annotated[int, Field(strict=True, ge=1, le=65_536)] = 64
    """Number of held-out sequences."""
    samples: Samples | None = omit_default(None)
    """Texts that the model writes at each evaluation; null: none."""


class Execution(Spec):
    """The computation of a step; losses change by rounding only."""

    micro_batch_sequences: Annotated[int, Field(strict=True, ge=1, le=65_536)] | Literal["auto"] | None = None
    """Sequences in one forward and backward pass; null: the whole batch; auto: the most that fits into memory."""
    retry_out_of_memory: Flag = omit_default(True)
    """If a fixed micro-batch does not fit, try again with half of it, down to one sequence."""
    memory_cap_gib: Annotated[float, Field(strict=True, gt=0, le=1e6)] | None = None
    """Tensor memory that the run may use. With `micro_batch_sequences: auto`, candidates are compared at equal
    memory."""
    activation_checkpointing: Flag = False
    """Keep only each layer's input and compute the rest again in the backward pass."""
    compile: Flag = False
    """`torch.compile` the model."""
    parallel: Literal["ddp", "fsdp"] = omit_default("ddp")
    """`ddp`: each process has the whole model; `fsdp`: a shard of weights, gradients and optimizer state (FSDP2)."""
    attention: Literal["sdpa", "eager"] = "sdpa"
    """sdpa: torch's fused scaled dot-product attention; eager: the plain formula."""


class Probes(Spec):
    """Measurements of every weight matrix at some steps; they change no loss."""

    every_steps: Count = 100
    """Steps from the start of one window to the next."""
    window_steps: Count = 1
    """Observed steps in a window; the paper compares residuals over 20."""
    kinds: Annotated[tuple[ProbeName, ...], Field(min_length=1)] = (
        "gradient-sparsity",
        "momentum-spectrum",
        "residual",
    )
    """`gradient-sparsity`: rows and columns near zero; `momentum-spectrum`: energy of the largest singular values;
    `residual`: what a low rank drops of the momentum. An optimizer without them is observed with AdaPM's (beta1 = 0.9,
    5 % of the rank)."""

    def is_due(self, step: int) -> bool:
        """Return whether `step` (from 1) is observed."""
        return step >= self.every_steps and step % self.every_steps < self.window_steps
