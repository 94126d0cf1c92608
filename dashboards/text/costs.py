"""Measured costs of a run, as lines of name and value: one list for the page, `show` and `run`.

docs/measurement.md says how each figure is taken.
"""

import math
from typing import Final

from dashboards.text import formats
from orchestrator.records import SECONDS_PER_HOUR
from worker.records.result import MemoryBreakdown, Result
from worker.spec.run import RunSpec
from worker.spec.task import TaskSpec

LARGEST_NATS: Final = 700.0
"""Beyond it exp() leaves the range of float64."""


def perplexity(loss: float | None, task: TaskSpec) -> float | None:
    """Return exp of a task's mean loss; None if the loss is not in nats per token, or too large. It is derived for
    display and never stored."""
    if loss is None or not task.in_nats_per_token or loss > LARGEST_NATS:
        return None
    return math.exp(loss)


CostLine = tuple[str, str]


def lines(result: Result, spec: RunSpec) -> tuple[CostLine, ...]:
    """Return every figure that exists for the device; what does not exist there has no line."""
    value = perplexity(result.final_val_loss, spec.workload.task)
    quality = ("Perplexity", formats.UNKNOWN if value is None else f"{value:,.4g}")
    every = (quality, *_memory(result), *_time(result, spec), *_device(result))
    return tuple(line for line in every if line[1] != formats.UNKNOWN)


def _memory(result: Result) -> tuple[CostLine, ...]:
    peak, why = result.peak_memory, result.why_no_peak()
    unknown = f"{formats.UNKNOWN} ({why})"
    return (
        ("Parameters", f"{formats.count(result.parameters)} ({formats.size(result.parameter_bytes)})"),
        ("Optimizer state", formats.size(result.optimizer_state_bytes)),
        ("Peak memory (tensors)", formats.size(result.peak_tensor_bytes()) if why is None else unknown),
        *(_breakdown(result.memory_breakdown) if result.memory_breakdown else ()),
        ("Peak host RSS", formats.size(peak.host_rss_bytes)),
        ("Peak reserved", formats.size(peak.allocator_reserved_bytes)),
        ("Peak NVML process", formats.size(peak.nvml_process_bytes)),
        ("NVML", result.nvml_note or formats.UNKNOWN),
    )


def _breakdown(memory: MemoryBreakdown) -> tuple[CostLine, ...]:
    parts = (
        ("parameters", memory.parameters_bytes),
        ("gradients", memory.gradients_bytes),
        ("optimizer state", memory.optimizer_state_bytes),
        ("activations", memory.activations_bytes),
        ("other", memory.other_bytes),
    )
    described = ", ".join(f"{name} {formats.size(size_bytes)}" for name, size_bytes in parts)
    return (("Peak breakdown", f"{described} (step {memory.step}, {memory.phase})"),)


def _time(result: Result, spec: RunSpec) -> tuple[CostLine, ...]:
    parts = (
        ("data", result.data_seconds_median),
        ("forward", result.forward_seconds_median),
        ("backward", result.backward_seconds_median),
        ("optimizer", result.optimizer_seconds_median),
    )
    breakdown = [f"{name} {formats.seconds(value)}" for name, value in parts if value is not None]
    micro_batch, batch = result.micro_batch_sequences, spec.workload.budget.batch_sequences
    return (
        ("Micro-batch", formats.UNKNOWN if micro_batch is None else f"{micro_batch} of {batch} sequences"),
        ("Step, median", formats.seconds(result.step_seconds_median)),
        ("Step breakdown", ", ".join(breakdown) or formats.UNKNOWN),
        ("Speed", _unit(formats.compact(result.tokens_per_second), f"{spec.workload.task.batch_unit}/s")),
        ("Model FLOP/s", formats.flops(result.flops_per_second)),
        ("MFU", formats.percent(result.model_flops_utilization)),
    )


def _device(result: Result) -> tuple[CostLine, ...]:
    environment = result.environment
    kind = formats.device_time_title(environment.device)
    processes = formats.UNKNOWN if result.processes == 1 else f"{result.processes}, a device and an equal share each"
    allocated, productive = (
        formats.device_time(value / SECONDS_PER_HOUR) for value in (result.device_seconds, result.productive_seconds)
    )
    energy = formats.UNKNOWN if result.energy_joules is None else f"{result.energy_joules:,.0f} J"
    driver = "" if environment.driver is None else f", driver {environment.driver}, CUDA {environment.cuda}"
    return (
        (kind, f"{allocated} in this attempt, {productive} productive"),
        ("Energy", energy),
        ("Device", f"{environment.device}: {environment.device_name}{driver}"),
        ("Processes", processes),
    )


def _unit(value: str, unit: str) -> str:
    return value if value == formats.UNKNOWN else f"{value} {unit}"
