"""What the curves of an experiment stand for: a candidate, or anything else in which its runs differ.

    view.group ─► a `Grouping` of this experiment ─► the shown runs, by owner and value ─► a curve for each of these

No mean is over different optimizers, which would be a curve of nobody: a learning rate and a seed are grouped within
each candidate, an option within each optimizer. Tables are never grouped.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from dashboards.text import formats
from optim import catalog
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.records import RunRecord

MOST_GROUPS = 24
"""Curves that are drawn, those of the first values: more of them nobody tells apart."""
NONE = "none"
"""The value of a run whose optimizer has no such option."""


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """Something that runs can be told apart by."""

    key: str
    """What the address calls it."""
    title: str
    value: Callable[[RunRecord], str]
    within: Literal["candidate", "optimizer"]
    """Whose runs are averaged: those of another one are another curve."""
    all_rates: bool = False
    """Whether it says something only over every learning rate."""


@dataclass(frozen=True, kw_only=True)
class CurveGroup:
    """The runs of one curve."""

    value: str
    value_place: int
    """Of the value among all values."""
    owner: str
    """The candidate or the optimizer."""
    runs: Sequence[RunRecord]


def groupings(spec: ExperimentSpec) -> tuple[Grouping, ...]:
    """Everything that the runs of an experiment can be grouped by; the candidate itself is not among it."""
    found = []
    optimizers = {candidate.optimizer for candidate in spec.candidates}
    if 1 < len(optimizers) < len(spec.candidates):
        found.append(Grouping(key="optimizer", title="optimizer", value=lambda run: run.optimizer, within="optimizer"))
    if len(spec.grid_rates()) > 1:
        found.append(
            Grouping(key="lr", title="lr", value=lambda run: f"{run.lr:g}", within="candidate", all_rates=True)
        )
    if len(spec.seeds) > 1:
        found.append(Grouping(key="seed", title="seed", value=lambda run: str(run.seed), within="candidate"))
    names = dict.fromkeys(name for candidate in spec.candidates for name in candidate.options)
    return (*found, *(_option_grouping(name) for name in names))


def find_grouping(spec: ExperimentSpec, key: str) -> Grouping | None:
    """The grouping of that key; None for the candidates, and for what this experiment does not differ in."""
    return next((each for each in groupings(spec) if each.key == key), None)


def grouping_choices(spec: ExperimentSpec) -> tuple[tuple[str, str], ...]:
    """(key, text) for the switch of the page, the candidates first."""
    return (("", "candidate"), *((each.key, each.title) for each in groupings(spec)))


def group_runs(runs: Iterable[RunRecord], grouping: Grouping) -> list[CurveGroup]:
    """The groups in the order of their values; within a value in the order in which the runs came."""
    found: dict[str, dict[str, list[RunRecord]]] = {}
    for run in runs:
        found.setdefault(grouping.value(run), {}).setdefault(getattr(run, grouping.within), []).append(run)
    groups = [
        CurveGroup(value=value, value_place=place, owner=owner, runs=some)
        for place, value in enumerate(sorted(found, key=_order))
        for owner, some in found[value].items()
    ]
    return groups[:MOST_GROUPS]


def _option_grouping(name: str) -> Grouping:
    """An option that some candidate sets; others have it at its default, or have none of that name."""

    def value(run: RunRecord) -> str:
        if run.spec is None:
            return NONE
        options = run.spec.optimizer.options
        if name in options:
            return formats.option_value(options[name])
        entry = catalog.find(run.optimizer)
        option = entry.option(name) if entry else None
        return NONE if option is None else formats.option_value(option.default)

    return Grouping(key=f"option:{name}", title=name.replace("_", " "), value=value, within="optimizer")


def _order(value: str) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    try:
        return False, float(value), value
    except ValueError:
        return True, 0.0, value
