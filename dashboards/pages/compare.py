"""`/compare?runs=…`: any runs of any experiments beside each other, and the search by which they are chosen.

/compare?runs=…&find=adapm tiny     runs in which each of these words occurs, to be added
/compare?find=lr<0.01 and seed=1    the same by a filter of the table of all runs
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from dashboards.data.reader import Reader
from dashboards.figures import compare
from dashboards.figures.compare import METRICS, X_TITLES, CompareView
from dashboards.figures.panels import Panel, group_fields
from dashboards.figures.registry import OVERLAY, RUNS_PANEL
from dashboards.files.figures import FileForm, figure_answer, unchanged_answer
from dashboards.pages.curation import deleted_experiment
from dashboards.pages.views import edited_address, page_panels, page_views
from dashboards.palette import ThemeName
from dashboards.render import page
from dashboards.text.words import field_value
from orchestrator.errors import NotFoundError
from orchestrator.records import AnyExperiment, RunRecord
from orchestrator.run_table.fields import find_field
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
from orchestrator.specs.differences import spec_differences
from orchestrator.store.saved_views import SavedViews

RUNS_FOUND = 25
LONGEST_SEARCH = 200
MOST_WORDS = 10
SEARCHED = ("id", "experiment", "candidate", "optimizer", "model")
"""The fields of a run in which words are looked for."""
LISTED = ("candidate", "lr", "seed", "experiment", "model", "state", "val_loss")


def compare_pages(reader: Reader, monitor: Monitor, views: SavedViews, table: RunTable) -> APIRouter:
    """The page and its figure."""
    router = APIRouter(include_in_schema=False)

    @router.get("/compare")
    def comparison_page(request: Request) -> Response:
        view = CompareView.parse(request.query_params.multi_items())
        if (edited := edited_address("/compare", view, request)) is not None:
            return edited
        version = monitor.version()
        runs, unknown = _runs(reader, view)
        differences = spec_differences(runs)
        picker = find_runs(table, request.query_params.get("find"), view.runs)
        figures = f"/compare/figures/panel.json?runs={quote(','.join(view.runs))}"
        return page(
            "compare.html",
            status=422 if picker.fault else 200,
            version=version,
            view=view,
            panels=page_panels("/compare", view, figures, group_fields(runs), Panel()),
            page_views=page_views(views, "/compare", view.query()),
            runs=runs,
            unknown=unknown,
            styles=compare.run_styles(runs),
            names={one: reader.experiments.get_any(one).name for one in {run.experiment_id for run in runs}},
            results=compare.result_rows(runs) if runs else (),
            differences=compare.difference_rows(differences),
            equal=differences.equal,
            picker=picker,
            axes=[(view.replace(x=name).query(), text, view.x == name) for name, text in X_TITLES.items()],
            metrics=[(view.replace(metric=name).query(), text, view.metric == name) for name, text in METRICS.items()],
            most=compare.MOST_RUNS,
        )

    @router.get("/compare/figures/overlay.{form}")
    def overlay(form: FileForm, request: Request, theme: ThemeName = "light") -> Response:
        view = CompareView.parse(request.query_params.multi_items())
        runs, tag = _tagged_runs(reader, view)
        if (unchanged := unchanged_answer(tag, request)) is not None:
            return unchanged
        figure = OVERLAY.draw(runs, [reader.own_series(run) for run in runs], view, theme)
        title = OVERLAY.title.format(runs=len(runs), metric=compare.metric_title(runs, view.metric))
        return figure_answer(figure, form, theme, name="compared-runs", title=title, tag=tag)

    @router.get("/compare/figures/panel.{form}")
    def panel_of_runs(form: FileForm, request: Request, theme: ThemeName = "light") -> Response:
        view = CompareView.parse(request.query_params.multi_items())
        runs, tag = _tagged_runs(reader, view)
        if (unchanged := unchanged_answer(tag, request)) is not None:
            return unchanged
        panel = Panel.parse(view.panels[0] if view.panels else "")
        figure = RUNS_PANEL.draw(reader, runs, panel, compare.run_styles(runs), theme)
        title = RUNS_PANEL.title.format(runs=len(runs))
        return figure_answer(figure, form, theme, name="panel", title=title, tag=tag)

    return router


@dataclass(frozen=True, kw_only=True)
class FoundRun:
    """A run that can be chosen."""

    id: str
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
    """Runs of the bench that can be added to those that are chosen; none where nobody asks and some are chosen."""
    text = (text or "").strip()[:LONGEST_SEARCH]
    if not text and chosen:
        return Picker(text=text)
    try:
        asked = read_query(columns=LISTED, limit=RUNS_FOUND + len(chosen) + 1)
        asked = replace(asked, where=search_filter(text))
        rows = tuple(row for row in table.page(asked) if row.id not in chosen)
    except FilterError as error:
        return Picker(text=text, fault=str(error))
    found = tuple(
        _found_run(row.id, [field_value(*each) for each in zip(asked.columns, row.values, strict=True)])
        for row in rows[:RUNS_FOUND]
    )
    return Picker(text=text, runs=found, more=len(rows) > RUNS_FOUND)


def _found_run(run_id: str, values: Sequence[str]) -> FoundRun:
    candidate, lr, seed, *facts = values
    return FoundRun(id=run_id, title=f"{candidate} lr {lr}, seed {seed}", facts=" · ".join(facts))


def search_filter(text: str) -> Filter:
    """What a search of the bench's runs means: a text with an operator is a filter, of others each word has to occur.
    Raises `FilterError`."""
    of_bench = Condition(field=find_field("origin"), operator="=", text="bench", number=None)
    if any(letter in text for letter in "=<>~"):
        asked = parse_filter(text)
        return Conjunction((of_bench, *([asked] if asked else [])))
    words = text.split()
    if len(words) > MOST_WORDS or "\x00" in text:
        raise FilterError(f"{len(words)} words; a search takes at most {MOST_WORDS}, without control characters")
    return Conjunction((of_bench, *(_occurs(lower_ascii(word)) for word in words)))


def _occurs(word: str) -> Filter:
    return Disjunction(
        tuple(Condition(field=find_field(name), operator="~", text=word, number=None) for name in SEARCHED)
    )


def _tagged_runs(reader: Reader, view: CompareView) -> tuple[list[RunRecord], str]:
    """The runs, and the versions of their experiments: what happens in others costs no points."""
    runs, _ = _runs(reader, view)
    ids = dict.fromkeys(run.experiment_id for run in runs)
    return runs, f'"{"-".join(str(reader.experiments.version(each)) for each in ids)}"'


def _runs(reader: Reader, view: CompareView) -> tuple[list[RunRecord], dict[str, AnyExperiment | None]]:
    """(runs that exist, ids that do not: with the experiment where it is deleted)."""
    found: list[RunRecord] = []
    unknown: dict[str, AnyExperiment | None] = {}
    for run_id in view.runs:
        try:
            found.append(reader.runs.get(run_id))
        except NotFoundError as error:
            unknown[run_id] = deleted_experiment(reader.experiments, error)
    return found, unknown
