"""The reports of a run: points while it trains, one `Result` at its end. Frozen, closed, torch-free.

Memory figures are different quantities and never mixed: the peak of tensors, NVML's peak for the process, and the
host's resident set. Bytes are bytes; `gb` = 1e9 and `gib` = 2**30 appear only where people read.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from worker.schema import WHOLE_NUMBER, DescribedRecord

Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Exact = Annotated[int, Field(ge=0, le=2**53)]
"""A count or a number of bytes: exact in JSON and in every database."""
Whole = Annotated[Exact, WHOLE_NUMBER]
"""The same where a request has it by itself; points travel in columns, which are strict without a call for each."""
Seconds = Annotated[float, Field(strict=True, ge=0, le=1e10, allow_inf_nan=False)]
"""A duration below three centuries."""
StoredText = Annotated[str, Field(pattern=r"^[^\x00]*$")]
"""Text as both databases keep it in a column of its own: PostgreSQL refuses NUL."""


class Record(DescribedRecord):
    """The base of all records."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Verdict(StrEnum):
    """The end of a training. Every verdict is a result; none is a crash."""

    CONVERGED = "converged"
    """The whole budget was run and the validation loss fell below its value before training."""
    DIVERGED = "diverged"
    """The loss stopped being a number, or ended no lower than it was before training."""
    OUT_OF_MEMORY = "out_of_memory"
    """The device has not enough memory for this run."""
    STOPPED_EARLY = "stopped_early"
    """A sweep stopped it before the end of its budget, because other trials of it were better at the same step."""


class Point(Record):
    """A step of a run; null means not taken or not finite.

    Losses are mean cross-entropies in nats per token, except for the tasks `rlhf` (the policy gradient's surrogate;
    minus the mean KL-penalized reward of held-out answers) and `regression` (half the squared error; the excess risk).
    """

    step: Exact
    """Optimizer steps done; 0 is before training."""
    tokens: Exact
    train_loss: Finite | None = None
    """Loss of this step's batch, before the step."""
    val_loss: Finite | None = None
    reward: Finite | None = None
    """Mean reward of the step's sampled answers (`rlhf`)."""
    kl_nats: Finite | None = None
    """Mean of log(policy / reference) over the step's sampled answers, each summed over its tokens (`rlhf`)."""
    answer_tokens: Finite | None = None
    """Mean length of the step's sampled answers, their ends included (`rlhf`)."""
    lr: Finite | None = None
    grad_norm: Finite | None = None
    """Global L2 norm before clipping."""
    step_seconds: Finite | None = None
    """Wall-clock time of the step: data, forward, backward, clipping and optimizer."""
    data_seconds: Finite | None = None
    """The part of `step_seconds` that drew the batch."""
    forward_seconds: Finite | None = None
    backward_seconds: Finite | None = None
    optimizer_seconds: Finite | None = None
    """The part of `step_seconds` inside `optimizer.step()`."""
    host_rss_bytes: Exact | None = None
    cpu_cores: Finite | None = None
    """CPU time of the process, all its threads, by wall-clock time. This and the four below are means since the last
    point that has them, evaluations and checkpoints included; those are a second apart at least. Of the first process
    of a run that several train together."""
    host_cpu_utilization: Finite | None = None
    """Busy share of all CPUs of the host, whoever keeps them busy; 0 to 1."""
    gpu_utilization: Finite | None = None
    """Share of the time in which a kernel was at work on the GPU, by NVML; 0 to 1."""
    gpu_memory_bytes: Exact | None = None
    """The memory in use on the GPU, by NVML, other processes included."""
    gpu_power_watts: Finite | None = None
    """The power by NVML's counter of energy."""


class Observation(Record):
    """The observation of one probe at one step, block by block (`worker/meters/probes.py`)."""

    step: Whole
    """Optimizer steps done, the observed one included."""
    probe: Annotated[StoredText, Field(max_length=64)]
    blocks: dict[str, dict[str, Finite]]
    """Block name → name of a quantity → value."""


LONGEST_SAMPLE = 10_000
"""Characters of a text that a model wrote."""


class SampledText(Record):
    """A text that the model wrote."""

    prompt: Annotated[StoredText, Field(max_length=500)]
    text: Annotated[StoredText, Field(max_length=LONGEST_SAMPLE)]
    """The text after the prompt."""
    ended: bool
    """Whether the model ended it; else it was cut off at the number of tokens."""


class TextSamples(Record):
    """The texts of the model at one evaluation, one for each prompt of the specification."""

    step: Whole
    texts: Annotated[tuple[SampledText, ...], Field(max_length=8)]


class PeakMemory(Record):
    """Peaks over the whole attempt; null if the quantity does not exist on the device."""

    host_rss_bytes: Whole
    """Peak resident set of the worker process (VmHWM), its libraries included."""
    host_rss_before_bytes: Whole
    """Resident set just before the model was made: what Python and the libraries take."""
    allocator_bytes: Whole | None = None
    """Peak of what torch's CUDA allocator handed out."""
    allocator_reserved_bytes: Whole | None = None
    """Peak of what torch's CUDA allocator took from the device."""
    nvml_process_bytes: Whole | None = None
    """Peak of the process on the device, by NVML: context and libraries included. Sampled four times a second."""


class MemoryBreakdown(Record):
    """Tensor memory of the run's device at the highest moment of one step; the five parts add up to `peak_bytes`.

    On a CPU every allocation of torch's allocator is counted, to the byte; on a GPU the caching allocator's blocks are.
    """

    step: Whole
    """Steps done when that step was over."""
    phase: str
    """The phase of the step with the highest moment: forward, backward or optimizer."""
    micro_batch_sequences: Whole
    peak_bytes: Whole
    parameters_bytes: Whole
    gradients_bytes: Whole
    optimizer_state_bytes: Whole
    activations_bytes: Whole
    """The bytes that the forward pass leaves for the backward pass, the logits included."""
    other_bytes: Whole
    """Temporary tensors, gradients of activations, buffers, the batch, and the allocator's rounding."""


