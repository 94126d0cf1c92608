"""A preview: what a specification of any kind would mean if it were submitted; nothing is stored.

    whatever was sent ─► `validate_spec` ─► faults, or its budgets ─► runs, tokens, hours, memory
    budgets + the newest runs of each model     ─► seconds a token and a start ─► `CostEstimate`
    budgets + footprints that were counted once ─► bytes at the least          ─► `CandidateMemory`

Hours and memory are estimates, and nothing is guessed: what was never measured or counted is said to be unknown.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from pydantic import ValidationError

from orchestrator.kinds.experiment import RunBudget
from orchestrator.kinds.registry import ExperimentSpec, validate_spec
from orchestrator.records import SECONDS_PER_HOUR, RunRecord
from orchestrator.specs.faults import Fault, faults
from orchestrator.specs.footprints import Footprints, footprint_question
from worker.catalog import presets
from worker.catalog.presets import parameter_count
from worker.footprint.process import FootprintQuestion
from worker.records.result import Record
from worker.spec.run import Workload

MEASURED_RUNS = 60
"""The number of a model's last runs from which the cost of more is estimated."""
ONE_RUN = (
    "makes this the specification of one run, which `adapm-bench run` takes; an experiment has candidates and seeds"
)
COUNTED_OPTIONS = {"rank_ratio", "state_dtype"}
"""Hyperparameters that a footprint is counted for."""
STATELESS = {"eps", "weight_decay", "clip", "refresh_interval", "inner_iterations", "seed", "lr", "warmup_steps"}
"""Hyperparameters that no byte of state depends on."""
RunsOfModel = Callable[[str], Sequence[RunRecord]]
"""The newest runs of a model that have succeeded, newest first."""


class CandidateMemory(Record):
    """The least memory of training a candidate: parameters, gradients, optimizer state, averaged weights; activations
    come on top."""

    candidate: str
    model: str
    state_bytes: int
    total_bytes: int


class CostEstimate(Record):
    """The estimated cost of the runs, by the pace of measured ones."""

    device_hours: float
    device: str
    """The device of that pace; another one has another pace."""
    measured_runs: int
    assumed: tuple[str, ...]
    """Candidates without a measured run: they are taken to be as fast as the mean of all others."""
    unmeasured: tuple[str, ...] = ()
    """Models of which no run was measured here: theirs are not in the hours."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The pace of one model's and task's runs, on the device of the newest one."""

    device: str
    by_optimizer: dict[str, float]
    """Seconds a token, of each optimizer the mean of its runs."""
    start_seconds: float
    """The seconds that a run takes besides training."""
    runs: int

    def seconds(self, budget: RunBudget) -> float:
        """Return the seconds of the runs of a budget."""
        pace = self.by_optimizer.get(budget.optimizer, fmean(self.by_optimizer.values()))
        return budget.tokens() * pace + budget.runs * self.start_seconds


class DesignPower(Record):
    """The difference that a comparison will show with 80 % probability, if its paired differences vary like those of
    earlier ones of its workload."""

    paired_sd: float
    """Standard deviation of the difference of two candidates with the same seed, in the unit of the loss."""
    experiments: int
    """Earlier experiments that the noise is known from."""
    seeds: int
    """Seeds, or replicates, that are compared."""
    comparisons: int
    """Candidates beside the baseline: all of their intervals hold together."""
    detectable_difference: float | None
    """The least true difference that is shown; null with one seed, which shows nothing."""
    margin: float | None
    """The difference below which candidates count as equally good; null if none is given."""
    seeds_for_difference: int | None = None
    """Seeds that would show a difference as large as the margin; null if that takes more than a thousand."""
    seeds_for_margin: int | None = None
    """Seeds that would show that an equal candidate is as good; null if that takes more than a thousand."""
    evaluation_error: float = 0.0
    """Standard error of a difference by the validation text; where it rivals the margin no number of seeds helps."""
    loss_unit: str


class Preview(Record):
    """The preview of a specification."""

    faults: tuple[Fault, ...] = ()
    missing: tuple[str, ...] = ()
    """A sentence for each thing that has to be prepared before it can be submitted."""
    warnings: tuple[str, ...] = ()
    """A sentence for each thing that would keep its runs waiting, or it from what it is for, though it can be
    submitted."""
    kind: str | None = None
    """The kind of the experiment; null if there are faults, like everything below."""
    name: str | None = None
    runs: int | None = None
    """Trials × tuning seeds + seeds for each candidate; of a sweep its trials."""
    runs_from: str = ""
    """The sum behind the number of runs: `24 trials × 3 tuning seeds + 3 candidates × 10 seeds`."""
    growing: bool = False
    """Whether the number of runs, and of what they do, is an upper bound: verdicts may need fewer seeds, a sweep ends
    early."""
    models: tuple[str, ...] = ()
    """The trained models, in the order of the runs."""
    steps: int | None = None
    """The steps of all runs."""
    tokens: int | None = None
    batch_unit: str = "tokens"
    """The unit of `tokens`: samples, if nothing has tokens."""
    cost: CostEstimate | None = None
    """Null where no run of these models was ever measured here."""
    memory: tuple[CandidateMemory, ...] = ()
    """Empty where the models' footprints were not counted yet."""
    uncounted: tuple[str, ...] = ()
    """Models that `memory` leaves out since their footprints were not counted yet, the largest first."""
    power: DesignPower | None = None
    """Null where nothing is compared, and where it is not known."""
    power_unknown: str | None = None
    """The reason why the power is unknown."""

    def is_acceptable(self) -> bool:
        """Return whether it can be submitted as it is."""
        return not self.faults and not self.missing


