"""The pages: each is rendered whole by the server from a snapshot; scripts only keep it fresh and draw figures.

/                                        experiments of every source, newest first
/experiments/{id}                        leaderboard, figures, runs
/experiments/{id}/figures/{name}.{form}  a figure: json for Plotly.react, or a file
/experiments/{id}/table.{tex,md,csv}     the leaderboard as a file
/runs, /runs.csv                         every run, external ones too: filtered, sorted, grouped
/runs/{id}                               one run
/studies, /studies/{name}                what the paper claims, and what was measured
/runs/{id}/figures/{series,meters,probe}.{form}
/queue, /memory                          what is going on; what optimizers would keep
/keys                                    for admins: keys, and who changed what
/compare?runs=…                          any runs beside each other
/new                                     the submit form, and the same as YAML
/deleted, /experiments/{id}/edit, …      labels, notes, clone, delete and undo
/events, /experiments/{id}/events        server-sent events: changed, done
/static/{name}                           styles, scripts, Plotly.js
"""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from dashboards.assets import static_files
from dashboards.data.live import changes
from dashboards.data.panels import Panel, edited_address, experiment_fields, page_panels
from dashboards.data.reader import Reader
from dashboards.data.search import Search, find_experiments
from dashboards.figures.memory import breakdowns
from dashboards.figures.registry import FigureName
from dashboards.figures.sweep import searched_candidate
from dashboards.files.figures import FigureFiles, FileForm, figure_answer, table_file, unchanged_answer
from dashboards.files.publication import SUFFIXES
from dashboards.pages.all_runs import all_runs_pages
from dashboards.pages.compare import compare_pages
from dashboards.pages.curation import curation_pages, or_not_found_page
from dashboards.pages.logged import LoggedPages
from dashboards.pages.memory import memory_pages
from dashboards.pages.run import run_pages
from dashboards.pages.scaling import FitPages
from dashboards.pages.service import concerns, key_pages, queue_pages
from dashboards.pages.studies import study_pages
from dashboards.pages.submit import submit_pages
from dashboards.palette import ThemeName
from dashboards.render import page
from dashboards.text import words
from dashboards.view_state import ViewState
from orchestrator.external_runs import ExternalExperiment
from orchestrator.jobs import LIVE
from orchestrator.kinds.experiment import AnswerKind
from orchestrator.records import ExperimentRecord, RunRecord
from orchestrator.services.composition import Services
from orchestrator.services.experiments import Experiments
from orchestrator.services.monitor import Monitor
from orchestrator.studies.reports import Studies
from orchestrator.sweeps.records import TrialRow

EXPERIMENTS_SHOWN = 50
BESTS_SHOWN = 4
"""Candidates that the first page shows of an experiment."""
RUNS_SHOWN = 50
"""Runs on an experiment's page: a thousand would weigh a megabyte, and the table of all runs has them."""
TRIALS_SHOWN = 500
"""Rows of a sweep's table; the REST API has them all."""


def pages(
    services: Services, studies: Studies, reader: Reader, *, stopping: Callable[[], bool] = lambda: False
) -> APIRouter:
    """Return every page, figure, event stream and static file, to be included by the api.

    `reader` is that of REST, too: what one has looked up the other need not. `stopping` notifies open streams that the
    process is about to end, so that they end first.
    """
    router = APIRouter(include_in_schema=False)
    experiments, monitor = services.experiments, services.monitor
    laws = FitPages(reader, monitor)
    html, data = PageHandlers(reader, laws, services), FigureHandlers(reader, laws)
    router.get("/")(html.home)
    router.get("/experiments/{experiment_id}")(or_not_found_page(experiments, html.experiment))
    router.get("/experiments/{experiment_id}/table.{suffix}")(data.table)
    router.get("/experiments/{experiment_id}/figures/{name}.{form}")(data.experiment)
    router.include_router(laws.router())
    router.include_router(study_pages(studies))
    router.include_router(all_runs_pages(services.run_table))
    router.include_router(run_pages(reader, monitor))
    router.include_router(submit_pages(experiments, services.specifications, services.analysis))
    router.include_router(curation_pages(experiments, services.external_runs))
    router.include_router(compare_pages(reader, monitor))
    router.include_router(queue_pages(monitor))
    router.include_router(key_pages(services.keyring, services.audit))
    router.include_router(memory_pages(services.footprints))
    router.include_router(event_streams(experiments, monitor, stopping))
    router.include_router(static_files())
    return router


