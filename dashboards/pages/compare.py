"""`/compare?runs=…`: any runs of any experiments beside each other, and the search by which they are chosen.

/compare?runs=…&find=adapm tiny     runs in which each of these words occurs, to be added
/compare?find=lr<0.01 and seed=1    the same by a filter of the table of all runs
/compare?runs=A,external:B          a measured run beside one that another loop told of
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from dashboards.data.any_run import AnyRun, group_fields
from dashboards.data.panels import METRICS as PANEL_METRICS
from dashboards.data.panels import Panel, edited_address, page_panels
from dashboards.data.reader import Reader
from dashboards.figures import compare
from dashboards.figures.compare import CompareView
from dashboards.figures.panels import panel_lines
from dashboards.figures.registry import RUNS_PANEL
from dashboards.files.figures import FileForm, figure_answer, unchanged_answer
from dashboards.pages.curation import deleted_experiment
from dashboards.palette import ThemeName
from dashboards.render import page
from dashboards.text import formats
from dashboards.text.words import field_value
from orchestrator.errors import NotFoundError
from orchestrator.records import AnyExperiment
from orchestrator.run_table.fields import RunField, TableRow, find_field
from orchestrator.run_table.filters import (
    Condition,
    Conjunction,
    Disjunction,
    Filter,
    FilterError,
    lower_ascii,
    parse_filter,
)
from orchestrator.services.monitor import Monitor
from orchestrator.services.run_table import RunTable, read_query
from orchestrator.specs.differences import differences_of

RUNS_FOUND = 25
LONGEST_SEARCH = 200
MOST_WORDS = 10
SEARCHED = ("id", "experiment", "candidate", "optimizer", "model")
"""The fields of a run in which words are looked for."""
LISTED = ("candidate", "lr", "seed", "experiment", "model", "state", "val_loss")


def compare_pages(reader: Reader, monitor: Monitor, table: RunTable) -> APIRouter:
    """The page and its figures."""
    router = APIRouter(include_in_schema=False)
    handlers = ComparePages(reader, monitor, table)
    router.get("/compare")(handlers.page)
    router.get("/compare/figures/panel.{form}")(handlers.panel)
    return router


class ComparePages:
    """What answers."""

    def __init__(self, reader: Reader, monitor: Monitor, table: RunTable) -> None:
        self._reader, self._monitor, self._table = reader, monitor, table

    def page(self, request: Request) -> Response:
        """The chosen runs, and the search for others."""
        view = CompareView.parse(request.query_params.multi_items())
        runs, unknown = self._find(view.runs)
        metrics = _metrics(runs)
        if (edited := edited_address("/compare", view, request.query_params, metrics)) is not None:
            return RedirectResponse(edited, status_code=303)
        picker = find_runs(self._table, request.query_params.get("find"), view.runs)
        figures = f"/compare/figures/panel.json?runs={quote(','.join(view.runs))}"
        fields = group_fields(runs)
        differences = differences_of({run.key: run.specification() for run in runs})
        return page(
            "experiments/compare.html",
            status=422 if picker.fault else 200,
            version=self._monitor.version(),
            view=view,
            panels=page_panels("/compare", view, figures, fields, Panel(), metrics=metrics, keeps_one=True),
            runs=runs,
            external=sum(run.external is not None for run in runs),
            unknown=unknown,
            styles=compare.run_styles(runs),
            results=compare.result_rows(runs) if runs else (),
            different=compare.difference_rows(differences),
            equal=differences.equal,
            picker=picker,
            most=compare.MOST_RUNS,
        )

    def panel(self, form: FileForm, request: Request, theme: ThemeName = "light") -> Response:
        """A figure that a reader added."""
        view = CompareView.parse(request.query_params.multi_items())
        runs, _ = self._find(view.runs)
        tag = self._tag(runs)
        if (unchanged := unchanged_answer(tag, request)) is not None:
            return unchanged
        panel = Panel.parse(view.panels[0] if view.panels else "", _metrics(runs))
        lines = panel_lines(self._reader, runs, panel, compare.run_styles(runs))
        figure = RUNS_PANEL.draw(lines, panel, theme)
        title = RUNS_PANEL.title.format(runs=len(runs))
        return figure_answer(figure, form, theme, name="panel", title=title, tag=tag)

    def _find(self, keys: Iterable[str]) -> tuple[list[AnyRun], dict[str, AnyExperiment | None]]:
        """(runs that exist, keys of those that do not: with the experiment where it is deleted)."""
        found: list[AnyRun] = []
        unknown: dict[str, AnyExperiment | None] = {}
        for key in keys:
            try:
                found.append(self._reader.run(key))
            except NotFoundError as error:
                unknown[key] = deleted_experiment(self._reader.experiments, error)
        return found, unknown

    def _tag(self, runs: Iterable[AnyRun]) -> str:
        """The versions of the runs' experiments, and of external runs: what happens in others costs no points."""
        experiments = dict.fromkeys(run.record.experiment_id for run in runs if run.measured)
        versions = [str(self._reader.experiments.version(each)) for each in experiments]
        versions += [str(run.external.updated_at) for run in runs if run.external]
        return f'"{"-".join(versions)}"'


