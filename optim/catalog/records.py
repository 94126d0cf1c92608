"""Frozen records of an optimizer in the catalog and its typed options."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from ..nearest import hint
from ..str_enum import StrEnum

Scalar = bool | int | float | str | None
OptionKind = Literal["float", "int", "bool", "choice"]


@dataclass(frozen=True, kw_only=True)
class Option:
    """A typed option of an optimizer, with its bounds and default."""

    name: str
    kind: OptionKind
    default: Scalar
    meaning: str
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    choices: tuple[str, ...] = ()
    nullable: bool = False
    depends_on_device: bool = False
    """Whether some devices know no difference between its values."""

    def fault(self, value: object) -> str | None:
        """Say what is allowed where `value` is not; None if it is fine."""
        is_allowed = self.nullable if value is None else self._admits(value)
        return None if is_allowed else f"must be {self.allowed_values()}"

    def allowed_values(self) -> str:
        """Return the allowed values in words: `a number in [0, 1)`, `one of subspace, svd`."""
        null = " or null" if self.nullable else ""
        if self.kind == "bool":
            return "true or false" + null
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices) + null
        noun = "a whole number" if self.kind == "int" else "a number"
        return noun + self._interval() + null

    def _admits(self, value: object) -> bool:
        if self.kind == "bool":
            return isinstance(value, bool)
        if self.kind == "choice":
            return isinstance(value, str) and value in self.choices
        if isinstance(value, bool) or not isinstance(value, int if self.kind == "int" else int | float):
            return False
        low, high = self.minimum, self.maximum
        return (
            abs(value) <= sys.float_info.max  # not NaN, and no whole number that no float can be
            and (low is None or value > low or (value == low and not self.exclusive_minimum))
            and (high is None or value < high or (value == high and not self.exclusive_maximum))
        )

    def _interval(self) -> str:
        if self.minimum is None and self.maximum is None:
            return ""
        low = "(-inf" if self.minimum is None else f"{'(' if self.exclusive_minimum else '['}{self.minimum:g}"
        high = "inf)" if self.maximum is None else f"{self.maximum:g}{')' if self.exclusive_maximum else ']'}"
        return f" in {low}, {high}"


class Need(StrEnum):
    """A duty of a training loop besides calling `step`."""

    MODES = "modes"
    """Call its `eval()` before the weights are evaluated and its `train()` before the next step
    (`optim/train_eval_weights.py`)."""
    CONSTANT_RATE = "constant-rate"
    """Leave the learning rate as it is after the warm-up: the method replaces the decay."""


class Claim(StrEnum):
    """A property of an optimizer's steps without weight decay that its paper states, too; `adapm-bench optimizers
    --check` tests it."""

    STEADY = "steady"
    """Under a constant gradient every step is the same: moments are corrected for their bias."""
    SCALE_FREE = "scale-free"
    """Gradients a thousand times as large give the same steps."""
    FRESH_START = "fresh-start"
    """A weight whose first gradient comes late is stepped as if it came first."""
    NEURONS_APART = "neurons-apart"
    """The weights of an MLP's neuron move by their own gradients alone."""


@dataclass(frozen=True, kw_only=True)
class OptimizerEntry:
    """An optimizer of the catalog."""

    name: str
    """The name in specs: lower case, hyphens."""
    title: str
    """The name in tables and figures."""
    factory: str
    """Import string `module:callable`, of this package where it begins with a dot; the callable takes
    `(model, lr=…, **options)`."""
    learning_rate: float
    """Centre of the learning-rate grid."""
    options: tuple[Option, ...]
    summary: str
    paper: str
    licence: str
    needs: frozenset[Need] = frozenset()
    claims: frozenset[Claim] = frozenset()
    elementwise: bool = False
    """Whether each weight moves by its own gradient alone: then parameters may be sharded by FSDP2 (`sharding.py`)."""
    has_more_options: bool = False
    """Whether it takes options that are not listed here, which are known when it is built."""
    package: str | None = None
    """The package that it imports besides torch."""
    extra: str | None = None
    """The extra of this distribution that installs the package."""

    @property
    def is_available(self) -> bool:
        """Return whether the required package is installed, without importing it."""
        return self.package is None or find_spec(self.package) is not None

    @property
    def has_plan(self) -> bool:
        """Return whether the optimizer follows a block plan: such optimizers have an option for unplaced weights."""
        return self.option("unknown") is not None

    def sharding_fault(self, options: Mapping[str, object]) -> str | None:
        """Return the reason why the optimizer cannot train a model sharded by FSDP2; None if it can."""
        if not (self.elementwise or self.has_plan):
            return f"{self.name} needs whole parameters"
        solver = self.option("solver")
        if solver is not None and options.get("solver", solver.default) == "svd":
            return f"{self.name}'s solver svd needs whole parameters"
        return None

    def option(self, name: str) -> Option | None:
        """Return the option of that name, or None."""
        return next((option for option in self.options if option.name == name), None)

    def faults(self, options: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        """Yield (option name, what is allowed) for every option that this optimizer would refuse."""
        for name, value in options.items():
            if (known_option := self.option(name)) is not None:
                if (fault := known_option.fault(value)) is not None:
                    yield name, fault
            elif not self.has_more_options:
                yield name, f"unknown option of {self.name}; {hint(name, (option.name for option in self.options))}"

    def defaults(self) -> dict[str, Scalar]:
        """Return every option at its default."""
        return {option.name: option.default for option in self.options}
