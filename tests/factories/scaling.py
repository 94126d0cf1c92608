"""Scaling experiments in memory: specifications, and runs whose losses a test chooses."""

from collections.abc import Callable
from typing import Any

from orchestrator.kinds.scaling import ScalingSpec
from orchestrator.records import ExperimentRecord, RunRecord
from tests.factories.comparison import Outcome, experiment_record, run_record

MODELS = ("gpt2-nano", "gpt2-micro", "gpt2-tiny")


def scaling_fields(**changes: Any) -> dict[str, Any]:
    """Three tiny models × one budget × two optimizers × two rates × two seeds, as a user writes it."""
    fields: dict[str, Any] = {
        "kind": "scaling",
        "name": "a law",
        "workload": {"data": {"sequence_length_tokens": 64}, "budget": {"batch_sequences": 4}},
        "sizes": [{"model": model} for model in MODELS],
        "budgets": [{"tokens": 10_240}],
        "candidates": [
            {"optimizer": "adamw", "learning_rates": [0.004, 0.008]},
            {"optimizer": "adapm", "learning_rates": [0.004, 0.008]},
        ],
        "seeds": [1, 2],
    }
    return fields | changes


def scaling_spec(**changes: Any) -> ScalingSpec:
    """The same as a specification."""
    return ScalingSpec.model_validate(scaling_fields(**changes))


def scaling_records(
    spec: ScalingSpec, outcome: Callable[[str, float, int, str, int], Outcome]
) -> tuple[ExperimentRecord, tuple[RunRecord, ...]]:
    """The experiment and its runs, each ended as `outcome(candidate, lr, seed, model, steps)` says."""
    runs = tuple(
        run_record(
            run,
            index,
            outcome(
                run.candidate,
                run.spec.optimizer.lr,
                run.spec.seed,
                run.spec.workload.model,
                run.spec.workload.budget.steps,
            ),
        )
        for index, run in enumerate(spec.first_runs())
    )
    return experiment_record(spec, len(runs)), runs
