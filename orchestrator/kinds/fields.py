"""Fields that specifications of several kinds have, with what they mean and what is allowed."""

from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field

from optim import catalog
from optim.catalog import Scalar
from orchestrator.names import CandidateName
from worker.schema import Spec, SpecFault, omit_default
from worker.spec.parts import DecayShare, FinalLrRatio, ScheduleShape
from worker.spec.run import LearningRate, OptimizerName, Rules, Seed, Workload

MOST_SEEDS = 256
"""The most seeds of an experiment."""

Value = TypeVar("Value", int, float)


def require_distinct(noun: str, values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return `values` if no one repeats; else a fault that names the repeated one."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"{noun} {value} is given twice; each must differ")
    return values


_DISTINCT_SEEDS = AfterValidator(partial(require_distinct, "seed"))
LearningRates = Annotated[
    tuple[LearningRate, ...],
    Field(min_length=1, max_length=64),
    AfterValidator(partial(require_distinct, "learning rate")),
]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1, max_length=MOST_SEEDS), _DISTINCT_SEEDS]
TuningSeeds = Annotated[tuple[Seed, ...], Field(min_length=1, max_length=64), _DISTINCT_SEEDS]
LimitSeconds = Annotated[float, Field(strict=True, gt=0, le=1e9)]


class OwnSchedule(Spec):
    """A candidate's own fields of `workload.schedule`; the others are the workload's."""

    shape: ScheduleShape | None = omit_default(None)
    final_lr_ratio: FinalLrRatio | None = omit_default(None)
    decay_share: DecayShare | None = omit_default(None)

    def __str__(self) -> str:
        """Return `linear, to 0 of the rate`."""
        parts: list[str] = [self.shape] if self.shape else []
        if self.decay_share is not None:
            parts.append(f"over the last {self.decay_share:.0%} of the steps")
        if self.final_lr_ratio is not None:
            parts.append(f"to {self.final_lr_ratio:g} of the rate")
        return ", ".join(parts)

    def faults(self, workload: Workload, location: tuple[str | int, ...]) -> list[SpecFault]:
        """Return a fault, located there, if the decay share does not apply to the shape."""
        if self.decay_share is None or (self.shape or workload.schedule.shape) == "wsd":
            return []
        allowed = "says when `wsd` decays; leave it out, or give the candidate the shape wsd"
        return [((*location, "decay_share"), self.decay_share, allowed)]


class NamedOptimizer(Spec):
    """The fields that candidates of comparisons and of sweeps share."""

    optimizer: OptimizerName
    """A name of the catalog: `adapm-bench optimizers`."""
    options: dict[str, Scalar] = Field(default_factory=dict)
    """Options that differ from the optimizer's defaults."""
    schedule: OwnSchedule | None = omit_default(None)
    """Schedule after the warm-up; null: the workload's, but a constant rate for schedule-free AdamW."""
    rules: Rules = omit_default(())
    """Moments of some blocks instead of the optimizer's plan: `"*.mlp.*.weight=rank:8"`; later rules win."""
    label: CandidateName | None = None
    """The candidate's name in tables; needed if an optimizer occurs twice. Default: the optimizer's name."""

    def name(self) -> str:
        """Return the candidate's name in tables, figures and colours."""
        return self.label or self.optimizer

    def title(self) -> str:
        """Return the candidate's name in sentences."""
        entry = catalog.find(self.optimizer)
        return self.label or (entry.title if entry else self.optimizer)


def write_out_schedule(fields: Any) -> Any:
    """Return a candidate's fields with the schedule that its optimizer needs, where they name none: schedule-free
    AdamW's rate stays constant (Defazio et al., "The Road Less Scheduled", 2024)."""
    if not isinstance(fields, dict) or fields.get("schedule") is not None:
        return fields
    optimizer = fields.get("optimizer")
    if not isinstance(optimizer, str) or not catalog.knows(optimizer):
        return fields
    needs_none = catalog.Need.CONSTANT_RATE in catalog.entry(optimizer).needs
    return fields | {"schedule": {"shape": "constant"}} if needs_none else fields
