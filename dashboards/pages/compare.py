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

from dashboards.data.compared import ComparedRun, group_fields
from dashboards.data.panels import METRICS as PANEL_METRICS
from dashboards.data.panels import Panel, edited_address, page_panels
from dashboards.data.reader import Reader
from dashboards.data.series import AXIS_TITLES, OWN_FIELDS, Series, external_columns, external_series, spiky_rows
from dashboards.figures import compare
from dashboards.figures.compare import METRICS, CompareView
from dashboards.figures.panels import external_lines, run_lines
from dashboards.figures.registry import OVERLAY, RUNS_PANEL
from dashboards.files.figures import FileForm, figure_answer, unchanged_answer
from dashboards.pages.curation import deleted_experiment
from dashboards.palette import ThemeName
from dashboards.render import page
from dashboards.text import formats
from dashboards.text.words import field_value
from orchestrator.errors import NotFoundError
from orchestrator.external_runs import USUAL_METRICS, ExternalState
from orchestrator.records import AnyExperiment
from orchestrator.run_table.fields import EXTERNAL, RunField, TableRow, find_field
from orchestrator.run_table.filters import (
    Condition,
    Conjunction,
    Disjunction,
    Filter,
    FilterError,
    lower_ascii,
    parse_filter,
)
from orchestrator.services.external_runs import ExternalRuns
from orchestrator.services.monitor import Monitor
from orchestrator.services.run_table import RunTable, read_query
from orchestrator.specs.differences import differences_of

RUNS_FOUND = 25
LONGEST_SEARCH = 200
MOST_WORDS = 10
SEARCHED = ("id", "experiment", "candidate", "optimizer", "model")
"""The fields of a run in which words are looked for."""
LISTED = ("candidate", "lr", "seed", "experiment", "model", "state", "val_loss")


def compare_pages(reader: Reader, external_runs: ExternalRuns, monitor: Monitor, table: RunTable) -> APIRouter:
    """The page and its figures."""
    router = APIRouter(include_in_schema=False)
    handlers = ComparePages(reader, external_runs, monitor, table)
    router.get("/compare")(handlers.page)
    router.get("/compare/figures/overlay.{form}")(handlers.overlay)
    router.get("/compare/figures/panel.{form}")(handlers.panel)
    return router


