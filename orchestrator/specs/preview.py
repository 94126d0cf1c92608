"""A preview: what a specification of any kind would mean if it were submitted; nothing is stored.

    whatever was sent ─► `validate_spec` ─► faults, or its shares (`estimates.py`) ─► runs, tokens, hours, memory

Hours and memory are estimates (`estimates.py`): by the pace of runs that were measured here, by footprints that were
counted before.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from orchestrator.kinds.registry import ExperimentSpec, validate_spec
from orchestrator.specs import estimates
from orchestrator.specs.estimates import CandidateMemory, CostEstimate, RunsOfModel
from orchestrator.specs.faults import Fault, faults
from orchestrator.specs.footprints import Footprints
from worker.records.result import Record

MEASURED_RUNS = 60
"""So many of a model's last runs make the estimate of what more of them cost."""


ONE_RUN = (
    "makes this the specification of one run, which `adapm-bench run` takes; an experiment has candidates and seeds"
)


class DesignPower(Record):
    """What differences a comparison can show, if its losses are as noisy as those of earlier ones of its workload."""

    seeds: int
    comparisons: int
    """Candidates beside the baseline: all of their intervals hold together."""
    paired_sd: float
    """Standard deviation of the difference of two candidates with the same seed, in the unit of the loss."""
    experiments: int
    """Earlier experiments that this is known from."""
    detectable_difference: float | None
    """The least true difference that is shown with 80 % probability; null with one seed, which shows nothing."""
    margin: float | None
    """The difference below which candidates count as equally good; null where none is given."""
    seeds_for_margin: int | None
    """Seeds that would show with 80 % probability that an equal candidate is as good within the margin; null where
    that takes more than a thousand."""
    seeds_for_difference: int | None = None
    """Seeds that would show a difference as large as the margin; null where that takes more than a thousand."""
    loss_unit: str


class Preview(Record):
    """What a specification would mean."""

    faults: tuple[Fault, ...] = ()
    missing: tuple[str, ...] = ()
    """A sentence for each thing that has to be prepared before it can be submitted."""
    kind: str | None = None
    """Which kind of experiment it is; null where there are faults, like everything below."""
    name: str | None = None
    runs: int | None = None
    """With tuning, at most; of a sweep its trials."""
    growing: bool = False
    """Whether the number of runs, and of what they do, is an upper bound: tuning may need fewer rates, a sweep stops
    trials early or runs out of its device-hours."""
    models: tuple[str, ...] = ()
    """What is trained, in the order of the runs."""
    steps: int | None = None
    """Of all runs."""
    tokens: int | None = None
    batch_unit: str = "tokens"
    """What `tokens` counts: samples, where nothing has tokens."""
    cost: CostEstimate | None = None
    """Null where no run of these models was ever measured here."""
    device_hours_budget: float | None = None
    """What a sweep gives itself: it begins nothing that would not fit any more."""
    memory: tuple[CandidateMemory, ...] = ()
    """Empty where the models' footprints were not counted yet."""
    power: DesignPower | None = None
    """Null where nothing is compared, and where no earlier comparison of this workload tells how noisy it is."""

    def is_acceptable(self) -> bool:
        """Whether it can be submitted as it is."""
        return not self.faults and not self.missing


def preview(
    fields: Any,
    *,
    missing: Callable[[ExperimentSpec], Sequence[str]],
    measured: RunsOfModel,
    footprints: Footprints,
    power: Callable[[ExperimentSpec], DesignPower | None],
) -> Preview:
    """Look at what would be the body of a submission, whatever it is."""
    if isinstance(fields, dict) and "optimizer" in fields and "candidates" not in fields:
        return Preview(faults=(Fault(pointer="/optimizer", allowed=ONE_RUN),))
    try:
        spec = validate_spec(fields)
    except ValidationError as error:
        return Preview(faults=faults(error.errors(include_url=False), ExperimentSpec))
    parts, budget = spec.shares(), spec.device_hours_budget()
    return Preview(
        missing=tuple(missing(spec)),
        kind=spec.kind,
        name=spec.name,
        runs=sum(part.runs for part in parts),
        growing=spec.may_need_less(),
        models=spec.models(),
        steps=sum(part.runs * part.workload.budget.steps for part in parts),
        tokens=sum(part.tokens() for part in parts),
        batch_unit=spec.workload.task.batch_unit,
        cost=_limit_hours(estimates.cost(parts, measured), budget),
        device_hours_budget=budget,
        memory=tuple(estimates.memory(parts, footprints)),
        power=power(spec),
    )


def _limit_hours(cost: CostEstimate | None, budget: float | None) -> CostEstimate | None:
    """Nothing takes longer than it may."""
    if cost is None or budget is None:
        return cost
    return cost.model_copy(update={"device_hours": min(cost.device_hours, budget)})
