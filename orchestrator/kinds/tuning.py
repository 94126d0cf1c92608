"""Tuning, as a user asks for it.

Each candidate is tuned on seeds of its own (`orchestrator/tuning/`), and judged at one setting on the seeds that count:
a setting that was chosen because it was lowest on a seed is flattered by that seed.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from orchestrator.kinds.fields import TuningSeeds
from orchestrator.tuning.ranges import Axis
from worker.schema import Spec, SpecFault, is_stored, omit_default, raise_faults

TUNING_SEEDS = (1001, 1002, 1003)
"""Far from the seeds that people number their judging runs by. Three leave the luck of tuning small beside the noise of
ten judged seeds (docs/comparisons.md)."""
TRIALS = 8
"""Enough to find best rates 4 to 16 times as high as the first one tried; near theirs, ten candidates need six
(docs/comparisons.md)."""
FEWEST_REPLICATES = 3
"""The fewest replicates of a search over several hyperparameters. A single search calls equal optimizers different in 9
to 68 % of experiments, five replicates of 16 trials in 4 to 11 % (docs/comparisons.md); the t-interval of two would be
13 standard errors wide."""

Method = Literal["line", "random", "coordinate", "grid"]
METHODS: Mapping[Method, str] = {
    "line": "a line search",
    "random": "a random search",
    "coordinate": "coordinate descent",
    "grid": "the given rates",
}
"""The names of the methods on pages and in sentences."""
SEARCHES = frozenset({"random", "coordinate"})
"""Methods that tune several hyperparameters."""


class Tuning(Spec):
    """Every candidate tries equally many settings on the same tuning seeds, and runs one on the experiment's seeds."""

    method: Method = "line"
    """`line` searches the learning rate from the middle of `learning_rates`, `grid` tries exactly these; `random` and
    `coordinate` search several hyperparameters."""
    trials: Annotated[int, Field(strict=True, ge=2, le=256)] = TRIALS
    """Settings of each candidate, each on every tuning seed; a grid has as many as rates."""
    seeds: TuningSeeds = TUNING_SEEDS
    """Tuning seeds, none of them in the experiment's `seeds`; use at least a third as many."""
    search: Annotated[tuple[Axis, ...], Field(max_length=6)] = omit_default(())
    """Hyperparameters that `random` and `coordinate` search, in ranges around the candidate's values."""
    replicates: Annotated[int, Field(strict=True, ge=1, le=64)] = omit_default(1)
    """How often to tune and judge, on seeds dealt in turn; their means are compared. `random` and `coordinate` need 3
    or more."""

    @model_validator(mode="before")
    @classmethod
    def _name_old_method(cls, fields: Any) -> Any:
        """Name the method of a specification of the time when grids were extended: it ran its own rates alone."""
        is_old = is_stored() and isinstance(fields, dict) and "extend_grid" in fields
        return {"method": "grid"} | fields if is_old else fields

    @model_validator(mode="after")
    def _require_whole_method(self) -> Self:
        if not is_stored():
            raise_faults(type(self).__name__, [*self._faults()])
        return self

    def _faults(self) -> Iterator[SpecFault]:
        if self.method not in SEARCHES:
            if self.search:
                yield ("search",), list(self.search), f"must be left out: {self.method} tunes the learning rate alone"
            if self.method == "line" and self.trials < 3:
                yield ("trials",), self.trials, "must be at least 3: the line search begins with three rates"
            if self.method == "grid" and self.trials != TRIALS:  # a whole specification has the default
                yield ("trials",), self.trials, "must be left out: a grid tries the given learning_rates"
        else:
            if "lr" not in self.search:
                allowed = "must contain lr and whatever else is tuned, such as [lr, beta2, weight_decay]"
                yield ("search",), list(self.search), allowed
            for index, axis in enumerate(self.search):
                if axis in self.search[:index]:
                    yield ("search", index), axis, "is given twice; each must differ"
            if self.replicates < FEWEST_REPLICATES:
                allowed = (
                    f"must be {FEWEST_REPLICATES} or more, because a search finds other settings each time: give five "
                    "tuning seeds and 5 replicates"
                )
                yield ("replicates",), self.replicates, allowed
        if len(self.seeds) % self.replicates:
            allowed = f"must divide the {len(self.seeds)} tuning seeds evenly"
            yield ("replicates",), self.replicates, allowed
