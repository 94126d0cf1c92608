"""Tuning in scaling experiments: which sizes tune their learning rates, and how the others come by theirs. Pure.

    each-size       every cell tunes as a comparison does (`tuning.py`)
    smallest-size   the smallest size's cells do; a larger size at the same budget takes over the rate that won there

Either way all candidates have as many trials: those of their grid, in the cells that tune.
"""

from typing import Literal, Self

from pydantic import model_validator

from orchestrator.experiments import ComparisonSpec, Tuning
from worker import presets
from worker.spec import raise_faults

DIGITS = 12
"""Scaled rates are rounded to so many digits, like those that extend a grid."""
RULES = {"kept": "keep them", "inverse-width": "have them times their width's share"}
"""What a larger size does with the smallest one's rates, as a verb."""


class ScalingTuning(Tuning):
    """Two phases in every cell, or in the cells of the smallest size for all."""

    at: Literal["each-size", "smallest-size"] = "each-size"
    """Where the grids run."""
    transfer: Literal["kept", "inverse-width"] | None = None
    """How a rate of the smallest size becomes that of a larger one: as it is, or times the widths' inverse ratio, which
    is muP's rule for the matrices of Adam (Yang et al., "Tensor Programs V", arXiv 2203.03466). Needed where only the
    smallest size is tuned."""

    @model_validator(mode="after")
    def _transfers_where_it_must(self) -> Self:
        smallest = self.at == "smallest-size"
        if smallest is (self.transfer is not None):
            return self
        needed, idle = "must be kept or inverse-width: larger sizes need a rule", "must be null: each size is tuned"
        raise_faults(type(self).__name__, [(("transfer",), self.transfer, needed if smallest else idle)])
        return self

    def of_a_cell(self) -> Tuning:
        """The tuning of a cell that tunes, as a comparison has it."""
        return Tuning(seeds=self.seeds, extend_grid=self.extend_grid)

    def transferred(self, rate: float, smallest: str, model: str) -> float:
        """The rate of a larger model, from the one that won at the smallest."""
        if self.transfer != "inverse-width":
            return rate
        width, wider = (presets.preset(name).hidden_size for name in (smallest, model))
        return float(f"{rate * width / wider:.{DIGITS}g}")


class TransferredSpec(ComparisonSpec):
    """The comparison of a cell that takes over its rates: one for each candidate, and no grid."""

    rates_from: str
    """The model that was tuned."""
    rule: str

    def origin_of_rates(self) -> str | None:
        """Whose rates these are."""
        return f"Learning rates were tuned at {self.rates_from} alone; larger sizes {RULES[self.rule]}, untried."
