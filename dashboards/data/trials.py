"""Which trials of a sweep its page shows, and how: the state of that page, kept in its address. Pure.

    sort=-objective&candidate=adamw&across=lr&up=beta2&brush=lr*20*60

A brush keeps the trials that cross an axis of parallel coordinates between two places, in per cent of the axis. What is
not understood is left out: an edited link still opens.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlencode

from dashboards.data.tables import sort_rows
from dashboards.view_state import panel_words
from orchestrator.kinds.sweep import SearchedCandidate
from orchestrator.sweeps.records import SweepReport, TrialRow
from orchestrator.tuning.search_spaces import Range, share_of

LOSS = "loss"
"""The last axis of parallel coordinates, as addresses name it; no hyperparameter is called so."""
CROWD = 1.35
"""Losses above the best one by more than this share of it are drawn at the edge: they would squeeze the rest."""
BEYOND = 1.05
"""Where such a loss stands on its axis."""
MOST_BRUSHES = 17
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
class Brush:
    """A piece of an axis of parallel coordinates."""

    axis: str
    """A hyperparameter, or `LOSS`."""
    low: float
    """From 0 to 100, per cent of the axis."""
    high: float

    @classmethod
    def parse(cls, text: str) -> "Brush | None":
        """Read the word of an address; None where it is none."""
        axis, *ends = text.rsplit("*", 2)
        try:
            low, high = sorted(min(max(float(end), 0.0), 100.0) for end in ends)
        except ValueError:
            return None
        return cls(axis=axis[:LONGEST_NAME], low=low, high=high) if low == low and high == high else None

    def word(self) -> str:
        """The word of an address for it."""
        return f"{self.axis}*{self.low:g}*{self.high:g}"


@dataclass(frozen=True, kw_only=True)
class SweepView:
    """What a sweep's page shows."""

    order: TrialOrder = TrialOrder()
    candidate: str = ""
    """Whose space is drawn; empty is the best one's."""
    across: str = ""
    up: str = ""
    """The hyperparameters of the contour; empty are the first two."""
    brushes: tuple[Brush, ...] = ()
    """At most one for each axis."""
    panels: tuple[str, ...] = ()
    """Further figures, as `dashboards/figures/panels.py` reads them."""

    @classmethod
    def parse(cls, query: Iterable[tuple[str, str]]) -> "SweepView":
        """Read the query of a URL. `axis`, `from` and `to` are a form's brush; over its whole axis it is none."""
        pairs = list(query)
        given = dict(pairs)
        words = [value for name, value in pairs if name == "brush"]
        words += [f"{given['axis']}*{given.get('from', '')}*{given.get('to', '')}"] if "axis" in given else []
        brushes = {brush.axis: brush for word in words if (brush := Brush.parse(word)) is not None}
        return cls(
            order=TrialOrder.parse(given.get("sort")),
            candidate=given.get("candidate", "")[:LONGEST_NAME],
            across=given.get("across", "")[:LONGEST_NAME],
            up=given.get("up", "")[:LONGEST_NAME],
            brushes=tuple(one for one in brushes.values() if (one.low, one.high) != (0.0, 100.0))[:MOST_BRUSHES],
            panels=panel_words(pairs),
        )

    def query(self) -> str:
        """The query of a URL with this state, `?` included; `?` alone for the defaults, so that a link clears it."""
        return "?" + urlencode(self.pairs(), safe="*")

    def pairs(self) -> list[tuple[str, str]]:
        """The fields of a form that keeps this state."""
        order = [("sort", self.order.text())] if self.order != TrialOrder() else []
        return order + self._figure_pairs() + [("panel", each) for each in self.panels]

    def figure_query(self) -> str:
        """As `query`, of what figures depend on only: what changes a table redraws none."""
        return "?" + urlencode(self._figure_pairs(), safe="*")

    def _figure_pairs(self) -> list[tuple[str, str]]:
        named = [("candidate", self.candidate), ("across", self.across), ("up", self.up)]
        return [(name, value) for name, value in named if value] + [("brush", each.word()) for each in self.brushes]

    def replace(self, **changes: Any) -> "SweepView":
        """The same view with other values; another candidate has another space."""
        fresh: dict[str, Any] = {"across": "", "up": "", "brushes": ()} if "candidate" in changes else {}
        return replace(self, **fresh | changes)

    def sort_by(self, key: TrialKey) -> "SweepView":
        """The table by that column; by the same column once more, the other way round."""
        return self.replace(order=self.order.turn(key))

    def remove(self, brush: Brush) -> "SweepView":
        """The same view without that brush."""
        return self.replace(brushes=tuple(each for each in self.brushes if each != brush))


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The axes of parallel coordinates of one candidate: its hyperparameters, then the loss."""

    ranges: Mapping[str, Range]
    best: float
    worst: float
    """The ends of the axis of losses."""

    def shares(self, trial: TrialRow) -> dict[str, float]:
        """Where the trial crosses each axis, from 0 to 1; a loss far above the others at `BEYOND`."""
        shares = {name: share_of(domain, trial.parameters[name]) for name, domain in self.ranges.items()}
        loss = latest_loss(trial)
        assert loss is not None
        return shares | {LOSS: min(max((loss - self.best) / ((self.worst - self.best) or 1.0), 0.0), BEYOND)}

    def keeps(self, trial: TrialRow, brushes: Sequence[Brush]) -> bool:
        """Whether the trial crosses every brushed axis within the brush."""
        shares = self.shares(trial)
        within = (
            one.low - 0.05 <= 100 * min(shares.get(one.axis, one.low / 100), 1.0) <= one.high + 0.05 for one in brushes
        )
        return all(within)  # an edge of a brush has four digits


def latest_loss(trial: TrialRow) -> float | None:
    """The trial's objective; before its end its newest validation loss."""
    return trial.last_val_loss if trial.objective is None else trial.objective


def drawn_trials(report: SweepReport, candidate: str) -> list[TrialRow]:
    """Those of a candidate that have a loss and known hyperparameters."""
    mine = (trial for trial in report.trials if trial.candidate == candidate and trial.parameters)
    return [trial for trial in mine if latest_loss(trial) is not None]


def axes_of(report: SweepReport, searched: SearchedCandidate) -> Axes:
    """The axes for the trials of a candidate."""
    trials = drawn_trials(report, searched.name())
    losses = [trial.objective for trial in trials if trial.objective is not None] or [0.0, 1.0]
    best = min(losses)
    return Axes(ranges=searched.ranges(), best=best, worst=min(max(losses), best + (CROWD - 1) * abs(best)))


def brushed_trials(report: SweepReport, searched: SearchedCandidate, brushes: Sequence[Brush]) -> list[TrialRow]:
    """The trials of a candidate that every brush keeps; all trials of all candidates where nothing is brushed."""
    if not brushes:
        return list(report.trials)
    axes = axes_of(report, searched)
    return [trial for trial in drawn_trials(report, searched.name()) if axes.keeps(trial, brushes)]


def sorted_trials(trials: Sequence[TrialRow], order: TrialOrder) -> tuple[TrialRow, ...]:
    """The trials in that order; those without an objective stand last either way, by their latest loss."""

    def place(trial: TrialRow) -> tuple[float, int]:
        """Among those that the order holds equal."""
        if trial.objective is not None or order.key != "objective":
            return 0.0, trial.number
        return math.inf if trial.last_val_loss is None else trial.last_val_loss, trial.number

    return tuple(sort_rows(sorted(trials, key=place), TRIAL_SORTS[order.key], descending=order.descending))
