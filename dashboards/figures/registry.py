"""All figures in one table: what each is called, where it stands, how it is drawn.

    a name in an address ─► its entry of the table ─► `entry.draw(…)` ─► a Plotly figure

Pages, files of figures, reports, REST and, through REST, `adapm-bench export --figures` read it. A new figure of an
experiment is one entry here and its name in the type that addresses are checked against.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, ParamSpec

from dashboards.figures import laws, memory, sweep
from dashboards.figures.base import ExperimentView, Figure
from dashboards.figures.curves import experiment_curves
from dashboards.figures.panels import draw_panel, experiment_panel
from dashboards.figures.rates import learning_rates
from dashboards.figures.run import meters, probe_heatmap, run_series
from dashboards.figures.tradeoffs import loss_by_price
from dashboards.palette import Style, ThemeName
from dashboards.view_state import ViewState
from orchestrator.analysis.laws.records import FitReport
from orchestrator.kinds.experiment import AnswerKind
from orchestrator.records import Comparison

ComparisonFigure = Literal["curves", "learning-rates", "breakdown", "loss-memory", "loss-hours"]
LawFigure = Literal["law", "residuals"]
SweepFigure = Literal["objective", "slices", "importance"]
FigureName = ComparisonFigure | LawFigure | SweepFigure | Literal["panel"]
"""The figures of experiments, as addresses name them."""
FigurePage = AnswerKind | Literal["run", "compare", "every experiment"]
P = ParamSpec("P")


@dataclass(frozen=True, kw_only=True)
class FigureEntry(Generic[P]):
    """A figure."""

    name: str
    """The figure's name in addresses and files."""
    title: str
    """The heading of its file; words in braces depend on the drawing."""
    page: FigurePage
    """The page of the figure: that of an experiment with such an answer, or another one."""
    draw: Callable[P, Figure]
    caption: str = ""
    """The sentence below it in a report; figures without one are not in reports."""


COMPARISON_FIGURES: tuple[FigureEntry[[ExperimentView]], ...] = (
    FigureEntry(
        name="loss-memory",
        title="Loss and optimizer state",
        page=AnswerKind.COMPARISON,
        caption="Final loss by optimizer state; bars are 95 % intervals of the difference to the baseline. The dotted "
        "line is the Pareto front.",
        draw=lambda view: loss_by_price(*_comparison_view(view), "memory"),
    ),
    FigureEntry(
        name="curves",
        title="Loss curves",
        page=AnswerKind.COMPARISON,
        caption="Loss by step. Marks: validation loss, mean over seeds. Thin lines: training loss, smoothed over 3 % "
        "of the steps; bands reach from the lowest to the highest seed.",
        draw=experiment_curves,
    ),
    FigureEntry(
        name="learning-rates",
        title="Learning-rate sensitivity",
        page=AnswerKind.COMPARISON,
        caption="Final validation loss by learning rate: mean over seeds, a small circle for each seed, × where a run "
        "diverged. With separate tuning, dotted lines and their hollow marks show the tuning seeds, and filled marks "
        "the mean of the compared seeds.",
        draw=lambda view: learning_rates(*_comparison_view(view), view.snapshot.runs, narrow=view.narrow),
    ),
    FigureEntry(
        name="loss-hours",
        title="Loss and device time",
        page=AnswerKind.COMPARISON,
        draw=lambda view: loss_by_price(*_comparison_view(view), "hours"),
    ),
    FigureEntry(
        name="breakdown",
        title="Peak memory breakdown",
        page=AnswerKind.COMPARISON,
        draw=lambda view: memory.memory_breakdown(*_comparison_view(view), view.snapshot.runs),
    ),
)
SWEEP_FIGURES: tuple[FigureEntry[[ExperimentView]], ...] = (
    FigureEntry(
        name="objective",
        title="Objective over trials",
        page=AnswerKind.FINDINGS,
        caption="Final loss of each trial in order; the line is the best so far. Hollow marks were stopped early.",
        draw=lambda view: sweep.objective(view.snapshot.sweep, view.snapshot.styles, view.theme),
    ),
    FigureEntry(
        name="slices",
        title="Loss over each hyperparameter",
        page=AnswerKind.FINDINGS,
        caption="Loss of each trial of the best optimizer over the value of each hyperparameter. Hollow marks were "
        "stopped early.",
        draw=sweep.experiment_slices,
    ),
    FigureEntry(
        name="importance",
        title="Importance of hyperparameters",
        page=AnswerKind.FINDINGS,
        caption="Share of each hyperparameter in what sets the best trials apart from the others (PED-ANOVA).",
        draw=lambda view: sweep.importance(view.snapshot.sweep, view.snapshot.styles, view.theme),
    ),
)
LAW_FIGURES: tuple[FigureEntry[[FitReport, Mapping[str, Style], ThemeName, Sequence[str]]], ...] = (
    FigureEntry(
        name="law",
        title="Scaling law",
        page=AnswerKind.LAW,
        caption="Final validation loss by size, both logarithmic. Above the plot stands what is drawn; the law's bands "
        "are 95 % bootstrap intervals.",
        draw=laws.law,
    ),
    FigureEntry(
        name="residuals",
        title="Residuals of the law",
        page=AnswerKind.LAW,
        caption="Measured mean loss at each size relative to the fitted law.",
        draw=laws.residuals,
    ),
)
PANEL: FigureEntry[[ExperimentView]] = FigureEntry(
    name="panel", title="Panel", page="every experiment", draw=experiment_panel
)
SERIES = FigureEntry(name="series", title="Series", page="run", draw=run_series)
METERS = FigureEntry(name="meters", title="Other metrics", page="run", draw=meters)
PROBE = FigureEntry(name="probe", title="{probe}, {quantity}", page="run", draw=probe_heatmap)
RUNS_PANEL = FigureEntry(name="runs-panel", title="{runs} runs compared", page="compare", draw=draw_panel)

FIGURES: tuple[FigureEntry[Any], ...] = (
    *COMPARISON_FIGURES, *SWEEP_FIGURES, *LAW_FIGURES, SERIES, METERS, PROBE,
    RUNS_PANEL, PANEL,
)  # fmt: skip
"""Every figure that there is."""
BY_SNAPSHOT = {entry.name: entry for entry in (*COMPARISON_FIGURES, *SWEEP_FIGURES, PANEL)}
"""The figures of experiments that are drawn from a snapshot, by name."""
BY_LAW = {entry.name: entry for entry in LAW_FIGURES}
"""The figures that are drawn from fitted laws."""


def page_figures(page: FigurePage) -> tuple[FigureEntry[Any], ...]:
    """Return the figures of a page, in their order."""
    return tuple(entry for entry in FIGURES if entry.page == page)


def _comparison_view(view: ExperimentView) -> tuple[Comparison, dict[str, Style], ViewState, ThemeName]:
    return view.snapshot.comparison, view.snapshot.styles, view.state, view.theme
