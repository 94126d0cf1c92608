"""The page of a sweep, at the address of every experiment."""

from collections.abc import Mapping

from fastapi.responses import HTMLResponse

from dashboards.data.reader import Snapshot
from dashboards.figures.experiment import drawn_candidate
from dashboards.render import page
from dashboards.text import sweep as sweep_words
from dashboards.text.sweep import Order, sorted_trials

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
        drawn=drawn_candidate(snapshot, query.get("candidate")),
    )
