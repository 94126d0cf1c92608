"""All figures in one table: what each is called, where it stands, how it is drawn.

    a name in an address ─► its entry of the table ─► `entry.draw(…)` ─► a Plotly figure

Pages, files of figures, reports, REST and, through REST, `adapm-bench export --figures` read it. A new figure of an
experiment is one entry here and its name in the type that addresses are checked against.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dashboards.figures import laws, memory, sweep
from dashboards.figures.base import ExperimentView, Figure
from dashboards.figures.curves import experiment_curves
from dashboards.figures.panels import experiment_panel
from dashboards.figures.rates import learning_rates
from dashboards.figures.tradeoffs import loss_by_price
from dashboards.palette import Style, ThemeName
from dashboards.view_state import ViewState
from orchestrator.kinds.experiment import AnswerKind
from orchestrator.records import Comparison

ComparisonFigure = Literal["curves", "learning-rates", "breakdown", "loss-memory", "loss-hours"]
LawFigure = Literal["law", "residuals"]
SweepFigure = Literal["objective", "slices", "importance"]
FigureName = ComparisonFigure | LawFigure | SweepFigure | Literal["panel"]
"""The figures of experiments, as addresses name them."""


@dataclass(frozen=True, kw_only=True)
class FigureEntry:
    """A figure."""

    name: FigureName
    """The figure's name in addresses and files."""
    title: str
    """The heading of its file."""
    draw: Callable[..., Figure]
    """Draws an `ExperimentView`; a law's figure: its report, styles, theme and what is hidden."""
    caption: str = ""
    """The sentence below it in a report; figures without one are not in reports."""


COMPARISON_FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        name="loss-memory",
        title="Loss and optimizer state",
        caption="Final loss by optimizer state; bars are 95 % intervals of the difference to the baseline. The dotted "
        "line is the Pareto front.",
        draw=lambda view: loss_by_price(*_comparison_view(view), "memory"),
    ),
    FigureEntry(
        name="curves",
        title="Loss curves",
        caption="Loss by step. Marks: validation loss, mean over seeds. Thin lines: training loss, smoothed over 3 % "
        "of the steps; bands reach from the lowest to the highest seed.",
        draw=experiment_curves,
    ),
    FigureEntry(
        name="learning-rates",
        title="Learning-rate sensitivity",
        caption="Final validation loss by learning rate: mean over seeds, a small circle for each seed, × where a run "
        "diverged. With separate tuning, dotted lines and their hollow marks show the tuning seeds, and filled marks "
        "the mean of the compared seeds.",
        draw=lambda view: learning_rates(*_comparison_view(view), view.snapshot.runs, narrow=view.narrow),
    ),
    FigureEntry(
        name="loss-hours",
        title="Loss and device time",
        draw=lambda view: loss_by_price(*_comparison_view(view), "hours"),
    ),
    FigureEntry(
        name="breakdown",
        title="Peak memory breakdown",
        draw=lambda view: memory.memory_breakdown(*_comparison_view(view), view.snapshot.runs),
    ),
)
SWEEP_FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        name="objective",
        title="Objective over trials",
        caption="Final loss of each trial in order; the line is the best so far. Hollow marks were stopped early.",
        draw=lambda view: sweep.objective(view.snapshot.sweep, view.snapshot.styles, view.theme),
    ),
    FigureEntry(
        name="slices",
        title="Loss over each hyperparameter",
        caption="Loss of each trial of the best optimizer over the value of each hyperparameter. Hollow marks were "
        "stopped early.",
        draw=sweep.experiment_slices,
    ),
    FigureEntry(
        name="importance",
        title="Importance of hyperparameters",
        caption="Share of each hyperparameter in what sets the best trials apart from the others (PED-ANOVA).",
        draw=lambda view: sweep.importance(view.snapshot.sweep, view.snapshot.styles, view.theme),
    ),
)
LAW_FIGURES: tuple[FigureEntry, ...] = (
    FigureEntry(
        name="law",
        title="Scaling law",
        caption="Final validation loss by size, both logarithmic. Above the plot stands what is drawn; the law's bands "
        "are 95 % bootstrap intervals.",
        draw=laws.law,
    ),
    FigureEntry(
        name="residuals",
        title="Residuals of the law",
        caption="Measured mean loss at each size relative to the fitted law.",
        draw=laws.residuals,
    ),
)
PANEL = FigureEntry(name="panel", title="Panel", draw=experiment_panel)
"""What a reader adds to the page of any experiment."""
FIGURES: dict[AnswerKind, tuple[FigureEntry, ...]] = {
    AnswerKind.COMPARISON: COMPARISON_FIGURES,
    AnswerKind.FINDINGS: SWEEP_FIGURES,
    AnswerKind.LAW: LAW_FIGURES,
}
"""The figures of a page, in their order."""


def _comparison_view(view: ExperimentView) -> tuple[Comparison, dict[str, Style], ViewState, ThemeName]:
    return view.snapshot.comparison, view.snapshot.styles, view.state, view.theme
