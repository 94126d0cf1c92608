"""A sweep in words: hyperparameters and outcomes as people read them, sorting of trials. Pure."""

import math
from dataclasses import dataclass
from typing import Literal

from dashboards.text import formats
from dashboards.text.words import Chip, state_chip
from orchestrator.jobs import state_word
from orchestrator.sweeps.records import SweepReport, TrialRow, Value

SortKey = Literal["number", "objective", "candidate", "device_seconds"]
SORT_KEYS: tuple[SortKey, ...] = ("number", "objective", "candidate", "device_seconds")


@dataclass(frozen=True, kw_only=True)
class Order:
    """How the table of trials is sorted; it lives in the page's address."""

    key: SortKey = "objective"
    descending: bool = False

    @classmethod
    def parse(cls, text: str | None) -> "Order":
        """`objective`, `-number`; anything else is the usual order."""
        name = (text or "").removeprefix("-")
        key = next((each for each in SORT_KEYS if each == name), None)
        return cls() if key is None else cls(key=key, descending=bool(text and text.startswith("-")))

    def text(self) -> str:
        """As it stands in the address."""
        return f"{'-' if self.descending else ''}{self.key}"

    def query(self, key: SortKey) -> str:
        """The address that sorts by `key`; the other way round where that is the order now."""
        other_way = key == self.key and not self.descending
        return f"?sort={'-' if other_way else ''}{key}"

    def aria(self, key: SortKey) -> str:
        """What a column's head says of itself."""
        if key != self.key:
            return "none"
        return "descending" if self.descending else "ascending"


def sorted_trials(report: SweepReport, order: Order) -> tuple[TrialRow, ...]:
    """The trials in that order; those without a value come last either way."""
    known = [trial for trial in report.trials if order.key != "objective" or trial.objective is not None]
    known.sort(key=lambda trial: _key(trial, order.key), reverse=order.descending)
    rest = [trial for trial in report.trials if order.key == "objective" and trial.objective is None]
    rest.sort(key=lambda trial: (math.inf if trial.last_val_loss is None else trial.last_val_loss, trial.number))
    return (*known, *rest)


def _key(trial: TrialRow, key: SortKey) -> tuple[float | str, int]:
    value = getattr(trial, key)
    return value if isinstance(value, str) else float(value), trial.number


def value_text(value: Value) -> str:
    """A hyperparameter's value: three digits, `1.2e-3` below a hundredth."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def outcome(trial: TrialRow) -> str:
    """How the trial ended, or where it is."""
    return state_word(trial.status, trial.verdict)


def outcome_chip(trial: TrialRow) -> Chip:
    """The same with its colour."""
    return state_chip(trial.status, trial.verdict)


def parameter_names(report: SweepReport) -> tuple[str, ...]:
    """Every hyperparameter of any candidate, in the order of their appearance."""
    return tuple(dict.fromkeys(name for trial in report.trials for name in trial.parameters))


def headline(report: SweepReport) -> str:
    """The answer so far, as a sentence to stand after the best candidate's name; empty before the first."""
    best = report.best()
    if best is None or best.objective is None:
        return ""
    at = ", ".join(f"{name} {value_text(value)}" for name, value in best.parameters.items())
    reached = (
        f"reached the lowest {report.loss_name}" if report.complete else f"has the lowest {report.loss_name} so far"
    )
    return f"{reached}: {formats.loss(best.objective)}{report.loss_unit} at {at} (trial {best.number})."
