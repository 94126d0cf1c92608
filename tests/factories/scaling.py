"""Scaling experiments in memory: specifications, and runs whose losses a test chooses."""

from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.analysis.cells import comparisons
from orchestrator.analysis.laws.fit import fit_experiments
from orchestrator.analysis.laws.records import FitReport
from orchestrator.kinds.scaling import ScalingSpec
from orchestrator.records import ExperimentRecord, RunRecord
from tests.factories.comparison import Outcome, experiment_record, run_record
from tests.factories.stores import result
from worker.catalog import presets
from worker.catalog.presets import parameter_count

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


def law_report(
    exponent: float,
    *,
    models: Sequence[str] = MODELS,
    seeds: Sequence[int] = (1, 2),
    predict: Sequence[tuple[int, int | None]] = (),
    label: str | None = None,
) -> FitReport:
    """The laws of AdamW and AdaPM, called `label`, whose losses follow a power law, or none if the exponent is zero."""
    candidates: list[dict[str, Any]] = [{"optimizer": name, "learning_rates": [0.004]} for name in ("adamw", "adapm")]
    candidates[1] |= {"label": label} if label else {}
    spec = scaling_spec(sizes=[{"model": model} for model in models], seeds=list(seeds), candidates=candidates)

    def outcome(name: str, _lr: float, seed: int, model: str, _steps: int) -> Outcome:
        size = parameter_count(presets.preset(model))
        wobble = 0.0 if exponent else 0.05 * (model == "gpt2-micro")
        loss = 9 * size**-exponent * (1 + 1e-3 * seed + wobble) + 0.1 * (name != "adamw")
        return result(final_val_loss=loss).model_copy(update={"parameters": size, "tokens": 10_240})

    return fit_experiments(comparisons(*scaling_records(spec, outcome)), predict=list(predict), draws=100)
