"""The design of a comparison: the facts of a specification that its runs are judged by.

A kind makes it (`ComparisonSpec.design()`), external runs have one of their own, and `orchestrator/analysis` reads no
other thing of a specification.
"""

from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.tuning.ranges import Axis
from orchestrator.tuning.tuner import Tuner

Equal = Literal["tokens", "device_hours"]
"""The budget that the candidates of a comparison share."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A size at a budget of an experiment that has several: a comparison by itself."""

    model: str
    steps: int
    parameters: int
    tokens: int
    """The tokens of each run."""

    @property
    def key(self) -> str:
        """Return the cell's key in addresses: `gpt2-tiny-200`."""
        return f"{self.model}-{self.steps}"

    def holds(self, model: str, steps: int) -> bool:
        """Return whether a run of that model and so many steps is one of its runs."""
        return (self.model, self.steps) == (model, steps)


@dataclass(frozen=True, kw_only=True)
class CandidateDesign:
    """A candidate of a comparison."""

    name: str
    """The name in tables, figures and colours."""
    title: str
    """The name in sentences."""
    optimizer: str
    own_rate: float
    """The learning rate at which tuning starts."""
    learning_rates: tuple[float, ...] = ()
    """The rates that all run; none if a search chooses them."""
    tuners: tuple[Tuner, ...] = ()
    """The tuning of each replicate; none if nothing is tuned."""


@dataclass(frozen=True, kw_only=True)
class ComparisonDesign:
    """The compared candidates, their seeds and unit."""

    candidates: tuple[CandidateDesign, ...]
    baseline: str
    """The name of the candidate that the others are compared with."""
    seeds: tuple[int, ...]
    """The judging seeds."""
    tuning_seeds: tuple[int, ...] = ()
    """The seeds that choose the settings; none if nothing is tuned."""
    searched: tuple[Axis, ...] = ()
    """The searched hyperparameters; empty if the rate alone is tuned."""
    replicates: int = 1
    """The number of times that everything is tuned and judged."""
    first_seeds: int | None = None
    """The number of `seeds` in the first look; None if all run at once."""
    all_pairs: bool = False
    """Whether every candidate is compared with every other one."""
    equal: Equal = "tokens"
    """The budget that all candidates share."""
    margin: float | None = None
    """A difference below it does not matter; None if there is no such bound."""
    loss_name: str = "loss"
    loss_unit: str = ""
    """The unit behind a loss in prose: " nats", or nothing."""
    validation_tokens: int | None = None
    """The tokens of the validation text, which all runs share; None if the choice of it adds no known error."""

    @property
    def is_tuned(self) -> bool:
        """Return whether settings are chosen on seeds of their own first."""
        return bool(self.tuning_seeds)

    @property
    def sample(self) -> str:
        """Return the paired things, in words."""
        return "replicate" if self.replicates > 1 else "seed"

    @property
    def comparisons(self) -> int:
        """Return the number of tested differences, whose intervals are simultaneous."""
        rivals = len(self.candidates) - 1
        return rivals * len(self.candidates) // 2 if self.all_pairs else rivals

    def hold_against(self, name: str) -> "ComparisonDesign":
        """Return the same with another candidate as its baseline, chosen once there are results: every pair then counts
        as tested, since any of them could have been chosen."""
        return replace(self, baseline=name, all_pairs=True)
