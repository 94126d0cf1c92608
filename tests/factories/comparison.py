"""A finished comparison in memory: runs whose losses, curves and ends a test chooses."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from orchestrator.analysis.candidates import run_fact
from orchestrator.analysis.comparison import ValidationCurve, compare
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.experiment import Experiment, PlannedRun
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.kinds.scaling import ScalingSpec
from orchestrator.records import Comparison, ExperimentRecord, Progress, RunRecord, StateCounts
from tests.factories.stores import comparison_spec, result
from worker.records.result import Result

Kind = TypeVar("Kind", bound=Experiment)
Outcome = Result | RunStatus | float | None
"""The end of a test's run: a result, a loss, a state without result, or not yet (None)."""


def run_record(planned: PlannedRun, position: int, outcome: Outcome, experiment: str = "e") -> RunRecord:
    """A run that ended so, after six minutes of its device."""
    ended = result(final_val_loss=outcome) if isinstance(outcome, float) else outcome
    status = RunStatus.SUCCEEDED if isinstance(ended, Result) else ended or RunStatus.RUNNING
    return RunRecord(
        id=f"{experiment}-{position}",
        experiment_id=experiment,
        position=position,
        candidate=planned.candidate,
        optimizer=planned.spec.optimizer.name,
        lr=planned.spec.optimizer.lr,
        seed=planned.spec.seed,
        model=planned.spec.workload.model,
        status=status,
        reason=None,
        attempt=1,
        step=0,
        steps_total=planned.spec.workload.budget.steps,
        created_at=0.0,
        started_at=1.0,
        ended_at=2.0,
        device_seconds=360.0,
        spec=planned.spec,
        result=ended if isinstance(ended, Result) else None,
    )


def experiment_record(
    spec: ExperimentSpec, runs: int, experiment: str = "e", *, growing: bool = False
) -> ExperimentRecord:
    """An experiment whose runs have all ended."""
    return ExperimentRecord(
        id=experiment,
        name=spec.name,
        kind=spec.kind,
        spec=spec,
        spec_hash=spec.content_hash(),
        created_at=0.0,
        ended_at=None,
        counts=StateCounts(total=runs, by_status={RunStatus.SUCCEEDED: runs}, growing=growing),
        progress=Progress(steps_done=0, steps_total=0, tokens_per_second=None, seconds_left=None),
    )


def evaluated_on(spec: Kind, sequences: int = 10**9) -> Kind:
    """The same on so many validation sequences, by default so many that the error of that text is nothing."""
    evaluation = spec.workload.evaluation.model_copy(update={"sequences": sequences})
    return spec.model_copy(update={"workload": spec.workload.model_copy(update={"evaluation": evaluation})})


def records(
    spec: ComparisonSpec,
    outcome: Callable[[str, float, int], Outcome],
    *,
    planned: Sequence[PlannedRun] | None = None,
    experiment: str = "e",
) -> tuple[ExperimentRecord, tuple[RunRecord, ...]]:
    """The experiment and its runs, each ended as `outcome(candidate, lr, seed)` says."""
    planned = spec.first_runs() if planned is None else planned
    runs = tuple(
        run_record(run, index, outcome(run.candidate, run.spec.optimizer.lr, run.spec.seed), experiment)
        for index, run in enumerate(planned)
    )
    return experiment_record(spec, len(runs), experiment), runs


def tuned_records(
    spec: ComparisonSpec | ScalingSpec, outcome: Callable[[PlannedRun], Outcome], *, experiment: str = "e"
) -> tuple[ExperimentRecord, tuple[RunRecord, ...]]:
    """The experiment and its runs, each ended as `outcome` says: the trials, and what follows from them."""
    runs: list[RunRecord] = []
    pending = spec.first_runs()
    while pending:
        runs += [run_record(run, len(runs) + index, outcome(run), experiment) for index, run in enumerate(pending)]
        pending = spec.follow_up_runs([run_fact(run) for run in runs]) if spec.tuning else ()
    return experiment_record(spec, len(runs), experiment), tuple(runs)


def falling(run: RunRecord, evaluations: int = 1000) -> ValidationCurve:
    """A curve that falls on a straight line from 5.0 to the run's final loss, and how often that was evaluated."""
    end = run.result.final_val_loss if run.result else None
    fall = 0.0 if end is None else 5.0 - end
    shares = [index / evaluations for index in range(evaluations + 1)]
    losses = [5.0 - fall * share for share in shares]
    # The last one is the final loss to the last bit, which a target is.
    return ValidationCurve(
        steps=tuple(run.steps_total * share for share in shares), losses=(*losses[:-1], 5.0 if end is None else end)
    )


def made_spec(name: str = "a comparison", label: str | None = None) -> ComparisonSpec:
    """AdamW and AdaPM at three rates with three seeds."""
    spec = comparison_spec(name=name, optimizers=("adamw", "adapm"), learning_rates=(1e-3, 2e-3, 4e-3), seeds=range(3))
    adamw, adapm = spec.candidates
    return spec.model_copy(update={"candidates": (adamw, adapm.model_copy(update={"label": label}))})


def made_comparison(name: str = "a comparison", label: str | None = None) -> Comparison:
    """AdaPM is 0.05 nats better than AdamW, at 2e-3 both."""

    def outcome(candidate: str, lr: float, seed: int) -> float:
        return 2.3 + 5 * abs(lr - 2e-3) + 0.001 * seed - (0.05 + 0.0005 * seed) * (candidate != "adamw")

    experiment, runs = records(made_spec(name, label), outcome)
    return compare(experiment, runs, {run.id: falling(run) for run in runs})
