"""`/runs/{id}`: one run with everything that is known of it: series, probes, result, attempts, events, log."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from dashboards import run_figures, views
from dashboards.drawing import Figure
from dashboards.figures import run_series
from dashboards.palette import ThemeName
from dashboards.reader import Reader
from dashboards.render import missing_page, page
from dashboards.run_figures import METERS
from orchestrator.errors import NotFoundError
from orchestrator.records import AttemptRecord
from worker.record import Observation

LOG_BYTES = 12_000
"""The end of a log that the page shows; the whole of it is one link away."""
Chosen = Annotated[str | None, Query(max_length=64)]


def run_pages(reader: Reader) -> APIRouter:
    """The page and its figures."""
    router = APIRouter(include_in_schema=False)
    handlers = RunHandlers(reader)
    router.get("/runs/{run_id}")(handlers.page)
    router.get("/runs/{run_id}/figures/series.json")(handlers.series)
    router.get("/runs/{run_id}/figures/meters.json")(handlers.meters)
    router.get("/runs/{run_id}/figures/probe.json")(handlers.probe)
    return router


class RunHandlers:
    """What answers for one run."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def page(self, run_id: str, request: Request, probe: Chosen = None, quantity: Chosen = None) -> HTMLResponse:
        """The page; what its probes saw is chosen by the query."""
        bench = self._reader.bench
        try:
            run = bench.run(run_id)
        except NotFoundError as error:
            return missing_page(str(error))
        attempts = bench.attempts(run_id)
        seen = bench.observations(run_id) if run.spec.workload.probes else ()
        found = run_figures.probed(seen)
        chosen = found.chosen(probe, quantity)
        return page(
            "run.html",
            run=run,
            snapshot=self._reader.snapshot(run.experiment_id),
            whole=bench.experiment(run.experiment_id),
            events=bench.events(run_id),
            attempts=attempts,
            checkpoints=bench.checkpoints(run_id),
            log=self._log(run_id, attempts),
            hindrance=bench.hindrance(),
            standing=bench.standing(run_id),
            probed=found,
            chosen=chosen,
            observed=run_figures.last_observed(seen, chosen[0]) if chosen else None,
        )

    def series(self, run_id: str, theme: ThemeName = "light", narrow: bool = False) -> Response:
        """Losses, learning rate, gradient norm and step time."""
        run = self._reader.bench.run(run_id)
        snapshot = self._reader.snapshot(run.experiment_id)
        one = self._reader.own_series(run)
        title = views.loss_title(snapshot.comparison)
        drawn = run_series(one, snapshot.styles[run.candidate], run.steps_total, theme, title=title, narrow=narrow)
        return figure_answer(drawn, snapshot.version)

    def meters(self, run_id: str, theme: ThemeName = "light", narrow: bool = False) -> Response:
        """Every other series."""
        run = self._reader.bench.run(run_id)
        snapshot = self._reader.snapshot(run.experiment_id)
        columns = self._reader.bench.series(run_id, tuple(METERS))
        drawn = run_figures.meters(columns, snapshot.styles[run.candidate], theme, narrow=narrow)
        return figure_answer(drawn, snapshot.version)

    def probe(self, run_id: str, theme: ThemeName = "light", probe: Chosen = None, quantity: Chosen = None) -> Response:
        """What a probe saw of every block."""
        run = self._reader.bench.run(run_id)
        seen: tuple[Observation, ...] = self._reader.bench.observations(run_id)
        chosen = run_figures.probed(seen).chosen(probe, quantity) or ("", "")
        version = self._reader.snapshot(run.experiment_id).version
        return figure_answer(run_figures.probe_heatmap(seen, *chosen, theme), version)

    def _log(self, run_id: str, attempts: tuple[AttemptRecord, ...]) -> str | None:
        """The end of the newest attempt's log; None where it left none here."""
        if not attempts:
            return None
        try:
            return self._reader.bench.log_tail(run_id, attempts[-1].attempt, LOG_BYTES)
        except NotFoundError:
            return None


def figure_answer(figure: Figure, version: int, **headers: Any) -> JSONResponse:
    """A figure that browsers ask for anew, tagged with the version that it shows."""
    return JSONResponse(figure, headers={"ETag": f'"{version}"', "Cache-Control": "no-cache", **headers})
