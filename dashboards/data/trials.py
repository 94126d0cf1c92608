"""The table of a sweep's trials: how it is sorted, and the state of its page, kept in the address. Pure.

    sort=-objective&candidate=adamw

Unknown values are left out: an edited link still opens.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlencode

from dashboards.data.tables import sort_rows
from dashboards.view_state import panel_words
from orchestrator.sweeps.records import TrialRow

LONGEST_NAME = 200
TrialKey = Literal["number", "objective", "candidate", "device_seconds"]
TRIAL_SORTS: dict[TrialKey, Callable[[TrialRow], float | str | None]] = {
    "number": lambda trial: trial.number,
    "objective": lambda trial: trial.objective,
    "candidate": lambda trial: trial.candidate,
    "device_seconds": lambda trial: trial.device_seconds,
}


@dataclass(frozen=True, kw_only=True)
class TrialOrder:
    """How the table of trials is sorted; it lives in the page's address."""

    key: TrialKey = "objective"
    descending: bool = False

    @classmethod
    def parse(cls, text: str | None) -> "TrialOrder":
        """`objective`, `-number`; anything else is the usual order."""
        name = (text or "").removeprefix("-")
        key = next((each for each in TRIAL_SORTS if each == name), None)
        return cls() if key is None else cls(key=key, descending=bool(text and text.startswith("-")))

    def text(self) -> str:
        """As it stands in the address."""
        return f"{'-' if self.descending else ''}{self.key}"

    def turn(self, key: TrialKey) -> "TrialOrder":
        """The order by `key`; the other way round where that is the order now."""
        return TrialOrder(key=key, descending=key == self.key and not self.descending)

    def aria(self, key: TrialKey) -> str:
        """What a column's head says of itself."""
        if key != self.key:
            return "none"
        return "descending" if self.descending else "ascending"


@dataclass(frozen=True, kw_only=True)
class SweepView:
    """The state of a sweep's page."""

    order: TrialOrder = TrialOrder()
    candidate: str = ""
    """Whose hyperparameters are drawn; empty is the best one's."""
    panels: tuple[str, ...] = ()
    """Further figures, as `dashboards/data/panels.py` reads them."""

    @classmethod
    def parse(cls, query: Iterable[tuple[str, str]]) -> "SweepView":
        """Read the query of a URL."""
        pairs = list(query)
        given = dict(pairs)
        return cls(
            order=TrialOrder.parse(given.get("sort")),
            candidate=given.get("candidate", "")[:LONGEST_NAME],
            panels=panel_words(pairs),
        )

    def query(self) -> str:
        """The query of a URL with this state, `?` included; `?` alone for the defaults, so that a link clears it."""
        order = [("sort", self.order.text())] if self.order != TrialOrder() else []
        candidate = [("candidate", self.candidate)] if self.candidate else []
        return "?" + urlencode([*order, *candidate, *(("panel", word) for word in self.panels)], safe="*")

    def replace(self, **changes: Any) -> "SweepView":
        """The same view with other values."""
        return replace(self, **changes)

    def sort_by(self, key: TrialKey) -> "SweepView":
        """The table by that column; by the same column once more, the other way round."""
        return self.replace(order=self.order.turn(key))


def sorted_trials(trials: Sequence[TrialRow], order: TrialOrder) -> tuple[TrialRow, ...]:
    """The trials in that order; those without an objective stand last either way, by their latest loss."""

    def tie_break(trial: TrialRow) -> tuple[float, int]:
        """The order of trials that the column holds equal."""
        if trial.objective is not None or order.key != "objective":
            return 0.0, trial.number
        return math.inf if trial.last_val_loss is None else trial.last_val_loss, trial.number

    return tuple(sort_rows(sorted(trials, key=tie_break), TRIAL_SORTS[order.key], descending=order.descending))
