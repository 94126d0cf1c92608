"""The figures of an experiment's page that need more than its snapshot: they read series or attempts, and choose.

    view.group ─► a `Grouping` of this experiment ─► the shown runs, by owner and value ─► a curve for each of these

Curves are by candidate, or by anything else in which the runs differ. No mean is over different optimizers, which would
be a curve of nobody: a learning rate and a seed are grouped within each candidate, an option within each optimizer.
Tables are never grouped.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from dashboards.data.reader import Reader, Snapshot
from dashboards.figures.base import Figure
from dashboards.figures.compare import numbered_style
from dashboards.figures.curves import Curve, loss_curves
from dashboards.figures.sweep import parallel
from dashboards.figures.timeline import attempts_timeline
from dashboards.palette import Style, ThemeName, style, variant
from dashboards.text import formats
from dashboards.text.words import candidate_title, loss_title
from dashboards.view_state import ViewState
from optim import catalog
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.records import CandidateRow, RunRecord
from orchestrator.sweeps.records import SweepReport
from orchestrator.sweeps.report import sweep_spec

MOST_GROUPS = 24
"""Curves that are drawn, those of the first values: more of them nobody tells apart."""
NONE = "none"
"""The value of a run whose optimizer has no such option."""


@dataclass(frozen=True, kw_only=True)
class ExperimentView:
    """What a figure of an experiment, or of one cell of it, is drawn from."""

    reader: Reader
    """Reads series and attempts, for the figures that need more than the snapshot."""
    snapshot: Snapshot
    state: ViewState
    theme: ThemeName
    narrow: bool = False
    candidate: str | None = None
    """Whose parallel coordinates are asked for."""


def experiment_curves(view: ExperimentView) -> Figure:
    """The loss curves of the candidates that the view shows."""
    snapshot = view.snapshot
    return loss_curves(
        tuple(_curves(view.reader, snapshot, view.state)),
        view.state,
        _budget(snapshot, view.state),
        view.theme,
        title=loss_title(snapshot.comparison),
        flops_per_token=_flops_per_token(snapshot.runs),
    )


def experiment_attempts(view: ExperimentView) -> Figure:
    """When the attempts of the candidates that the view shows held their slots."""
    snapshot = view.snapshot
    spans = view.reader.runs.attempt_spans(snapshot.experiment.id)
    shown = [one for one in spans if one.candidate not in view.state.hidden]
    return attempts_timeline(shown, snapshot.titles, snapshot.styles, time.time(), view.theme)


def experiment_trials(view: ExperimentView) -> Figure:
    """The trials of one candidate of a sweep as parallel coordinates."""
    snapshot = view.snapshot
    candidate = parallel_candidate(snapshot, view.candidate)
    searched = next(each for each in sweep_spec(snapshot.experiment).candidates if each.name() == candidate)
    return parallel(sweep_report(snapshot), searched, snapshot.styles[candidate], view.theme)


def sweep_report(snapshot: Snapshot) -> SweepReport:
    """The report of a sweep's snapshot."""
    assert snapshot.sweep is not None, f"experiment {snapshot.experiment.id} is no sweep"
    return snapshot.sweep


def parallel_candidate(snapshot: Snapshot, wanted: str | None) -> str:
    """Whose parallel coordinates are drawn: spaces differ, so it is one candidate's at a time; the best one's first."""
    names = [finding.candidate for finding in sweep_report(snapshot).findings]
    return wanted if wanted in names else names[0]


def _best_rate(row: CandidateRow, runs: tuple[RunRecord, ...]) -> float | None:
    """The candidate's best learning rate; before its first result, the one whose run has come furthest."""
    if row.best_lr is not None:
        return row.best_lr
    mine = [run for run in runs if run.candidate == row.candidate]
    return max(mine, key=lambda run: run.step).lr if mine else None


