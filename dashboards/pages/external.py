"""`/external`: runs that loops outside of the bench told of, and the judgement on an experiment of them."""

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from dashboards.render import missing_page, page
from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.services.external_runs import ExternalRuns

EXPERIMENTS_SHOWN = 200
RUNS_SHOWN = 500
"""Rows of the table of runs; the file has them all."""


def external_pages(external_runs: ExternalRuns) -> APIRouter:
    """The list, and a page for each experiment."""
    router = APIRouter(include_in_schema=False)

    @router.get("/external")
    def experiments() -> HTMLResponse:
        found = external_runs.experiments(limit=EXPERIMENTS_SHOWN)
        return page("external.html", experiments=found, limit=EXPERIMENTS_SHOWN)

    @router.get("/external/{external_id}")
    def experiment(external_id: str, request: Request) -> HTMLResponse:
        chosen = {name: request.query_params.get(name) for name in ("metric", "baseline", "workload")}
        try:
            found, runs = external_runs.experiment(external_id), external_runs.runs(external_id)
        except NotFoundError as error:
            return missing_page(str(error))
        judgement, reason = None, None
        try:
            judgement = external_runs.judge(
                found.id, metric=chosen["metric"], baseline=chosen["baseline"], workload=chosen["workload"]
            )
        except ConflictError as error:
            reason = str(error)
        return page(
            "external_experiment.html",
            experiment=found,
            runs=runs[:RUNS_SHOWN],
            runs_shown=RUNS_SHOWN,
            judgement=judgement,
            reason=reason,
            chosen=chosen,
            metric=judgement.metric if judgement else chosen["metric"],
            metrics=sorted({name for run in runs for name in run.metrics}),
            workloads=sorted({run.workload or "" for run in runs}),
        )

    return router