def preview(
    fields: Any,
    *,
    missing: Callable[[ExperimentSpec], Sequence[str]],
    warnings: Callable[[ExperimentSpec], Sequence[str]],
    measured: RunsOfModel,
    footprints: Footprints,
    power: Callable[[ExperimentSpec], DesignPower | str | None],
) -> Preview:
    """Look at what would be the body of a submission, whatever it is."""
    if isinstance(fields, dict) and "optimizer" in fields and "candidates" not in fields:
        return Preview(faults=(Fault(pointer="/optimizer", allowed=ONE_RUN),))
    try:
        spec = validate_spec(fields)
    except ValidationError as error:
        return Preview(faults=faults(error.errors(include_url=False), ExperimentSpec))
    budgets = spec.run_budgets()
    shown, memory = power(spec), tuple(estimate_memory(budgets, footprints))
    return Preview(
        missing=tuple(missing(spec)),
        warnings=tuple(warnings(spec)),
        kind=spec.kind,
        name=spec.name,
        runs=sum(budget.runs for budget in budgets),
        runs_from=spec.run_sum(),
        growing=spec.adds_seeds() or spec.has_driver,
        models=spec.models(),
        steps=spec.step_count(),
        tokens=sum(budget.tokens() for budget in budgets),
        batch_unit=spec.workload.task.batch_unit,
        cost=estimate_cost(budgets, measured),
        memory=memory,
        uncounted=uncounted_models(budgets, memory, footprints),
        power=shown if isinstance(shown, DesignPower) else None,
        power_unknown=shown if isinstance(shown, str) else None,
    )


def estimate_cost(budgets: Sequence[RunBudget], measured: RunsOfModel) -> CostEstimate | None:
    """Return the hours of all budgets; None if no run of any of their models was ever measured here."""
    workloads = {budget.workload.model: budget.workload for budget in budgets}
    paces = {model: _pace(workload, measured(model)) for model, workload in workloads.items()}
    paced_budgets = [(budget, pace) for budget in budgets if (pace := paces[budget.workload.model]) is not None]
    if not paced_budgets:
        return None
    measured_paces = [pace for pace in paces.values() if pace is not None]
    return CostEstimate(
        device_hours=sum(pace.seconds(budget) for budget, pace in paced_budgets) / SECONDS_PER_HOUR,
        device=", ".join(dict.fromkeys(pace.device for pace in measured_paces)),
        measured_runs=sum(pace.runs for pace in measured_paces),
        assumed=tuple(
            dict.fromkeys(
                budget.candidate for budget, pace in paced_budgets if budget.optimizer not in pace.by_optimizer
            )
        ),
        unmeasured=tuple(model for model, pace in paces.items() if pace is None),
    )


def estimate_memory(budgets: Sequence[RunBudget], footprints: Footprints) -> Iterator[CandidateMemory]:
    """Yield the memory of every candidate and model whose footprint is known, once each."""
    keys: set[tuple[str, str]] = set()
    for budget in budgets:
        key = budget.candidate, budget.workload.model
        question = None if key in keys else _question(budget)
        keys.add(key)
        footprint = footprints.find(question) if question else None
        by_optimizer = {count.optimizer: count.state_bytes for count in footprint.optimizers} if footprint else {}
        state_bytes = by_optimizer.get(budget.optimizer)
        if footprint and state_bytes is not None:
            averages = footprint.parameter_bytes if budget.workload.ema_decay else 0
            total = footprint.parameter_bytes + footprint.gradient_bytes + state_bytes + averages
            yield CandidateMemory(candidate=key[0], model=key[1], state_bytes=state_bytes, total_bytes=total)


def uncounted_models(
    budgets: Sequence[RunBudget], memory: Sequence[CandidateMemory], footprints: Footprints
) -> tuple[str, ...]:
    """Return the models of which `memory` has nothing, and a count would give it; the largest first."""
    counted_models = {candidate.model for candidate in memory}
    models = {budget.workload.model for budget in budgets if _question(budget) is not None} - counted_models
    uncounted = [model for model in models if footprints.find(footprint_question(model)) is None]
    return tuple(sorted(uncounted, key=lambda model: (-parameter_count(presets.preset(model)), model)))


def _pace(workload: Workload, measured: Sequence[RunRecord]) -> Pace | None:
    """Return the pace of runs with the same task, which determines the work for a token, on the newest one's device."""
    paces: dict[str, list[float]] = {}
    starts: list[float] = []
    device = None
    for run in measured:
        if run.spec is None or run.result is None or not run.result.tokens:
            continue
        if run.spec.workload.task.kind != workload.task.kind:
            continue
        device = device or run.result.environment.device_name
        if run.result.environment.device_name == device:
            productive = run.result.productive_seconds or run.result.device_seconds
            paces.setdefault(run.optimizer, []).append(productive / run.result.tokens)
            starts.append(max(run.result.device_seconds - productive, 0.0))
    if device is None:
        return None
    means = {optimizer: fmean(optimizer_paces) for optimizer, optimizer_paces in paces.items()}
    return Pace(device=device, by_optimizer=means, start_seconds=median(starts), runs=len(starts))


def _question(budget: RunBudget) -> FootprintQuestion | None:
    """Return the question whose answer holds for the budget; None if it needs a count of its own."""
    model, options = budget.workload.model, budget.options
    if model not in presets.names() or budget.has_rules:
        return None
    if options.keys() - COUNTED_OPTIONS - STATELESS or budget.searched - STATELESS:
        return None
    if presets.preset(model).vocabulary_of_tokenizer and budget.workload.data.tokenizer != "byte":
        return None
    try:
        return footprint_question(model, options.get("rank_ratio"), options.get("state_dtype"))
    except ValueError:
        return None
