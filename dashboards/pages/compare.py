"""`/compare?runs=A,B`: any runs of any experiments beside each other, logged and imported ones too."""

from collections.abc import Iterable
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from dashboards.data.any_run import AnyRun, group_fields
from dashboards.data.panels import METRICS as PANEL_METRICS
from dashboards.data.panels import Panel, edited_address, page_panels
from dashboards.data.reader import Reader
from dashboards.figures import compare
from dashboards.figures.compare import FIRST_PANELS, CompareView
from dashboards.figures.panels import draw_panel, panel_lines
from dashboards.files.figures import FileForm, figure_answer, unchanged_answer
from dashboards.pages.curation import deleted_experiment
from dashboards.palette import ThemeName
from dashboards.render import page
from orchestrator.errors import NotFoundError
from orchestrator.records import AnyExperiment
from orchestrator.services.monitor import Monitor
from orchestrator.specs.differences import differences_of


def compare_pages(reader: Reader, monitor: Monitor) -> APIRouter:
    """Return the page and its figures."""
    router = APIRouter(include_in_schema=False)
    handlers = ComparePages(reader, monitor)
    router.get("/compare")(handlers.page)
    router.get("/compare/figures/panel.{form}")(handlers.panel)
    return router


class ComparePages:
    """The handlers of the pages."""

    def __init__(self, reader: Reader, monitor: Monitor) -> None:
        self._reader, self._monitor = reader, monitor

    def page(self, request: Request) -> Response:
        """Return the chosen runs."""
        pairs = request.query_params.multi_items()
        view = CompareView.parse(pairs)
        runs, unknown = self._find(view.runs)
        metrics = _metrics(runs)
        if (edited := edited_address("/compare", pairs, metrics=metrics, first=FIRST_PANELS)) is not None:
            return RedirectResponse(edited, status_code=303)
        figures = f"/compare/figures/panel.json?runs={quote(','.join(view.runs))}"
        fields = group_fields(runs)
        differences = differences_of({run.key: run.specification() for run in runs})
        return page(
            "experiments/compare.html",
            version=self._monitor.version(),
            view=view,
            panels=page_panels("/compare", pairs, figures, fields, Panel(), metrics=metrics, first=FIRST_PANELS),
            runs=runs,
            external=sum(run.external is not None for run in runs),
            unknown=unknown,
            styles=compare.run_styles(runs),
            results=compare.result_rows(runs) if runs else (),
            different=compare.difference_rows(differences),
            equal=differences.equal,
            most=compare.MOST_RUNS,
        )

    def panel(self, form: FileForm, request: Request, theme: ThemeName = "light") -> Response:
        """Return a figure that a reader added."""
        view = CompareView.parse(request.query_params.multi_items())
        runs, _ = self._find(view.runs)
        # What happens in other experiments costs no points.
        experiments = dict.fromkeys(run.record.experiment_id for run in runs if run.measured)
        versions = [str(self._reader.experiments.version(experiment_id)) for experiment_id in experiments]
        versions += [str(run.external.updated_at) for run in runs if run.external]
        tag = f'"{"-".join(versions)}"'
        if (unchanged := unchanged_answer(tag, request)) is not None:
            return unchanged
        panel = Panel.parse(view.panels[0] if view.panels else "", _metrics(runs))
        lines = panel_lines(self._reader, runs, panel, compare.run_styles(runs))
        title = f"{len(runs)} runs compared"
        return figure_answer(draw_panel(lines, panel, theme), form, theme, name="panel", title=title, tag=tag)

    def _find(self, keys: Iterable[str]) -> tuple[list[AnyRun], dict[str, AnyExperiment | None]]:
        """Return (existing runs, keys of missing ones), deleted ones with their experiment."""
        runs: list[AnyRun] = []
        unknown: dict[str, AnyExperiment | None] = {}
        for key in keys:
            try:
                runs.append(self._reader.run(key))
            except NotFoundError as error:
                unknown[key] = deleted_experiment(self._reader.experiments, error)
        return runs, unknown


def _metrics(runs: Iterable[AnyRun]) -> dict[str, str]:
    """Return the metrics that panels can draw, and their titles: the bench's, and those of external runs."""
    external_metrics = sorted({name for run in runs if run.external for name in run.external.metrics})
    return {name: name for name in external_metrics} | dict(PANEL_METRICS)
