"""Comparisons that the real service finishes in seconds: of runs of twenty steps."""

from typing import Any

from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from worker.spec.run import Budget, DataSpec, Evaluation, Schedule, Workload


def small_comparison(
    *,
    name: str = "small",
    steps: int = 20,
    seeds: tuple[int, ...] = (1, 2),
    optimizers: tuple[str, ...] = ("adamw", "adapm", "adapm-mini"),
) -> ComparisonSpec:
    """The optimizers, of which the first is the baseline, on the tiny GPT-2 and the interpreter's own source, at a rate
    at which none ends above its lowest loss, whichever Python it is."""
    return ComparisonSpec(
        name=name,
        workload=Workload(
            model="gpt2-tiny",
            data=DataSpec(sequence_length_tokens=64),
            budget=Budget(steps=steps, batch_sequences=4),
            schedule=Schedule(warmup_steps=2),
            evaluation=Evaluation(every_steps=10, sequences=8),
        ),
        candidates=tuple(Candidate(optimizer=optimizer, learning_rates=(1e-3,)) for optimizer in optimizers),
        seeds=seeds,
        baseline=optimizers[0],
    )


def small_regression(
    *candidates: Candidate, name: str = "small", seeds: tuple[int, ...] = (1, 2), steps: int = 20
) -> ComparisonSpec:
    """The candidates, of which the first is the baseline, on a regression: half the processor time of a language model,
    for its runs load no transformers."""
    fields: dict[str, Any] = {
        "task": {"kind": "regression", "dimension": 20},
        "budget": {"steps": steps},
        "evaluation": {"every_steps": 10},
    }
    return ComparisonSpec(
        name=name,
        workload=Workload.model_validate(fields),
        candidates=candidates,
        seeds=seeds,
        baseline=candidates[0].label or candidates[0].optimizer,
    )
