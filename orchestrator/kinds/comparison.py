"""Comparisons: what a user asks for, and the runs that it expands into.

A comparison is optimizers × learning rates × seeds over one workload; with `tuning`, optimizers × learning rates ×
tuning seeds first, then the winners × seeds (`tuning.py`). Its expansion is a pure function with a
fixed order, so that
the same specification always means the same runs.
"""

from typing import Annotated, ClassVar, Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from optim import catalog
from optim.catalog import Scalar
from orchestrator.kinds.experiment import Experiment, PlannedRun, Share
from orchestrator.names import CandidateName, Name
from worker.spec.run import (
    CountOrZero,
    Fault,
    Flag,
    LearningRate,
    OptimizerSpec,
    Resources,
    Rules,
    RunSpec,
    Seed,
    Spec,
    Workload,
    is_stored,
    omit_default,
    option_faults,
    raise_faults,
    require_known,
)

Value = TypeVar("Value", int, float)

LimitSeconds = Annotated[float, Field(strict=True, gt=0, le=1e9)]

EQUIVALENCE_MARGIN = 0.01
"""Nats. Optimizers that were tuned alike differ by 0.002 to 0.013 on our workloads: less is no reason to choose one."""
TUNING_SEEDS = (1001, 1002, 1003)
"""Of phase 1; far from the seeds that people number their judging runs by."""
EXTEND_GRID = 4
"""An optimum up to four steps beyond a grid is found; each step costs a run for each tuning seed."""
MAX_RUNS = 10_000
"""One experiment's cap: 10,000 runs keep the submitting transaction below a few seconds."""


