"""What an experiment costs, roughly, before it is run: device-seconds by the FLOPs of its runs.

    run = start + steps × (6 × parameters × tokens a step) / rate        weights by the preset's shape

The rates are what one device achieves in such trainings: good for "minutes or days", not for bills.
"""

from orchestrator.experiments import ComparisonSpec
from orchestrator.sweeps import SweepSpec
from worker import presets
from worker.spec import Workload
from worker.tasks.specs import RegressionTask, RlhfTask

START_SECONDS = 5.0
"""Importing torch and building the model, measured on an idle core; on a GPU about the same."""
CPU_FLOPS = 6e10
"""One core of a recent server on gpt2-tiny, measured: 40 to 80 GFLOP/s."""
GPU_FLOPS = 6e13
"""Some 40 % of an A6000's 155 TFLOP/s in bf16, with which the paper trains all but its largest model."""
REGRESSION_STEP_SECONDS = 1e-3
"""A step of one sample in 1,000 dimensions, measured on one core."""
GENERATION_FACTOR = 8.0
"""A step of `rlhf` by one of `sft` on as many tokens: two answers are generated token by token and scored; measured."""


def device_seconds(spec: ComparisonSpec | SweepSpec) -> float:
    """Of all runs of an experiment, one after another."""
    return spec.run_count() * (START_SECONDS + _training_seconds(spec.workload, on_gpu=spec.resources.gpus > 0))


def _training_seconds(workload: Workload, *, on_gpu: bool) -> float:
    if isinstance(workload.task, RegressionTask):
        return workload.budget.steps * REGRESSION_STEP_SECONDS
    flops = 6.0 * weights(workload.model) * workload.tokens()
    factor = GENERATION_FACTOR if isinstance(workload.task, RlhfTask) else 1.0
    return factor * flops / (GPU_FLOPS if on_gpu else CPU_FLOPS)


def weights(model: str) -> float:
    """Weights of a preset, roughly: 12 h² a layer, and its embedding."""
    preset = presets.preset(model)
    return 12.0 * preset.layers * preset.hidden_size**2 + preset.vocabulary_size * preset.hidden_size