class PageHandlers:
    """The handlers of HTML."""

    def __init__(self, reader: Reader, laws: FitPages, services: Services) -> None:
        self._reader = reader
        self._laws = laws
        self._monitor = services.monitor
        self._logged = LoggedPages(reader)
        self._by_answer: dict[AnswerKind, Callable[[ExperimentRecord, ViewState, Request], Response]] = {
            AnswerKind.COMPARISON: self._comparison,
            AnswerKind.LAW: self._law,
            AnswerKind.FINDINGS: self._findings,
        }

    def home(self, request: Request) -> HTMLResponse:
        """Show experiments, with the best mean of each candidate, and live runs."""
        experiments, query = self._reader.experiments, Search.parse(request.query_params.multi_items())
        version = self._monitor.version()
        activity = self._monitor.activity(waiting=1)
        return page(
            "experiments/home.html",
            briefs=[
                self._reader.brief(experiment)
                for experiment in find_experiments(experiments, self._reader.external_runs, query, EXPERIMENTS_SHOWN)
            ],
            version=version,
            limit=EXPERIMENTS_SHOWN,
            bests_shown=BESTS_SHOWN,
            query=query,
            any_deleted=bool(experiments.page(limit=1, deleted=True)),
            activity=activity,
            concerns=concerns(activity, self._monitor.dispatch_blocker()),
        )

    def experiment(self, experiment_id: str, request: Request) -> Response:
        """Answer with an experiment's page; of a scaling experiment its law, or the comparison of one cell; of logged
        or imported runs their judgement."""
        whole = self._reader.experiments.find(experiment_id)
        if isinstance(whole, ExternalExperiment):
            return self._logged.page(whole, request)
        view = ViewState.parse(request.query_params.multi_items())
        answer = AnswerKind.COMPARISON if view.cell and whole.spec.cells() else whole.spec.answer
        return self._by_answer[answer](whole, view, request)

    def _comparison(self, whole: ExperimentRecord, view: ViewState, request: Request) -> Response:
        """Return a leaderboard, or that of one cell."""
        pairs, path = request.query_params.multi_items(), f"/experiments/{whole.id}"
        if (edited := edited_address(path, pairs)) is not None:
            return RedirectResponse(edited, status_code=303)
        snapshot = self._reader.snapshot(whole.id, view.cell, baseline=view.baseline)
        figures = f"{path}/figures/panel.json{view.figure_query()}"
        leaders = words.leaderboard(snapshot.comparison, snapshot.styles)
        return page(
            "experiments/experiment.html",
            snapshot=snapshot,
            dispatch_blocker=self._monitor.dispatch_blocker(),
            view=view,
            panels=page_panels(path, pairs, figures, experiment_fields(whole.spec), Panel(by="candidate")),
            whole=whole,
            leaders=leaders,
            shown_runs=first_runs(snapshot.runs),
            breakdowns=breakdowns(snapshot.comparison, snapshot.runs),
        )

    def _law(self, whole: ExperimentRecord, view: ViewState, request: Request) -> Response:
        """Return a scaling law, with the comparison of each cell."""
        return self._laws.scaling_page(whole, request)

    def _findings(self, whole: ExperimentRecord, view: ViewState, request: Request) -> Response:
        """Return a sweep; the query says whose hyperparameters are drawn."""
        pairs, path = request.query_params.multi_items(), f"/experiments/{whole.id}"
        if (edited := edited_address(path, pairs)) is not None:
            return RedirectResponse(edited, status_code=303)
        snapshot = self._reader.snapshot(whole.id)
        report = snapshot.sweep
        figures = f"{path}/figures/panel.json"
        candidate = request.query_params.get("candidate", "")
        return page(
            "experiments/sweep.html",
            snapshot=snapshot,
            dispatch_blocker=self._monitor.dispatch_blocker(),
            report=report,
            candidate=candidate,
            trials=sorted(report.trials, key=_objective_order)[:TRIALS_SHOWN],
            drawn=searched_candidate(snapshot, candidate),
            panels=page_panels(path, pairs, figures, experiment_fields(whole.spec), Panel(by="candidate")),
        )


