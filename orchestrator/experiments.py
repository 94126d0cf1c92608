"""Experiments: what a user submits, and the runs that it expands into.

A comparison is optimizers × learning rates × seeds over one workload. Its expansion is a pure function with a fixed
order, so that the same specification always means the same runs.
"""

from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, field_validator, model_validator

from optim import catalog
from optim.catalog import Scalar
from worker.spec import (
    Fault,
    LearningRate,
    OptimizerSpec,
    Resources,
    RunSpec,
    Seed,
    Spec,
    Workload,
    one_of,
    option_faults,
    raise_faults,
)

Value = TypeVar("Value", int, float)

PLAIN_TEXT = r"^[^\x00-\x1f\x7f-\x9f\s](?:[^\x00-\x1f\x7f-\x9f]*[^\x00-\x1f\x7f-\x9f\s])?$"
"""No control characters, no blank at either end: names are shown in terminals, and PostgreSQL refuses NUL."""


MAX_RUNS = 10_000
"""One experiment's cap: 10,000 runs keep the submitting transaction below a few seconds."""


class Candidate(Spec):
    """One optimizer of a comparison, with its own learning-rate grid."""

    optimizer: str
    learning_rates: Annotated[tuple[LearningRate, ...], Field(min_length=1, max_length=64)]
    options: dict[str, Scalar] = Field(default_factory=dict)
    label: Annotated[str, Field(min_length=1, max_length=60, pattern=PLAIN_TEXT)] | None = None
    """The name in tables; tells two candidates with the same optimizer apart. Default: the optimizer's name."""

    @field_validator("optimizer")
    @classmethod
    def _known_optimizer(cls, value: str) -> str:
        return one_of("optimizer", value, catalog.names())

    @field_validator("learning_rates")
    @classmethod
    def _distinct_rates(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        return distinct("learning rate", value)

    @model_validator(mode="after")
    def _known_options(self) -> Self:
        raise_faults(type(self).__name__, option_faults(self.optimizer, self.options))
        return self

    def name(self) -> str:
        """What tables, figures and colours call this candidate."""
        return self.label or self.optimizer


class ComparisonSpec(Spec):
    """Which optimizer is best on this workload, at which learning rate, how sure."""

    kind: Literal["comparison"] = "comparison"
    name: Annotated[str, Field(min_length=1, max_length=120, pattern=PLAIN_TEXT)]
    workload: Workload
    candidates: Annotated[tuple[Candidate, ...], Field(min_length=1, max_length=64)]
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1, max_length=256)]
    baseline: str | None = None
    """The candidate that the others are held against, by name. Default: the first one."""
    resources: Resources = Resources()
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = 0
    """Waiting runs of higher priority start first; running ones are left alone."""

    @field_validator("seeds")
    @classmethod
    def _distinct_seeds(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return distinct("seed", value)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
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
        if (count := self.run_count()) > MAX_RUNS:
            allowed = f"makes {count} runs; at most {MAX_RUNS} in one experiment"
            faults.append((("candidates",), len(self.candidates), allowed))
        return faults

    def run_count(self) -> int:
        """How many runs the expansion has."""
        return sum(len(candidate.learning_rates) for candidate in self.candidates) * len(self.seeds)

    def baseline_name(self) -> str:
        """The candidate that the others are held against."""
        return self.baseline or self.candidates[0].name()


ExperimentSpec = ComparisonSpec
"""What `POST /v1/experiments` takes; sweeps and scaling experiments will join by their `kind`."""


class PlannedRun(Spec):
    """One run of an expansion, with the candidate that it belongs to."""

    candidate: str
    spec: RunSpec


def expand(spec: ComparisonSpec) -> tuple[PlannedRun, ...]:
    """All runs of a comparison: seed by seed, so that early results already span every candidate."""
    return tuple(
        PlannedRun(
            candidate=candidate.name(),
            spec=RunSpec(
                workload=spec.workload,
                optimizer=OptimizerSpec(name=candidate.optimizer, lr=lr, options=candidate.options),
                seed=seed,
                resources=spec.resources,
            ),
        )
        for seed in spec.seeds
        for position in range(max(len(candidate.learning_rates) for candidate in spec.candidates))
        for candidate in spec.candidates
        for lr in candidate.learning_rates[position : position + 1]
    )


def distinct(noun: str, values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return `values` if no one repeats; else a fault that names the repeated one."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"{noun} {value} is given twice; each must differ")
    return values
