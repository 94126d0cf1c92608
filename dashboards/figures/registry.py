"""The figures of an experiment's page by name: reads the series that a figure needs and hands them to `figures`."""

import time
from collections.abc import Iterator, Sequence
from typing import Literal, assert_never

from dashboards.data.grouping import chosen, grouped
from dashboards.data.reader import Reader, Snapshot
from dashboards.figures import outcomes, sweep, tradeoffs
from dashboards.figures.base import Figure
from dashboards.figures.compare import numbered_style
from dashboards.figures.curves import Curve, loss_curves
from dashboards.figures.timeline import attempts_timeline
from dashboards.palette import Style, ThemeName, style, variant
from dashboards.text.words import candidate_title, loss_title
from dashboards.view_state import ViewState
from orchestrator.errors import NotFoundError
from orchestrator.records import CandidateRow, RunRecord
from orchestrator.sweeps.report import sweep_spec

FigureName = Literal[
    "curves", "learning-rates", "memory", "pareto", "breakdown", "loss-memory", "loss-hours", "timeline"
]
"""`pareto` is what `loss-memory` was called once, so that old addresses still lead to it."""


def figure(
    reader: Reader, snapshot: Snapshot, name: FigureName, view: ViewState, theme: ThemeName, *, narrow: bool = False
) -> Figure:
    """The figure of that name as Plotly takes it."""
    match name:
        case "curves":
            curves = tuple(_curves(reader, snapshot, view))
            return loss_curves(
                curves,
                view,
                _budget(snapshot, view),
                theme,
                title=loss_title(snapshot.comparison),
                flops_per_token=flops_per_token(snapshot.runs),
            )
        case "learning-rates":
            return outcomes.learning_rates(
                snapshot.comparison, snapshot.runs, snapshot.styles, view, theme, narrow=narrow
            )
        case "memory":
            return outcomes.state_memory(snapshot.comparison, snapshot.styles, view, theme)
        case "breakdown":
            title = "bytes of tensors at the highest moment of a step"
            return tradeoffs.memory_breakdown(
                snapshot.comparison, snapshot.runs, snapshot.styles, view, theme, title=title
            )
        case "loss-memory" | "pareto" | "loss-hours":
            price: tradeoffs.Price = "hours" if name == "loss-hours" else "memory"
            title = f"final {snapshot.comparison.loss_name}"
            return tradeoffs.loss_by_price(
                snapshot.comparison, snapshot.styles, view, theme, price, title=title, narrow=narrow
            )
        case "timeline":
            stints = [one for one in reader.bench.stints(snapshot.experiment.id) if one.candidate not in view.hidden]
            return attempts_timeline(stints, snapshot.titles, snapshot.styles, time.time(), theme)
        case _:
            assert_never(name)


def best_rate(row: CandidateRow, runs: tuple[RunRecord, ...]) -> float | None:
    """The candidate's best learning rate; before its first result, the one whose run has come furthest."""
    if row.best_lr is not None:
        return row.best_lr
    mine = [run for run in runs if run.candidate == row.candidate]
    return max(mine, key=lambda run: run.step).lr if mine else None


def _curves(reader: Reader, snapshot: Snapshot, view: ViewState) -> Iterator[Curve]:
    """One curve for each candidate and learning rate that the view shows, or for each value that it groups them by
    and each whose runs have it; points of the others are not read."""
    grouping = chosen(snapshot.experiment.spec, view.group)
    shown = list(_shown(snapshot, view, all_rates=view.all_rates or (grouping is not None and grouping.all_rates)))
    if grouping is None:
        for row, lr, is_best in shown:
            runs = _runs(snapshot, row, lr, is_best=is_best)
            yield _curve(reader, row.candidate, row.title, lr, snapshot.styles[row.candidate], runs, is_best=is_best)
        return
    every = [run for row, lr, is_best in shown for run in _runs(snapshot, row, lr, is_best=is_best)]
    groups = grouped(every, grouping)
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


def _shown(snapshot: Snapshot, view: ViewState, *, all_rates: bool) -> Iterator[tuple[CandidateRow, float, bool]]:
    """(candidate, learning rate, is it its best one) of every curve that is shown."""
    for row in snapshot.comparison.rows:
        best = best_rate(row, snapshot.runs)
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


def flops_per_token(runs: tuple[RunRecord, ...]) -> float | None:
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
            return workload.tokens() * (flops_per_token(snapshot.runs) or 0.0) or None
        case "seconds" | "hours":
            return None
        case _:
            assert_never(view.x)


SweepFigureName = Literal["objective", "parallel", "importance"]
SWEEP_FIGURES: tuple[SweepFigureName, ...] = ("objective", "parallel", "importance")


def sweep_figure(snapshot: Snapshot, name: str, candidate: str | None, theme: ThemeName) -> Figure:
    """A figure of a sweep. Raises `NotFoundError` for one that such an experiment does not have."""
    report = snapshot.sweep
    known = next((each for each in SWEEP_FIGURES if each == name), None)
    if report is None or known is None:
        raise NotFoundError(
            f"experiment {snapshot.experiment.id} is a {snapshot.experiment.kind} without a figure {name}"
        )
    match known:
        case "objective":
            return sweep.objective(report, snapshot.styles, theme)
        case "parallel":
            spec = sweep_spec(snapshot.experiment)
            drawn = drawn_candidate(snapshot, candidate)
            searched = next(each for each in spec.candidates if each.name() == drawn)
            return sweep.parallel(report, searched, snapshot.styles[drawn], theme)
        case "importance":
            return sweep.importance(report, snapshot.styles, theme)
        case _:
            assert_never(known)


def drawn_candidate(snapshot: Snapshot, wanted: str | None) -> str:
    """Whose parallel coordinates are drawn: spaces differ, so it is one candidate's at a time; the best one's first."""
    assert snapshot.sweep is not None
    names = [finding.candidate for finding in snapshot.sweep.findings]
    return wanted if wanted in names else names[0]
