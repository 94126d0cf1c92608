"""`/compare?runs=…`: any runs of any experiments beside each other."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Header, Request, Response

from dashboards.data.reader import Reader
from dashboards.figures import compare
from dashboards.figures.compare import METRICS, X_TITLES, CompareView
from dashboards.figures.panels import Panel, group_fields
from dashboards.figures.registry import OVERLAY, RUNS_PANEL
from dashboards.files.figures import FileForm, figure_answer
from dashboards.pages.curation import deleted_experiment
from dashboards.pages.views import edited_address, page_panels, page_views
from dashboards.palette import ThemeName
from dashboards.render import page
from orchestrator.errors import NotFoundError
from orchestrator.records import AnyExperiment, RunRecord
from orchestrator.services.monitor import Monitor
from orchestrator.store.saved_views import SavedViews


def compare_pages(reader: Reader, monitor: Monitor, views: SavedViews) -> APIRouter:
    """The page and its figure."""
    router = APIRouter(include_in_schema=False)

    @router.get("/compare")
    def comparison_page(request: Request) -> Response:
        view = CompareView.parse(request.query_params.multi_items())
        if (edited := edited_address("/compare", view, request)) is not None:
            return edited
        version = monitor.version()
        runs, unknown = _runs(reader, view)
        figures = f"/compare/figures/panel.json?runs={quote(','.join(view.runs))}"
        return page(
            "compare.html",
            version=version,
            view=view,
            panels=page_panels("/compare", view, figures, group_fields(runs), Panel()),
            page_views=page_views(views, "/compare", view.query()),
            runs=runs,
            unknown=unknown,
            styles=compare.run_styles(runs),
            names={one: reader.experiments.get_any(one).name for one in {run.experiment_id for run in runs}},
            results=compare.result_rows(runs) if runs else (),
            differences=compare.spec_differences(runs),
            axes=[(view.replace(x=name).query(), text, view.x == name) for name, text in X_TITLES.items()],
            metrics=[(view.replace(metric=name).query(), text, view.metric == name) for name, text in METRICS.items()],
            most=compare.MOST_RUNS,
        )

    @router.get("/compare/figures/overlay.{form}")
    def overlay(
        form: FileForm,
        request: Request,
        theme: ThemeName = "light",
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        view = CompareView.parse(request.query_params.multi_items())
        tag = _tag(reader, view)
        if if_none_match == tag:
            return Response(status_code=304, headers={"ETag": tag})
        runs, _ = _runs(reader, view)
        figure = OVERLAY.draw(runs, [reader.own_series(run) for run in runs], view, theme)
        title = OVERLAY.title.format(runs=len(runs), metric=compare.metric_title(runs, view.metric))
        return figure_answer(figure, form, theme, name="compared-runs", title=title, tag=tag)

    @router.get("/compare/figures/panel.{form}")
    def panel_of_runs(
        form: FileForm,
        request: Request,
        theme: ThemeName = "light",
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        view = CompareView.parse(request.query_params.multi_items())
        tag = _tag(reader, view)
        if if_none_match == tag:
            return Response(status_code=304, headers={"ETag": tag})
        runs, _ = _runs(reader, view)
        panel = Panel.parse(view.panels[0] if view.panels else "")
        figure = RUNS_PANEL.draw(reader, runs, panel, compare.run_styles(runs), theme)
        title = RUNS_PANEL.title.format(runs=len(runs))
        return figure_answer(figure, form, theme, name="panel", title=title, tag=tag)

    return router


def _tag(reader: Reader, view: CompareView) -> str:
    """The versions of the runs' experiments: what happens in others costs no points."""
    runs, _ = _runs(reader, view)
    ids = dict.fromkeys(run.experiment_id for run in runs)
    return f'"{"-".join(str(reader.experiments.version(each)) for each in ids)}"'


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
