"""The figures of an experiment's page by name: reads the series that a figure needs and hands them to `figures`."""

from collections.abc import Iterator
from typing import Literal, assert_never

from dashboards import figures
from dashboards.curves import Curve, loss_curves
from dashboards.drawing import Figure
from dashboards.palette import ThemeName
from dashboards.pareto import pareto
from dashboards.reader import Reader, Snapshot
from dashboards.views import loss_title
from dashboards.viewstate import ViewState
from orchestrator.records import CandidateRow, RunRecord
from worker.spec import Workload

FigureName = Literal["curves", "learning-rates", "memory", "pareto"]


def figure(reader: Reader, snapshot: Snapshot, name: FigureName, view: ViewState, theme: ThemeName) -> Figure:
    """The figure of that name as Plotly takes it."""
    match name:
        case "curves":
            curves = tuple(_curves(reader, snapshot, view))
            return loss_curves(
                curves,
                view,
                _budget(snapshot.experiment.spec.workload, view),
                theme,
                title=loss_title(snapshot.comparison),
            )
        case "learning-rates":
            return figures.learning_rates(snapshot.comparison, snapshot.runs, snapshot.styles, view, theme)
        case "memory":
            return figures.state_memory(snapshot.comparison, snapshot.styles, view, theme)
        case "pareto":
            return pareto(snapshot.comparison, snapshot.styles, theme)
        case _:
            assert_never(name)


def best_rate(row: CandidateRow, runs: tuple[RunRecord, ...]) -> float | None:
    """The candidate's best learning rate; before its first result, the one whose run has come furthest."""
    if row.best_lr is not None:
        return row.best_lr
    mine = [run for run in runs if run.candidate == row.candidate]
    return max(mine, key=lambda run: run.step).lr if mine else None


def _curves(reader: Reader, snapshot: Snapshot, view: ViewState) -> Iterator[Curve]:
    """One curve for each candidate and learning rate that the view shows; points of the others are not read."""
    for row in snapshot.comparison.rows:
        best = best_rate(row, snapshot.runs)
        rates = sorted({run.lr for run in snapshot.runs if run.candidate == row.candidate})
        for lr in rates:
            if row.candidate in view.hidden or not (view.all_rates or lr == best):
                continue
            yield _curve(reader, snapshot, row, lr, is_best=lr == best)


def _curve(reader: Reader, snapshot: Snapshot, row: CandidateRow, lr: float, *, is_best: bool) -> Curve:
    # The best rate is drawn by the runs that its mean is of: in a tuned comparison, not by those that chose it.
    final = row.final.run_ids if is_best and row.final else None
    mine = [run for run in snapshot.runs if run.candidate == row.candidate and run.lr == lr and run.attempt > 0]
    seeds = [run for run in mine if final is None or run.id in final]
    return Curve(
        candidate=row.candidate,
        title=row.title,
        lr=lr,
        is_best=is_best,
        style=snapshot.styles[row.candidate],
        seeds=tuple(reader.series(run) for run in seeds),
    )


def _budget(workload: Workload, view: ViewState) -> float | None:
    """The x value at which every run ends; how many seconds that will be is not known."""
    match view.x:
        case "steps":
            return workload.budget.steps
        case "tokens":
            return workload.tokens()
        case "seconds":
            return None
        case _:
            assert_never(view.x)