class Environment(Record):
    """The environment of a result: hardware and software."""

    device: str
    """`cpu` or `cuda`."""
    device_name: str
    device_memory_bytes: Whole | None = None
    """The memory of a GPU."""
    driver: str | None = None
    """NVIDIA's driver, by NVML."""
    cuda: str | None = None
    """The CUDA that torch was built for."""
    host: str
    threads: Whole
    python: str
    torch: str
    transformers: str
    platform: str
    commit: str | None = None
    """The git commit of the bench, where it is known."""


SPIKE_SHARE = 0.05
"""A run that gives back more than this share of what its validation loss had fallen by, or of that loss where it fell
by less, is lost. Of 120 runs of gpt2-nano (AdamW, AdaPM, AdaPM-mini and Lion at half to eight times their best rates,
300 steps, 30 evaluations) none gave back more than 0.0054 of its fall; ten times that is no noise."""
LARGEST_LOSS = 1e100
"""Sums of squares of larger ones overflow."""


class Result(Record):
    """The record of a finished run."""

    verdict: Verdict
    verdict_reason: str
    """The reason of the verdict, in a full sentence."""
    steps: Whole
    tokens: Whole
    initial_val_loss: Finite | None
    final_val_loss: Finite | None
    """Validation loss after the last step: the figure that ranks. Null where it is not finite."""
    lowest_val_loss: Finite | None = None
    """Lowest one of the evaluations after the first step; null of a run of an earlier version."""
    final_train_loss: Finite | None
    """Mean training loss over the last tenth of the steps."""
    parameters: Whole
    parameter_bytes: Whole
    optimizer_state_bytes: Whole
    """Bytes of every tensor in the optimizer's state, each storage counted once."""
    peak_memory: PeakMemory
    memory_breakdown: MemoryBreakdown | None = None
    """The parts of a step's memory; null if no step was done."""
    micro_batch_sequences: Whole | None = None
    """Sequences in one forward and backward pass of a process: as asked for, or as found."""
    step_seconds_median: Finite | None
    data_seconds_median: Finite | None = None
    """Time that a step waits for its batch."""
    forward_seconds_median: Finite | None = None
    backward_seconds_median: Finite | None = None
    optimizer_seconds_median: Finite | None
    tokens_per_second: Finite | None
    """Training tokens by time in steps, evaluation and checkpoints excluded, each attempt's two warm-up steps too.
    Padding and prompts are counted (`sft`, `rlhf`), and the time of `rlhf` includes that of generating."""
    flops_per_token: Finite | None = None
    """Model FLOPs of forward and backward pass, by PaLM's formula; null for `rlhf` and `regression`."""
    flops_per_second: Finite | None = None
    """Achieved: `flops_per_token` × `tokens_per_second`."""
    model_flops_utilization: Finite | None = None
    """Achieved by the device's peak, between 0 and 1; null if no data sheet gives a peak, as for CPUs."""
    device_seconds: Seconds
    """Time that this attempt held its device, from the worker's start to its result."""
    productive_seconds: Seconds = 0.0
    """Time in the steps that led to this result, each counted once, over all attempts."""
    energy_joules: Finite | None = None
    """The energy of the device during this attempt, by NVML's counter; null if there is none."""
    nvml_note: str | None = None
    """The reason why NVML gives less than all its figures; null if it gives all, or there is no GPU."""
    spec_hash: str
    data_hash: str
    """SHA-256 over the token shards that were read."""
    initial_weights_sha256: str | None = None
    """Over the safetensors files that training started from; null if weights were drawn."""
    environment: Environment
    processes: Whole = 1
    """Processes that trained together, each on a device of its own with its share of every batch. Peaks of memory are
    the largest of them, device time and energy their sum, tokens and FLOPs those of the whole, the rest the first's."""
    resumed_from_step: Whole = 0

    def judged_loss(self) -> float | None:
        """Return the final validation loss of a run that was trained to its end; None if the run was lost: it
        diverged, ran out of memory, or ended far above its own lowest loss, where that is above zero (a negated reward
        is noisier).
        """
        loss = self.final_val_loss
        if self.verdict is not Verdict.CONVERGED or loss is None or abs(loss) > LARGEST_LOSS:
            return None
        if self.lowest_val_loss is not None and self.initial_val_loss is not None and self.lowest_val_loss > 0:
            fall, rise = self.initial_val_loss - self.lowest_val_loss, loss - self.lowest_val_loss
            return None if rise > SPIKE_SHARE * max(fall, self.lowest_val_loss) else loss
        return loss

    def peak_tensor_bytes(self) -> int | None:
        """Return the most bytes of tensors at once on the run's device: of the whole attempt by a GPU's allocator, on a
        CPU of the steps that were recorded. What the libraries of the process take is not in it. None if it was not
        measured."""
        if self.peak_memory.allocator_bytes is not None:
            return self.peak_memory.allocator_bytes
        return None if self.memory_breakdown is None else self.memory_breakdown.peak_bytes

    def why_no_peak(self) -> str | None:
        """Return the reason why there is no peak of tensors, without a full stop; None if there is one."""
        if self.peak_tensor_bytes() is not None:
            return None
        return "no step was recorded" if self.steps == 0 else "the tensors' peak was not measured yet in that version"
