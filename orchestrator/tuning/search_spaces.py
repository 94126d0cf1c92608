"""Search spaces: where one hyperparameter may be looked for, as typed records, and what can be asked of them. Pure.

    log-uniform | uniform   a number between two bounds          choice   one of some values
    integer                 a whole number between two bounds    catalog  what the optimizer's own entry suggests

A grid takes `points` values of each range, evenly spaced (on a log-uniform range by ratio) with both ends among them.
"""

import math
from collections.abc import Iterable
from random import Random
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from optim.catalog.records import Option, Scalar
from worker.schema import Flag, Spec, SpecFault, raise_faults

Bound = Annotated[float, Field(strict=True, ge=-1e12, le=1e12)]
Points = Annotated[int, Field(strict=True, ge=1, le=1_000)]

RATE_FACTOR = 8.0
"""The catalog's range of learning rates reaches so far to either side of the grid's centre: three doublings."""
OPTION_FACTOR = 10.0
"""The catalog's range of a positive option: a decade to either side of its default, within the option's bounds."""
COUNT_FACTOR = 4
"""The same for whole numbers, which are ranks, gaps and iterations."""
DIGITS = 12
"""Grid values are rounded to so many digits: 0.001 × 10 is 0.01 in every table."""


class LogUniform(Spec):
    """A positive number whose logarithm is uniform: learning rates, decays, thresholds."""

    kind: Literal["log-uniform"] = "log-uniform"
    low: Annotated[float, Field(strict=True, gt=0, le=1e12)]
    high: Annotated[float, Field(strict=True, gt=0, le=1e12)]
    points: Points = 5

    @model_validator(mode="after")
    def _require_order(self) -> Self:
        raise_faults(type(self).__name__, _order_faults(self.low, self.high))
        return self


class Uniform(Spec):
    """A number that is uniform between its bounds."""

    kind: Literal["uniform"] = "uniform"
    low: Bound
    high: Bound
    points: Points = 5

    @model_validator(mode="after")
    def _require_order(self) -> Self:
        raise_faults(type(self).__name__, _order_faults(self.low, self.high))
        return self


class Integer(Spec):
    """A whole number between its bounds, both included."""

    kind: Literal["integer"] = "integer"
    low: Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
    high: Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
    log: Flag = False
    """Uniform in its logarithm; `low` must then be at least 1."""
    points: Points = 5

    @model_validator(mode="after")
    def _require_order(self) -> Self:
        faults = _order_faults(self.low, self.high)
        if self.log and self.low < 1:
            faults.append((("low",), self.low, "must be at least 1 where log is true"))
        raise_faults(type(self).__name__, faults)
        return self


class Choice(Spec):
    """A choice of some values."""

    kind: Literal["choice"] = "choice"
    values: Annotated[tuple[Scalar, ...], Field(min_length=1, max_length=64)]

    @model_validator(mode="after")
    def _require_distinct(self) -> Self:
        faults: list[SpecFault] = []
        for position, value in enumerate(self.values):
            if any(_is_same(value, earlier) for earlier in self.values[:position]):
                faults.append((("values", position), value, "is given twice; each must differ"))
        raise_faults(type(self).__name__, faults)
        return self


class FromCatalog(Spec):
    """The range of the optimizer's entry: around its grid's centre, an option's default, or its choices."""

    kind: Literal["catalog"] = "catalog"


Domain = Annotated[LogUniform | Uniform | Integer | Choice | FromCatalog, Field(discriminator="kind")]
Range = LogUniform | Uniform | Integer | Choice
"""A domain that says its values itself."""


def suggested_rates(centre: float) -> LogUniform:
    """Return the catalog's range of learning rates."""
    return LogUniform(low=_round(centre / RATE_FACTOR), high=_round(centre * RATE_FACTOR), points=7)


