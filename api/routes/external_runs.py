"""External runs over REST: lines of spools in, their values and verdicts out. None of it is ever queued."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from api.records import Page
from api.routes.context import (
    CallerDependency,
    Cursor,
    JsonRoute,
    Limit,
    State,
    WithLabels,
    cut_page,
    json_response,
    problems,
)
from orchestrator.analysis.external_runs import judge
from orchestrator.annotations import LabelChange
from orchestrator.external_runs import (
    MOST_VALUES,
    ExternalExperiment,
    ExternalJudgement,
    ExternalRun,
    ExternalSeries,
    JudgementChoice,
    LinesBatch,
    LinesReceipt,
    MetricName,
)

router = APIRouter(tags=["external runs"], route_class=JsonRoute)

RunPath = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
ExperimentPath = Annotated[
    str, Path(min_length=1, max_length=120, pattern=r"^[^\x00]*$", description="Its id, or its name.")
]


@router.post(
    "/external-runs/{external_id}/lines", response_model=LinesReceipt, responses=problems(404, 409, 413, 422, 503)
)
def append(external_id: RunPath, batch: LinesBatch, state: State, caller: CallerDependency) -> Response:
    """Store the new lines of a spool. Lines sent before change nothing, and those behind a gap are not stored: the
    answer has the number of stored lines. 409 if experiment, candidate, rate or seed differ from the first lines."""
    return json_response(state.services.external_runs.append(external_id, batch, by=caller.key_id()))


@router.get("/external-runs/{external_id}", response_model=ExternalRun, responses=problems(404))
def external_run(external_id: RunPath, state: State) -> Response:
    """Return a run that a loop outside of the bench logged."""
    return json_response(state.services.external_runs.run(external_id))


@router.delete("/external-runs/{external_id}", response_model=ExternalRun, responses=problems(403, 404))
def delete_run(external_id: RunPath, state: State) -> Response:
    """Remove a run and all that it logged, for good. Sending its spool again brings it back."""
    return json_response(state.services.external_runs.delete_run(external_id))


@router.get("/external-runs/{external_id}/series", response_model=ExternalSeries, responses=problems(404, 409, 422))
def series(
    external_id: RunPath,
    state: State,
    metric: Annotated[list[MetricName], Query(description="Repeatable. Default: every metric.")] = [],  # noqa: B006  # FastAPI's way to give a default
) -> Response:
    """Return the last logged value of each step, by metric. 409 above two million values: ask for fewer metrics."""
    return json_response(state.services.external_runs.series(external_id, metric, most_values=MOST_VALUES))


@router.get("/external-experiments", response_model=Page[ExternalExperiment], responses=problems(404, 422))
def external_experiments(state: State, limit: Limit = 100, before: Cursor = None, label: WithLabels = ()) -> Response:
    """List experiments of external runs that have these labels, the newest first; `before` is the last id of the page
    before."""
    records = state.services.external_runs.experiments(limit=limit + 1, before=before, labels=label)
    return json_response(cut_page(records, limit, lambda experiment: experiment.id))


@router.get("/external-experiments/{external_id}", response_model=ExternalExperiment, responses=problems(404))
def external_experiment(external_id: ExperimentPath, state: State) -> Response:
    """Return an experiment of external runs."""
    return json_response(state.services.external_runs.experiment(external_id))


@router.post(
    "/external-experiments/{external_id}/labels",
    response_model=ExternalExperiment,
    responses=problems(403, 404, 409, 413, 422),
)
def change_labels(external_id: ExperimentPath, change: LabelChange, state: State) -> Response:
    """Add labels to an experiment of external runs, or take some away; repeating it changes nothing."""
    return json_response(state.services.external_runs.change_labels(external_id, change))


@router.delete("/external-experiments/{external_id}", response_model=ExternalExperiment, responses=problems(403, 404))
def delete_experiment(external_id: ExperimentPath, state: State) -> Response:
    """Remove an experiment of external runs and all of them, for good."""
    return json_response(state.services.external_runs.delete_experiment(external_id))


@router.get("/external-experiments/{external_id}/runs", response_model=Page[ExternalRun], responses=problems(404, 422))
def runs(
    external_id: ExperimentPath,
    state: State,
    limit: Annotated[int, Query(ge=1, le=100)] = 100,
    after: Cursor = None,
) -> Response:
    """List its runs, the oldest first; `after` is the last id of the page before."""
    records = state.services.external_runs.runs(external_id, limit=limit + 1, after=after)
    return json_response(cut_page(records, limit, lambda run: run.id))


@router.get(
    "/external-experiments/{external_id}/judgement", response_model=ExternalJudgement, responses=problems(404, 409, 422)
)
def judgement(
    external_id: ExperimentPath,
    state: State,
    choice: Annotated[JudgementChoice, Query()],
) -> Response:
    """Judge its candidates by the statistics of comparisons, with objections first, then what nobody could check.
    409 if nothing can be judged, or metric, baseline or workload have to be chosen."""
    external_runs = state.services.external_runs
    return json_response(judge(external_runs.experiment(external_id), external_runs.runs(external_id), choice))
