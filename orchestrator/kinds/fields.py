"""Fields that specifications of several kinds have, with what they mean and what is allowed."""

from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field

from worker.spec.run import LearningRate, Seed

Value = TypeVar("Value", int, float)


def require_distinct(noun: str, values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return `values` if no one repeats; else a fault that names the repeated one."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"{noun} {value} is given twice; each must differ")
    return values


def _require_distinct_rates(values: tuple[float, ...]) -> tuple[float, ...]:
    return require_distinct("learning rate", values)


def _require_distinct_seeds(values: tuple[int, ...]) -> tuple[int, ...]:
    return require_distinct("seed", values)


LearningRates = Annotated[
    tuple[LearningRate, ...], Field(min_length=1, max_length=64), AfterValidator(_require_distinct_rates)
]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1, max_length=256), AfterValidator(_require_distinct_seeds)]
TuningSeeds = Annotated[tuple[Seed, ...], Field(min_length=1, max_length=64), AfterValidator(_require_distinct_seeds)]
LimitSeconds = Annotated[float, Field(strict=True, gt=0, le=1e9)]
Priority = Annotated[
    int,
    Field(
        strict=True,
        ge=-100,
        le=100,
        description="Waiting runs of higher priority start first; running ones are left alone.",
    ),
]