class ComparePages:
    """What answers."""

    def __init__(self, reader: Reader, external_runs: ExternalRuns, monitor: Monitor, table: RunTable) -> None:
        self._reader, self._external_runs, self._monitor = reader, external_runs, monitor
        self._table = table

    def page(self, request: Request) -> Response:
        """The chosen runs, and the search for others."""
        view = CompareView.parse(request.query_params.multi_items())
        runs, unknown = self._find(view.runs)
        metrics = _metrics(runs)
        if (edited := edited_address("/compare", view, request.query_params, metrics)) is not None:
            return RedirectResponse(edited, status_code=303)
        picker = find_runs(self._table, request.query_params.get("find"), view.runs)
        figures = f"/compare/figures/panel.json?runs={quote(','.join(view.runs))}"
        fields = group_fields([run.record for run in runs])
        external = [run.key for run in runs if run.external]
        return page(
            "experiments/compare.html",
            status=422 if picker.fault else 200,
            version=self._monitor.version(),
            view=view,
            panels=page_panels("/compare", view, figures, fields, Panel(), metrics=metrics),
            runs=runs,
            external=len(external),
            undrawn=compare.undrawn_runs(runs, view.x),
            undrawn_over=AXIS_TITLES[view.x],
            unknown=unknown,
            styles=compare.run_styles(runs),
            results=compare.result_rows(runs) if runs else (),
            differences=compare.difference_rows(
                differences_of({run.key: run.specification() for run in runs}), external
            ),
            picker=picker,
            axes=[(view.replace(x=name).query(), text, view.x == name) for name, text in AXIS_TITLES.items()],
            metrics=[(view.replace(metric=name).query(), text, view.metric == name) for name, text in METRICS.items()],
            most=compare.MOST_RUNS,
        )

    def overlay(self, form: FileForm, request: Request, theme: ThemeName = "light") -> Response:
        """One metric of every run."""
        view = CompareView.parse(request.query_params.multi_items())
        runs, _ = self._find(view.runs)
        tag = self._tag(runs)
        if (unchanged := unchanged_answer(tag, request)) is not None:
            return unchanged
        figure = OVERLAY.draw(runs, [self._series(run) for run in runs], view, theme)
        title = OVERLAY.title.format(runs=len(runs), metric=compare.metric_title(runs, view.metric))
        return figure_answer(figure, form, theme, name="compared-runs", title=title, tag=tag)

    def panel(self, form: FileForm, request: Request, theme: ThemeName = "light") -> Response:
        """A figure that a reader added."""
        view = CompareView.parse(request.query_params.multi_items())
        runs, _ = self._find(view.runs)
        tag = self._tag(runs)
        if (unchanged := unchanged_answer(tag, request)) is not None:
            return unchanged
        panel = Panel.parse(view.panels[0] if view.panels else "", _metrics(runs))
        styles = compare.run_styles(runs)
        measured = [run.measured for run in runs if run.measured]
        told = [run.external for run in runs if run.external]
        lines = run_lines(self._reader, measured, panel, styles)
        lines |= external_lines(told, self._external_runs.series, panel, styles)
        figure = RUNS_PANEL.draw([lines[run.key] for run in runs if run.key in lines], panel, theme)
        title = RUNS_PANEL.title.format(runs=len(runs))
        return figure_answer(figure, form, theme, name="panel", title=title, tag=tag)

    def _find(self, keys: Iterable[str]) -> tuple[list[ComparedRun], dict[str, AnyExperiment | None]]:
        """(runs that exist, keys of those that do not: with the experiment where it is deleted)."""
        found: list[ComparedRun] = []
        unknown: dict[str, AnyExperiment | None] = {}
        for key in keys:
            try:
                found.append(self._get(key))
            except NotFoundError as error:
                unknown[key] = deleted_experiment(self._reader.experiments, error)
        return found, unknown

    def _get(self, key: str) -> ComparedRun:
        if key.startswith(EXTERNAL):
            told = self._external_runs.run(key.removeprefix(EXTERNAL))
            return ComparedRun(record=told, experiment=told.experiment)
        run = self._reader.runs.get(key)
        return ComparedRun(record=run, experiment=self._reader.experiments.get_any(run.experiment_id).name)

    def _series(self, run: ComparedRun) -> Series:
        if (told := run.external) is None:
            assert run.measured is not None
            return self._reader.own_series(run.measured)
        columns = external_columns(self._external_runs.series(told.id, (*OWN_FIELDS, *USUAL_METRICS)), OWN_FIELDS)
        return spiky_rows(external_series(columns, ended=told.state is not ExternalState.RUNNING), columns)

    def _tag(self, runs: Iterable[ComparedRun]) -> str:
        """The versions of the runs' experiments, and of external runs: what happens in others costs no points."""
        experiments = dict.fromkeys(run.record.experiment_id for run in runs if run.measured)
        versions = [str(self._reader.experiments.version(each)) for each in experiments]
        versions += [str(run.external.updated_at) for run in runs if run.external]
        return f'"{"-".join(versions)}"'


def _metrics(runs: Iterable[ComparedRun]) -> dict[str, str]:
    """What can be drawn in panels, and what it is called: the bench's metrics, and what external runs told besides."""
    told = sorted({name for run in runs if run.external for name in run.external.metrics})
    return {name: name for name in told} | dict(PANEL_METRICS)


@dataclass(frozen=True, kw_only=True)
class FoundRun:
    """A run that can be chosen."""

    key: str
    """What addresses call it."""
    is_external: bool
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
        is_external=row.is_external,
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
