"""The pages: each is rendered whole by the server from a snapshot; scripts only keep it fresh and draw figures.

/                                        experiments, newest first
/experiments/{id}                        leaderboard, figures, runs
/experiments/{id}/figures/{name}.json    a figure for Plotly.react
/experiments/{id}/table.{tex,md,csv}     the leaderboard as a file
/runs/{id}                               one run
/runs/{id}/figures/series.json
/new                                     the submit form, and the same as YAML
/events, /experiments/{id}/events        server-sent events: changed, done
/static/{name}                           styles, scripts, Plotly.js
"""

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from dashboards import experiment_figures, views
from dashboards.assets import static_files
from dashboards.downloads import table_file
from dashboards.drawing import Figure
from dashboards.experiment_figures import FigureName
from dashboards.figures import run_series
from dashboards.live import Pulse, changes
from dashboards.palette import ThemeName
from dashboards.publication import SUFFIXES
from dashboards.reader import Reader
from dashboards.render import page
from dashboards.submitting import submit_pages
from dashboards.viewstate import ViewState
from orchestrator.errors import NotFoundError
from orchestrator.service import Bench

EXPERIMENTS_SHOWN = 50
RUNS_SHOWN = 500
"""Rows of the run table; the REST API pages through more."""


def pages(bench: Bench, *, stopping: Callable[[], bool] = lambda: False) -> APIRouter:
    """Every page, figure, event stream and static file, to be included by the api.

    `stopping` tells open streams that the process is about to end, so that they end first.
    """
    router = APIRouter(include_in_schema=False)
    reader = Reader(bench)
    html, data = PageHandlers(reader), FigureHandlers(reader)
    router.get("/")(html.home)
    router.get("/experiments/{experiment_id}")(html.experiment)
    router.get("/runs/{run_id}")(html.run)
    router.get("/experiments/{experiment_id}/table.{suffix}")(data.table)
    router.get("/experiments/{experiment_id}/figures/{name}.json")(data.experiment)
    router.get("/runs/{run_id}/figures/series.json")(data.run)
    router.include_router(submit_pages(bench))
    router.include_router(event_streams(bench, stopping))
    router.include_router(static_files())
    return router


def missing_page(what: str) -> HTMLResponse:
    """The 404 page for people; `what` says in a sentence what was not found."""
    return page("missing.html", status=404, what=what[:1].upper() + what[1:])


class PageHandlers:
    """What answers with HTML."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def home(self) -> HTMLResponse:
        """All experiments, with the best candidate of each."""
        version = self._reader.bench.version()
        experiments = self._reader.bench.experiments(limit=EXPERIMENTS_SHOWN)
        snapshots = [self._reader.snapshot(one.id) for one in experiments]
        return page(
            "home.html",
            snapshots=snapshots,
            version=version,
            limit=EXPERIMENTS_SHOWN,
            hindrance=self._reader.bench.hindrance(),
        )

    def experiment(self, experiment_id: str, request: Request) -> HTMLResponse:
        """One experiment."""
        try:
            snapshot = self._reader.snapshot(experiment_id)
        except NotFoundError as error:
            return missing_page(str(error))
        return page(
            "experiment.html",
            snapshot=snapshot,
            hindrance=self._reader.bench.hindrance(),
            view=ViewState.parse(request.query_params.multi_items()),
            leaders=views.leaders(snapshot.comparison, snapshot.styles),
            runs_shown=RUNS_SHOWN,
        )

    def run(self, run_id: str) -> HTMLResponse:
        """One run."""
        bench = self._reader.bench
        try:
            run = bench.run(run_id)
        except NotFoundError as error:
            return missing_page(str(error))
        return page(
            "run.html",
            run=run,
            snapshot=self._reader.snapshot(run.experiment_id),
            events=bench.events(run_id),
            attempts=bench.attempts(run_id),
            hindrance=bench.hindrance(),
            standing=bench.standing(run_id),
        )


class FigureHandlers:
    """What answers with figures as JSON; an unchanged figure is answered with 304 and nothing else."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def experiment(
        self,
        experiment_id: str,
        name: FigureName,
        request: Request,
        theme: ThemeName = "light",
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        """A figure of an experiment, as the view in the query asks for it."""
        snapshot = self._reader.snapshot(experiment_id)
        view = ViewState.parse(request.query_params.multi_items())
        tag = f'"{snapshot.version}"'
        if if_none_match == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return _json(experiment_figures.figure(self._reader, snapshot, name, view, theme), tag)

    def table(self, experiment_id: str, suffix: Literal["tex", "md", "csv"]) -> Response:
        """The leaderboard as a file."""
        comparison = self._reader.snapshot(experiment_id).comparison
        return table_file(comparison, next(form for form, ending in SUFFIXES.items() if ending == suffix))

    def run(self, run_id: str, theme: ThemeName = "light") -> Response:
        """A run's own series."""
        run = self._reader.bench.run(run_id)
        snapshot = self._reader.snapshot(run.experiment_id)
        one = self._reader.own_series(run)
        title = views.loss_title(snapshot.comparison)
        drawn = run_series(one, snapshot.styles[run.candidate], run.steps_total, theme, title=title)
        return _json(drawn, f'"{snapshot.version}"')


def event_streams(bench: Bench, stopping: Callable[[], bool]) -> APIRouter:
    """The streams that tell pages to refresh themselves."""
    router = APIRouter(include_in_schema=False)
    everything = Pulse(lambda _: bench.version())
    experiments = Pulse(bench.experiment_version)

    def existing(experiment_id: str) -> str:
        return bench.experiment(experiment_id).id  # a 404 must come before the stream has begun

    def ended(experiment_id: str) -> bool:
        return bench.experiment(experiment_id).counts.done()

    @router.get("/events", response_class=EventSourceResponse)
    async def home_events(seen: Annotated[int | None, Depends(last_seen)]) -> AsyncIterator[ServerSentEvent]:
        async for event in changes(everything, "", seen, ended=lambda _: False, stopping=stopping):
            yield event

    @router.get("/experiments/{experiment_id}/events", response_class=EventSourceResponse)
    async def experiment_events(
        found: Annotated[str, Depends(existing)], seen: Annotated[int | None, Depends(last_seen)]
    ) -> AsyncIterator[ServerSentEvent]:
        async for event in changes(experiments, found, seen, ended=ended, stopping=stopping):
            yield event

    return router


def last_seen(
    since: Annotated[int | None, Query()] = None, last_event_id: Annotated[int | None, Header()] = None
) -> int | None:
    """The version that the listener shows: of the last event before its connection broke, else of its page."""
    return since if last_event_id is None else last_event_id


def _json(figure: Figure, tag: str) -> JSONResponse:
    return JSONResponse(figure, headers={"ETag": tag, "Cache-Control": "no-cache"})
