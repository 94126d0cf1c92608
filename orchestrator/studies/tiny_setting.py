"""The tiny scale: workloads that train on a CPU core in seconds, and the learning rates at which they do."""

from collections.abc import Sequence

from optim.catalog import Scalar
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import Tuning
from worker.spec.parts import Probes
from worker.spec.run import Budget, DataSpec, Evaluation, Execution, Schedule, Workload

STEPS = 150
LEARNING_RATE = 4e-3
"""Of runs whose losses are not compared: those that are probed, or timed."""
RATES = (1e-3, 2e-3, 4e-3)
"""Around the best rates of Adam's relatives on these models: 1e-3 or below for AdamW, 2e-3 for AdaPM."""
GRIDS: dict[str, tuple[float, ...]] = {
    "adafactor": (1e-2, 2e-2, 4e-2),
    "galore": (8e-3, 1.6e-2, 3.2e-2),
    "fira": (8e-3, 1.6e-2, 3.2e-2),
    "apollo": (8e-3, 1.6e-2, 3.2e-2),
    "lion": (2.5e-4, 5e-4, 1e-3),
    "soap": (4e-3, 8e-3, 1.6e-2),
    "schedule-free-adamw": (4e-3, 8e-3, 1.6e-2),
}
"""×2 grids that hold the best rate at this size; all others have `RATES`."""
SEEDS = (1, 2, 3)
TUNING = Tuning(seeds=(0,), extend_grid=3)
"""As far as to a rate that is worse on either side: at the edge of its grid an optimizer is not tuned."""


def workload(
    *,
    model: str = "gpt2-tiny",
    steps: int = STEPS,
    probes: Probes | None = None,
    execution: Execution | None = None,
    batch_sequences: int = 8,
) -> Workload:
    """Next bytes of the interpreter's own library."""
    return Workload(
        model=model,
        data=DataSpec(dataset="python-stdlib", tokenizer="byte", sequence_length_tokens=64),
        budget=Budget(steps=steps, batch_sequences=batch_sequences),
        schedule=Schedule(warmup_steps=steps // 10, final_lr_ratio=0.1),
        evaluation=Evaluation(every_steps=max(steps // 5, 1), sequences=64),
        execution=execution or Execution(),
        probes=probes,
    )


def candidate(
    optimizer: str,
    label: str | None = None,
    options: dict[str, Scalar] | None = None,
    rules: Sequence[str] = (),
    learning_rates: tuple[float, ...] = (LEARNING_RATE,),
) -> Candidate:
    """A candidate at one rate, or at others."""
    return Candidate(
        optimizer=optimizer, label=label, options=options or {}, rules=tuple(rules), learning_rates=learning_rates
    )


def tuned_candidate(optimizer: str, label: str | None = None) -> Candidate:
    """A candidate over its grid."""
    return candidate(optimizer, label, learning_rates=GRIDS.get(optimizer, RATES))


def comparison(
    name: str,
    work: Workload,
    candidates: Sequence[Candidate],
    *,
    baseline: str,
    seeds: tuple[int, ...] = SEEDS,
    tuning: Tuning | None = None,
) -> ComparisonSpec:
    """A comparison at this scale."""
    return ComparisonSpec(
        name=f"study {name}, tiny", workload=work, candidates=tuple(candidates), seeds=seeds, baseline=baseline,
        tuning=tuning,
    )  # fmt: skip