def _curves(reader: Reader, snapshot: Snapshot, view: ViewState) -> Iterator[Curve]:
    """One curve for each candidate and learning rate that the view shows, or for each value that it groups them by
    and each whose runs have it; points of the others are not read."""
    grouping = find_grouping(snapshot.experiment.spec, view.group)
    shown = list(
        _visible_rates(snapshot, view, all_rates=view.all_rates or (grouping is not None and grouping.all_rates))
    )
    if grouping is None:
        for row, lr, is_best in shown:
            runs = _runs(snapshot, row, lr, is_best=is_best)
            yield _curve(reader, row.candidate, row.title, lr, snapshot.styles[row.candidate], runs, is_best=is_best)
        return
    every = [run for row, lr, is_best in shown for run in _runs(snapshot, row, lr, is_best=is_best)]
    groups = group_runs(every, grouping)
    several = len({group.owner for group in groups}) > 1
    for group in groups:
        name = title = f"{grouping.title} {group.value}"
        look = numbered_style(group.value_place)
        if several:  # each in its own colour, its values told apart by dash and mark
            is_candidate = grouping.within == "candidate"
            own = snapshot.styles[group.owner] if is_candidate else style(group.owner)
            owner = snapshot.titles[group.owner] if is_candidate else candidate_title(group.owner, group.owner)
            look = variant(own, group.value_place)
            title = title if group.owner == group.value else f"{owner} · {title}"
            name = group.owner if is_candidate else title
        yield _curve(reader, name, title, None, look, group.runs, is_best=True)


def _visible_rates(
    snapshot: Snapshot, view: ViewState, *, all_rates: bool
) -> Iterator[tuple[CandidateRow, float, bool]]:
    """(candidate, learning rate, is it its best one) of every curve that is shown."""
    for row in snapshot.comparison.rows:
        best = _best_rate(row, snapshot.runs)
        rates = sorted({run.lr for run in snapshot.runs if run.candidate == row.candidate})
        for lr in rates:
            if row.candidate not in view.hidden and (all_rates or lr == best):
                yield row, lr, lr == best


def _runs(snapshot: Snapshot, row: CandidateRow, lr: float, *, is_best: bool) -> list[RunRecord]:
    # The best rate is drawn by the runs that its mean is of: in a tuned comparison, not by those that chose it.
    final = row.final.run_ids if is_best and row.final else None
    mine = [run for run in snapshot.runs if run.candidate == row.candidate and run.lr == lr and run.attempt > 0]
    return [run for run in mine if final is None or run.id in final]


def _curve(
    reader: Reader,
    name: str,
    title: str,
    lr: float | None,
    style: Style,
    runs: Sequence[RunRecord],
    *,
    is_best: bool,
) -> Curve:
    seeds = reader.series(runs, marks=not is_best)
    return Curve(candidate=name, title=title, lr=lr, is_best=is_best, style=style, seeds=seeds)


def _flops_per_token(runs: tuple[RunRecord, ...]) -> float | None:
    """The model's FLOPs a token, of any ended run: they are equal in all runs of an experiment."""
    return next((run.result.flops_per_token for run in runs if run.result and run.result.flops_per_token), None)


def _budget(snapshot: Snapshot, view: ViewState) -> float | None:
    """The x value at which every run ends; how many seconds or hours that will be is not known."""
    workload = snapshot.experiment.spec.workload
    match view.x:
        case "steps":
            return workload.budget.steps
        case "tokens":
            return workload.tokens()
        case "flops":
            return workload.tokens() * (_flops_per_token(snapshot.runs) or 0.0) or None
        case "seconds" | "hours":
            return None
        case _:
            assert_never(view.x)


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
            Grouping(key="lr", title="lr", value=lambda run: formats.rate(run.lr), within="candidate", all_rates=True)
        )
    if len(spec.seeds) > 1:
        found.append(Grouping(key="seed", title="seed", value=lambda run: str(run.seed), within="candidate"))
    names = dict.fromkeys(name for candidate in spec.candidates for name in candidate.options)
    return (*found, *(_by_option(name) for name in names))


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

    return Grouping(key=f"option:{name}", title=name.replace("_", " "), value=value, within="optimizer")


def _order(value: str) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    try:
        return False, float(value), value
    except ValueError:
        return True, 0.0, value