def suggested_range(option: Option) -> Range | None:
    """Return the range that an option's entry suggests; None if its default says nothing of a scale."""
    if option.kind == "bool":
        return Choice(values=(True, False))
    if option.kind == "choice":
        return Choice(values=option.choices)
    default = option.default
    if isinstance(default, bool) or not isinstance(default, int | float) or default <= 0:
        return None
    if option.kind == "int":
        low, high = max(1, int(default) // COUNT_FACTOR), int(default) * COUNT_FACTOR
        low, high = max(low, math.ceil(option.minimum or low)), min(high, int(option.maximum or high))
        return Integer(low=low, high=high, log=True) if low < high else None
    if option.exclusive_maximum and option.maximum == 1.0:
        # A decay rate b averages over 1 / (1 - b) steps: a decade of steps to either side.
        slack = OPTION_FACTOR * (1 - default), (1 - default) / OPTION_FACTOR
        return Uniform(
            low=max(_lowest_value(option, default), round(1 - slack[0], DIGITS)), high=round(1 - slack[1], DIGITS)
        )
    low_end, high_end = default / OPTION_FACTOR, default * OPTION_FACTOR
    bounded = max(low_end, _lowest_value(option, default)), min(high_end, option.maximum or high_end)
    return LogUniform(low=_round(bounded[0]), high=_round(bounded[1])) if bounded[0] < bounded[1] else None


def _lowest_value(option: Option, default: float) -> float:
    """Return the lowest value to suggest: the option's minimum, or a little above it where that is not allowed
    itself."""
    minimum = option.minimum or 0.0
    return minimum + (default - minimum) / OPTION_FACTOR if option.exclusive_minimum else minimum


def contains(domain: Range, value: Scalar) -> bool:
    """Return whether the domain can give that value."""
    if isinstance(domain, Choice):
        return any(_is_same(value, choice) for choice in domain.values)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if isinstance(domain, Integer) and not isinstance(value, int):
        return False
    return domain.low <= value <= domain.high


def draw(domain: Range, random: Random) -> Scalar:
    """Return a random value."""
    if isinstance(domain, Choice):
        return domain.values[random.randrange(len(domain.values))]
    if isinstance(domain, Integer):
        if not domain.log:
            return random.randint(domain.low, domain.high)
        # Each whole number has the piece of the logarithmic axis that lies half a step around it.
        spot = math.exp(random.uniform(math.log(domain.low - 0.5), math.log(domain.high + 0.5)))
        return min(max(round(spot), domain.low), domain.high)
    if isinstance(domain, LogUniform):
        spot = math.exp(random.uniform(math.log(domain.low), math.log(domain.high)))
        return min(max(spot, domain.low), domain.high)
    return random.uniform(domain.low, domain.high)


def grid(domain: Range) -> tuple[Scalar, ...]:
    """Return the values that a grid takes, ascending, or as they are listed."""
    if isinstance(domain, Choice):
        return domain.values
    if domain.low == domain.high:
        return (domain.low,)
    if domain.points == 1:
        middle = _value_at(domain, 0.5)
        return (round(middle) if isinstance(domain, Integer) else _round(middle),)
    shares = [index / (domain.points - 1) for index in range(domain.points)]
    spots = [_value_at(domain, share) for share in shares]
    if isinstance(domain, Integer):
        return tuple(dict.fromkeys(round(spot) for spot in spots))
    return (domain.low, *(_round(spot) for spot in spots[1:-1]), domain.high)


def grid_size(domains: Iterable[Range]) -> int:
    """Return the number of points of a grid over these ranges."""
    return math.prod(len(grid(domain)) for domain in domains)


def settings_count(domains: Iterable[Range]) -> float:
    """Return the number of settings of these ranges; infinite if one of them is continuous."""

    def count(domain: Range) -> float:
        if isinstance(domain, Choice):
            return len(domain.values)
        return domain.high - domain.low + 1 if isinstance(domain, Integer) else math.inf

    return math.prod(map(count, domains))


def ends(domain: Range) -> tuple[Scalar, ...]:
    """Return the values that decide whether all of them are allowed: both bounds, or each choice."""
    return domain.values if isinstance(domain, Choice) else (domain.low, domain.high)


def share_of(domain: Range, value: Scalar) -> float:
    """Return the position of a value between the domain's ends, from 0 to 1, on the domain's own scale."""
    if isinstance(domain, Choice):
        index = next((index for index, choice in enumerate(domain.values) if _is_same(value, choice)), 0)
        return index / (len(domain.values) - 1) if len(domain.values) > 1 else 0.5
    assert isinstance(value, int | float)  # what a range gave
    low, high, point = float(domain.low), float(domain.high), float(value)
    if isinstance(domain, LogUniform) or (isinstance(domain, Integer) and domain.log):
        low, high, point = math.log(low), math.log(high), math.log(point)
    return (point - low) / (high - low)


def _order_faults(low: float, high: float) -> list[SpecFault]:
    return [] if low < high else [(("high",), high, f"must be above low = {low:g}")]


def _value_at(domain: LogUniform | Uniform | Integer, share: float) -> float:
    if isinstance(domain, LogUniform) or (isinstance(domain, Integer) and domain.log):
        return float(domain.low * (domain.high / domain.low) ** share)
    return float(domain.low + (domain.high - domain.low) * share)


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _is_same(value: Scalar, other: Scalar) -> bool:
    """Return whether both are equal and of one type: True is not 1 here, as it is in Python."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)
