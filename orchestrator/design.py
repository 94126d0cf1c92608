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
    """One size at one budget of an experiment that has several: a comparison by itself."""

    model: str
    budget: int
    """Its index among the budgets."""
    steps: int
    parameters: int
    tokens: int
    """Of each run."""

    @property
    def key(self) -> str:
        """What addresses call it: `gpt2-tiny-200`."""
        return f"{self.model}-{self.steps}"

    def holds(self, model: str, steps: int) -> bool:
        """Whether a run of that model and so many steps is one of its runs."""
        return (self.model, self.steps) == (model, steps)


@dataclass(frozen=True, kw_only=True)
class CandidateDesign:
    """One candidate of a comparison."""

    name: str
    """What tables, figures and colours call it."""
    title: str
    """What sentences call it."""
    optimizer: str
    own_rate: float
    """The learning rate at which tuning starts."""
    learning_rates: tuple[float, ...] = ()
    """The rates that all run; none where a search chooses them."""
    tuners: tuple[Tuner, ...] = ()
    """The tuning of each replicate; none where nothing is tuned."""


@dataclass(frozen=True, kw_only=True)
class ComparisonDesign:
    """What is compared with what, on which seeds, in which unit."""

    candidates: tuple[CandidateDesign, ...]
    baseline: str
    """The name of the candidate that the others are held against."""
    seeds: tuple[int, ...]
    """Those that judge."""
    tuning_seeds: tuple[int, ...] = ()
    """Those that choose the settings; none where nothing is tuned."""
    searched: tuple[Axis, ...] = ()
    """What a search tunes; empty where the rate alone is tuned."""
    replicates: int = 1
    """How many times everything is tuned and judged."""
    first_seeds: int | None = None
    """How many of `seeds` the first look takes; None where all run at once."""
    all_pairs: bool = False
    """Whether every candidate is held against every other one."""
    equal: Equal = "tokens"
    """The budget that all candidates share."""
    margin: float | None = None
    """A difference below it does not matter; None where there is no such bound."""
    loss_name: str = "loss"
    loss_unit: str = ""
    """What follows a loss in prose: " nats", or nothing."""
    validation_tokens: int | None = None
    """Of the validation text, which all runs share; None where the choice of it adds no known error."""
    origin_of_rates: str | None = None
    """A sentence on where learning rates are from, where some are not from grids of their own."""

    @property
    def is_tuned(self) -> bool:
        """Whether settings are chosen on seeds of their own first."""
        return bool(self.tuning_seeds)

    @property
    def sample(self) -> str:
        """What is compared pair by pair, in words."""
        return "replicate" if self.replicates > 1 else "seed"

    @property
    def comparisons(self) -> int:
        """How many differences are tested: their intervals hold together."""
        others = len(self.candidates) - 1
        return others * len(self.candidates) // 2 if self.all_pairs else others

    def replicate_tuning_seeds(self, replicate: int) -> tuple[int, ...]:
        """The tuning seeds that are dealt to a replicate."""
        return self.tuning_seeds[replicate :: self.replicates]

    def hold_against(self, name: str) -> "ComparisonDesign":
        """The same with another candidate as its baseline, chosen once there are results: every pair then counts as
        tested, since any of them could have been chosen."""
        return replace(self, baseline=name, all_pairs=True)
