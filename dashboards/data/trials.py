"""The state of a sweep's page, kept in its address, and the order of its trials. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from dashboards.view_state import panel_words
from orchestrator.sweeps.records import TrialRow

LONGEST_NAME = 200


@dataclass(frozen=True, kw_only=True)
class SweepView:
    """The state of a sweep's page. Unknown values are left out: an edited link still opens."""

    candidate: str = ""
    """Whose hyperparameters are drawn; empty is the best one's."""
    panels: tuple[str, ...] = ()
    """Further figures, as `dashboards/data/panels.py` reads them."""

    @classmethod
    def parse(cls, query: Iterable[tuple[str, str]]) -> "SweepView":
        """Read the query of a URL."""
        pairs = list(query)
        return cls(candidate=dict(pairs).get("candidate", "")[:LONGEST_NAME], panels=panel_words(pairs))

    def query(self) -> str:
        """The query of a URL with this state, `?` included; `?` alone for the defaults, so that a link clears it."""
        candidate = [("candidate", self.candidate)] if self.candidate else []
        return "?" + urlencode([*candidate, *(("panel", word) for word in self.panels)], safe="*")

    def replace(self, **changes: Any) -> "SweepView":
        """The same view with other values."""
        return replace(self, **changes)


def sorted_trials(trials: Sequence[TrialRow]) -> list[TrialRow]:
    """Return the trials by their objective; those without one stand last, by their latest loss."""

    def order(trial: TrialRow) -> tuple[bool, float, int]:
        loss = trial.last_val_loss if trial.objective is None else trial.objective
        return trial.objective is None, math.inf if loss is None else loss, trial.number

    return sorted(trials, key=order)