class Candidate(Spec):
    """One optimizer of a comparison, with its own learning-rate grid."""

    optimizer: str
    learning_rates: Annotated[tuple[LearningRate, ...], Field(min_length=1, max_length=64)]
    options: dict[str, Scalar] = Field(default_factory=dict)
    warmup_steps: CountOrZero | None = omit_default(None)
    """Warm-up of this candidate, which is a hyperparameter like others; null is the workload's."""
    rules: Rules = omit_default(())
    """What some blocks keep instead of what the optimizer's plan says."""
    label: CandidateName | None = None
    """The name in tables; tells two candidates with the same optimizer apart. Default: the optimizer's name."""

    @field_validator("optimizer")
    @classmethod
    def _known_optimizer(cls, value: str) -> str:
        return value if is_stored() or catalog.knows(value) else require_known("optimizer", value, catalog.names())

    @field_validator("learning_rates")
    @classmethod
    def _distinct_rates(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        return distinct("learning rate", value)

    @model_validator(mode="after")
    def _known_options(self) -> Self:
        if not is_stored():
            raise_faults(type(self).__name__, option_faults(self.optimizer, self.options, self.rules))
        return self

    def name(self) -> str:
        """What tables, figures and colours call this candidate."""
        return self.label or self.optimizer


class Tuning(Spec):
    """Two phases: each candidate's grid on seeds of its own, then the lowest rate of each on the seeds that count."""

    seeds: Annotated[tuple[Seed, ...], Field(min_length=1, max_length=64)] = TUNING_SEEDS
    """Seeds of phase 1; none of them may be a seed of phase 2, which it would flatter. With one, nothing is known of
    how sure the choice is."""
    extend_grid: Annotated[int, Field(strict=True, ge=0, le=16)] = EXTEND_GRID
    """A candidate whose best rate is at an edge of its grid gets up to so many rates more beyond it, one after another
    until the best one is interior; one whose best rate lies beside a rate that diverged gets them in between. The table
    says who did."""

    @field_validator("seeds")
    @classmethod
    def _distinct_seeds(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return distinct("seed", value)


class ComparisonSpec(Experiment):
    """Which optimizer is best on this workload, at which learning rate, how sure."""

    title: ClassVar[str] = "comparison"

    kind: Literal["comparison"] = "comparison"
    name: Name
    workload: Workload
    candidates: Annotated[tuple[Candidate, ...], Field(min_length=1, max_length=64)]
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1, max_length=256)]
    baseline: str | None = None
    """The candidate that the others are held against, by name. Default: the first one."""
    tuning: Tuning | None = None
    """Tune first, then run the seeds at each winner only. Default: every seed at every rate."""
    unequal_grids: Flag = False
    """Allow candidates with different numbers of learning rates; the table then gives no verdict on them."""
    equivalence_margin: Annotated[float, Field(strict=True, gt=0, le=1e6)] | None = omit_default(None)
    """A difference below it is none that matters: a candidate whose whole interval lies within is as good as the
    baseline. Default: 0.01 nats; none for tasks whose loss has no unit."""
    resources: Resources = Resources()
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = 0
    """Waiting runs of higher priority start first; running ones are left alone."""
    max_run_seconds: LimitSeconds | None = omit_default(None)
    """Time that one run may hold its device, over all of its attempts; then it is stopped, with a checkpoint."""
    deadline_seconds: LimitSeconds | None = omit_default(None)
    """Time from the submission; what has not ended by then is stopped, with a checkpoint, or never begun."""

    @field_validator("seeds")
    @classmethod
    def _distinct_seeds(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return distinct("seed", value)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not is_stored():
            raise_faults(type(self).__name__, self._inconsistencies())
        return self

    def _inconsistencies(self) -> list[Fault]:
        faults: list[Fault] = []
        names = [candidate.name() for candidate in self.candidates]
        for position, name in enumerate(names):
            if name in names[:position]:
                allowed = f"must differ from the other candidates' names; give it a label other than {name!r}"
                faults.append((("candidates", position, "label"), name, allowed))
        if self.baseline is not None and self.baseline not in names:
            faults.append((("baseline",), self.baseline, f"must be one of {', '.join(names)}"))
        faults += self._unfair()
        faults += self.resources.misfits(self.workload)
        if (count := self.run_count()) > MAX_RUNS:
            allowed = f"makes {count} runs; at most {MAX_RUNS} in one experiment"
            faults.append((("candidates",), len(self.candidates), allowed))
        for position, candidate in enumerate(self.candidates):
            if (candidate.warmup_steps or 0) >= (steps := self.workload.budget.steps):
                where = ("candidates", position, "warmup_steps")
                faults.append((where, candidate.warmup_steps, f"must be below workload.budget.steps = {steps}"))
        return faults

    def _unfair(self) -> list[Fault]:
        """What would make the answer unfair: unequal trial budgets, and rates chosen on the seeds that judge them."""
        faults: list[Fault] = []
        most = max(len(candidate.learning_rates) for candidate in self.candidates)
        for position, candidate in enumerate(self.candidates):
            count = len(candidate.learning_rates)
            if count < most and not self.unequal_grids:
                allowed = f"has {count} of the {most} rates that others get; give all the same, or set unequal_grids"
                faults.append((("candidates", position, "learning_rates"), list(candidate.learning_rates), allowed))
        if self.tuning and (shared := sorted({*self.tuning.seeds} & {*self.seeds})):
            allowed = (
                f"must share no seed with seeds, which has {', '.join(map(str, shared))} too: it would be flattered"
            )
            faults.append((("tuning", "seeds"), list(self.tuning.seeds), allowed))
        return faults

    def run_count(self) -> int:
        """How many runs there will be; with tuning, at most."""
        return sum(self._runs_of_candidate(candidate) for candidate in self.candidates)

    def first_runs(self) -> tuple[PlannedRun, ...]:
        """Seed by seed, so that early results already span every candidate: all of them, or those of phase 1 where it
        tunes first."""
        return tuple(
            planned_run(self, candidate, lr, seed)
            for seed in (self.tuning.seeds if self.tuning else self.seeds)
            for position in range(max(len(candidate.learning_rates) for candidate in self.candidates))
            for candidate in self.candidates
            for lr in candidate.learning_rates[position : position + 1]
        )

    def grows(self) -> bool:
        """Where it tunes first: the winners' runs are added then."""
        return self.tuning is not None

    def may_need_less(self) -> bool:
        """Where grids are extended: some need no rate beyond their edge."""
        return self.tuning is not None and self.tuning.extend_grid > 0

    def shares(self) -> tuple[Share, ...]:
        """One a candidate."""
        return tuple(
            Share(
                candidate=candidate.name(),
                optimizer=candidate.optimizer,
                options=candidate.options,
                searched=frozenset(),
                has_rules=bool(candidate.rules),
                workload=self.workload,
                runs=self._runs_of_candidate(candidate),
            )
            for candidate in self.candidates
        )

    def _runs_of_candidate(self, candidate: Candidate) -> int:
        rates = len(candidate.learning_rates)
        if self.tuning is None:
            return rates * len(self.seeds)
        return (rates + self.tuning.extend_grid) * len(self.tuning.seeds) + len(self.seeds)

    def origin_of_rates(self) -> str | None:
        """A sentence on where the rates are from, where they are not from grids of this comparison's own."""
        return None

    def equivalence(self) -> float | None:
        """The margin that counts: 0.01 where none is given and losses are nats, none where they have no unit."""
        if self.equivalence_margin is None and self.workload.task.loss_unit:
            return EQUIVALENCE_MARGIN
        return self.equivalence_margin

    def baseline_name(self) -> str:
        """The candidate that the others are held against."""
        return self.baseline or self.candidates[0].name()


def planned_run(spec: ComparisonSpec, candidate: Candidate, lr: float, seed: int) -> PlannedRun:
    """One run of a comparison."""
    return PlannedRun(
        candidate=candidate.name(),
        spec=RunSpec(
            workload=spec.workload if candidate.warmup_steps is None else _warmed_up(spec.workload, candidate),
            optimizer=OptimizerSpec(name=candidate.optimizer, lr=lr, options=candidate.options, rules=candidate.rules),
            seed=seed,
            resources=spec.resources,
        ),
    )


def _warmed_up(workload: Workload, candidate: Candidate) -> Workload:
    schedule = workload.schedule.model_copy(update={"warmup_steps": candidate.warmup_steps})
    return workload.model_copy(update={"schedule": schedule})


def distinct(noun: str, values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return `values` if no one repeats; else a fault that names the repeated one."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"{noun} {value} is given twice; each must differ")
    return values