def _metrics(runs: Iterable[AnyRun]) -> dict[str, str]:
    """What can be drawn in panels, and what it is called: the bench's metrics, and what external runs told besides."""
    told = sorted({name for run in runs if run.external for name in run.external.metrics})
    return {name: name for name in told} | dict(PANEL_METRICS)


@dataclass(frozen=True, kw_only=True)
class FoundRun:
    """A run that can be chosen."""

    key: str
    """What addresses call it."""
    source: str
    """`bench`, `logged` or `imported`."""
    title: str
    facts: str
    """Where it belongs, and how far it is."""


@dataclass(frozen=True, kw_only=True)
class Picker:
    """The search for runs to compare, and what it found."""

    text: str
    runs: tuple[FoundRun, ...] = ()
    """Newest first, without those that are compared already."""
    more: bool = False
    """Whether there are further ones."""
    fault: str = ""

    def is_open(self) -> bool:
        """Whether anything is looked for, or can be chosen."""
        return bool(self.text or self.runs)


def find_runs(table: RunTable, text: str | None, chosen: Sequence[str]) -> Picker:
    """Runs that can be added to those that are chosen; none where nobody asks and some are chosen."""
    text = (text or "").strip()[:LONGEST_SEARCH]
    if not text and chosen:
        return Picker(text=text)
    try:
        asked = read_query(columns=LISTED, limit=RUNS_FOUND + len(chosen) + 1)
        asked = replace(asked, where=search_filter(text))
        rows = tuple(row for row in table.page(asked) if row.cursor() not in chosen)
    except FilterError as error:
        return Picker(text=text, fault=str(error))
    found = tuple(_describe_row(row, asked.columns) for row in rows[:RUNS_FOUND])
    return Picker(text=text, runs=found, more=len(rows) > RUNS_FOUND)


def _describe_row(row: TableRow, columns: Sequence[RunField]) -> FoundRun:
    values = [field_value(*each) for each in zip(columns, row.values, strict=True)]
    candidate, lr, seed, *facts = values
    known = (each for each in facts if each != formats.UNKNOWN)
    return FoundRun(
        key=row.cursor(),
        source=row.source,
        title=f"{candidate} lr {lr}, seed {seed}",
        facts=" · ".join(known),
    )


def search_filter(text: str) -> Filter | None:
    """What a search of runs means: a text with an operator is a filter, of others each word has to occur; None is every
    run. Raises `FilterError`."""
    if any(letter in text for letter in "=<>~"):
        return parse_filter(text)
    words = text.split()
    if len(words) > MOST_WORDS or "\x00" in text:
        raise FilterError(f"{len(words)} words; a search takes at most {MOST_WORDS}, without control characters")
    return Conjunction(tuple(_occurs(lower_ascii(word)) for word in words)) if words else None


def _occurs(word: str) -> Filter:
    return Disjunction(
        tuple(Condition(field=find_field(name), operator="~", text=word, number=None) for name in SEARCHED)
    )
