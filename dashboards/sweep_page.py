"""The page of a sweep, at the address of every experiment, and which figure it asks for by which name."""

from collections.abc import Mapping
from typing import Literal, assert_never

from fastapi.responses import HTMLResponse

from dashboards import sweep_figures, sweep_words
from dashboards.drawing import Figure
from dashboards.palette import ThemeName
from dashboards.reader import Snapshot
from dashboards.render import page
from dashboards.sweep_words import Order, sorted_trials
from orchestrator.errors import NotFoundError
from orchestrator.sweep_report import sweep_spec

SweepFigureName = Literal["objective", "parallel", "importance"]
SWEEP_FIGURES: tuple[SweepFigureName, ...] = ("objective", "parallel", "importance")
TRIALS_SHOWN = 500
"""Rows of the table; the REST API has them all."""


def sweep_page(snapshot: Snapshot, query: Mapping[str, str], hindrance: str | None) -> HTMLResponse:
    """One sweep; the query says how its trials are sorted, and whose are drawn as parallel coordinates."""
    report = snapshot.sweep
    assert report is not None
    order = Order.parse(query.get("sort"))
    return page(
        "sweep.html",
        snapshot=snapshot,
        hindrance=hindrance,
        report=report,
        words=sweep_words,
        order=order,
        trials=sorted_trials(report, order)[:TRIALS_SHOWN],
        trials_shown=TRIALS_SHOWN,
        drawn=_drawn(snapshot, query.get("candidate")),
    )


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
            return sweep_figures.objective(report, snapshot.styles, theme)
        case "parallel":
            spec = sweep_spec(snapshot.experiment)
            drawn = _drawn(snapshot, candidate)
            searched = next(each for each in spec.candidates if each.name() == drawn)
            return sweep_figures.parallel(report, searched, snapshot.styles[drawn], theme)
        case "importance":
            return sweep_figures.importance(report, snapshot.styles, theme)
        case _:
            assert_never(known)


def _drawn(snapshot: Snapshot, wanted: str | None) -> str:
    """Whose parallel coordinates are drawn: spaces differ, so it is one candidate's at a time; the best one's first."""
    assert snapshot.sweep is not None
    names = [finding.candidate for finding in snapshot.sweep.findings]
    return wanted if wanted in names else names[0]