def first_runs(runs: Sequence[RunRecord]) -> Sequence[RunRecord]:
    """Return the first runs of an experiment, those that are being trained before all others."""
    return sorted(runs, key=lambda run: (run.status not in LIVE, run.position))[:RUNS_SHOWN]


def _objective_order(trial: TrialRow) -> tuple[bool, float, int]:
    """Return a key that sorts trials without an objective last, by their latest loss."""
    loss = trial.last_val_loss if trial.objective is None else trial.objective
    return trial.objective is None, math.inf if loss is None else loss, trial.number


class FigureHandlers:
    """The handlers of figures and tables; an unchanged figure is answered with 304 and nothing else."""

    def __init__(self, reader: Reader, laws: FitPages) -> None:
        self._reader = reader
        self._laws = laws
        self._logged, self._files = LoggedPages(reader), FigureFiles(reader)

    def experiment(
        self,
        experiment_id: str,
        name: FigureName,
        form: FileForm,
        request: Request,
        theme: ThemeName = "light",
        narrow: bool = False,
    ) -> Response:
        """Return a figure of an experiment, as the view in the query asks for it."""
        found = self._reader.experiments.find(experiment_id)
        if isinstance(found, ExternalExperiment):
            return self._logged.figure(found, name, form, request, theme)
        if name in ("law", "residuals"):
            return self._laws.figure([found], name, form, request, theme)
        query, tag = request.query_params, f'"{self._reader.experiments.version(found.id)}"'
        if (unchanged := unchanged_answer(tag, request)) is not None:
            return unchanged
        candidate, panel = query.get("candidate", ""), query.get("panel", "")
        state = ViewState.parse(query.multi_items())
        drawn = self._files.picture(found.id, name, state, theme, narrow=narrow, candidate=candidate, panel=panel)
        return figure_answer(drawn.figure, form, theme, name=f"{found.id}-{name}", title=drawn.title, tag=tag)

    def table(self, experiment_id: str, suffix: Literal["tex", "md", "csv"], request: Request) -> Response:
        """Return the leaderboard as a file."""
        view = ViewState.parse(request.query_params.multi_items())
        comparison = self._reader.snapshot(experiment_id, view.cell, baseline=view.baseline).comparison
        return table_file(comparison, next(form for form, ending in SUFFIXES.items() if ending == suffix))


def event_streams(experiments: Experiments, monitor: Monitor, stopping: Callable[[], bool]) -> APIRouter:
    """Return the streams that make pages refresh themselves."""
    router = APIRouter(include_in_schema=False)

    def existing_id(experiment_id: str) -> str:
        return experiments.get(experiment_id).id  # a 404 must come before the stream has begun

    @router.get("/events", response_class=EventSourceResponse)
    async def home_events(seen: Annotated[int | None, Depends(last_seen_version)]) -> AsyncIterator[ServerSentEvent]:
        async for event in changes(monitor.version, seen, ended=lambda: False, stopping=stopping):
            yield event

    @router.get("/experiments/{experiment_id}/events", response_class=EventSourceResponse)
    async def experiment_events(
        found: Annotated[str, Depends(existing_id)], seen: Annotated[int | None, Depends(last_seen_version)]
    ) -> AsyncIterator[ServerSentEvent]:
        version = partial(experiments.version, found)
        async for event in changes(
            version, seen, ended=lambda: experiments.get(found).counts.done(), stopping=stopping
        ):
            yield event

    return router


def last_seen_version(
    since: Annotated[int | None, Query()] = None, last_event_id: Annotated[int | None, Header()] = None
) -> int | None:
    """Return the version that the listener shows: of the last event before its connection broke, else of its page."""
    return since if last_event_id is None else last_event_id
