"""Loss curves by anything in which the runs of an experiment differ, instead of by candidate. Pure.

    view.group ─► a `Grouping` of this experiment ─► the shown runs, value by value ─► a curve a value

A group's mean is over all of its shown runs, whoever they are of: which runs those are, the figure's candidates and
learning rates say. Tables are never grouped.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dashboards import formats
from optim import catalog
from orchestrator.experiments import ComparisonSpec
from orchestrator.records import RunRecord
from orchestrator.sweeps import SweepSpec

MOST_GROUPS = 12
"""Values of a group that are drawn, the first ones: more of them nobody tells apart."""
NONE = "none"
"""The value of a run whose optimizer has no such option."""


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """Something that runs can be told apart by."""

    key: str
    """What the address calls it."""
    title: str
    value: Callable[[RunRecord], str]
    all_rates: bool = False
    """Whether it says something only over every learning rate."""


def groupings(spec: ComparisonSpec | SweepSpec) -> tuple[Grouping, ...]:
    """Everything that the runs of an experiment can be grouped by; the candidate itself is not among it."""
    found = []
    optimizers = {candidate.optimizer for candidate in spec.candidates}
    if 1 < len(optimizers) < len(spec.candidates):
        found.append(Grouping(key="optimizer", title="optimizer", value=lambda run: run.optimizer))
    if isinstance(spec, ComparisonSpec) and len({lr for one in spec.candidates for lr in one.learning_rates}) > 1:
        found.append(Grouping(key="lr", title="lr", value=lambda run: formats.rate(run.lr), all_rates=True))
    if len(spec.seeds) > 1:
        found.append(Grouping(key="seed", title="seed", value=lambda run: str(run.seed)))
    names = dict.fromkeys(name for candidate in spec.candidates for name in candidate.options)
    return (*found, *(_by_option(name) for name in names))


def chosen(spec: ComparisonSpec | SweepSpec, key: str) -> Grouping | None:
    """The grouping of that key; None for the candidates, and for what this experiment does not differ in."""
    return next((each for each in groupings(spec) if each.key == key), None)


def choices(spec: ComparisonSpec | SweepSpec) -> tuple[tuple[str, str], ...]:
    """(key, text) for the switch of the page, the candidates first."""
    return (("", "candidate"), *((each.key, each.title) for each in groupings(spec)))


def grouped(runs: Iterable[RunRecord], grouping: Grouping) -> list[tuple[str, Sequence[RunRecord]]]:
    """(value, its runs), in the order of the values."""
    found: dict[str, list[RunRecord]] = {}
    for run in runs:
        found.setdefault(grouping.value(run), []).append(run)
    return [(value, found[value]) for value in sorted(found, key=_order)[:MOST_GROUPS]]


def _by_option(name: str) -> Grouping:
    """An option that some candidate sets; others have it at its default, or have none of that name."""

    def value(run: RunRecord) -> str:
        if run.spec is None:
            return NONE
        options = run.spec.optimizer.options
        if name in options:
            return formats.option_value(options[name])
        option = catalog.entry(run.optimizer).option(name) if catalog.knows(run.optimizer) else None
        return NONE if option is None else formats.option_value(option.default)

    return Grouping(key=f"option:{name}", title=name.replace("_", " "), value=value)


def _order(value: str) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    try:
        return False, float(value), value
    except ValueError:
        return True, 0.0, value
