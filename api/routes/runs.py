"""Runs over REST: list, look, what they reported, what happened to them, cancel, pause, resume, retry.

And charts: one metric of several runs, downsampled so that spikes survive.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse

from api.problems import RefusedError
from api.records import Page, RunTableRow, run_row
from api.routes.context import (
    ID_PATTERN,
    AttemptPath,
    Cursor,
    JsonRoute,
    Limit,
    RunIdPath,
    State,
    cut_page,
    json_response,
    problems,
)
from orchestrator.columns import FIELDS, STEP
from orchestrator.jobs import RunAction, RunStatus
from orchestrator.records import SORT_KEYS, AttemptRecord, Chart, EventRecord, QueuePosition, RunRecord
from orchestrator.run_table.fields import LONGEST_NAME
from orchestrator.run_table.filters import LONGEST_FILTER
from orchestrator.run_table.query import LONGEST_CURSOR, MOST_COLUMNS, MOST_ROWS, read_query
from orchestrator.services.log_lines import LONGEST_SEARCH, SEARCHED_BYTES, LogLevel
from worker.records.result import Observation, Point, TextSamples

router = APIRouter(route_class=JsonRoute)

SearchText = Annotated[str | None, Query(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
Sort = Annotated[
    str | None,
    Query(pattern=f"^-?({'|'.join(SORT_KEYS)})$", description="`lr`, or `-lr` for the largest first; unknown is last."),
]

MOST_POINTS = 10_000
"""Points in one answer, about 3 MiB."""
MOST_OBSERVED_STEPS = 100
"""Observed steps in one answer: with all probes on a model of a hundred blocks about 6 MiB."""

MOST_RUNS = 100
MOST_BUCKETS = 10_000

METRICS = "|".join(name for name in FIELDS if name != STEP)
Metric = Annotated[str, Query(pattern=f"^({METRICS})$", description="A field of a point.")]
RunIdQuery = Annotated[str, Query(pattern=ID_PATTERN)]


ProcessCount = Annotated[
    int | None,
    Query(
        ge=1,
        le=1024,
        description="Of resume and retry: so many processes train the run from now on, each with a GPU where it has "
        "GPUs. Batches stay the same; a checkpoint can be gone on from with any number.",
    ),
]


@router.get("/runs", tags=["runs"], response_model=Page[RunRecord], responses=problems(404, 422))
def runs(
    state: State,
    experiment_id: Cursor = None,
    status: RunStatus | None = None,
    candidate: SearchText = None,
    optimizer: SearchText = None,
    model: SearchText = None,
    seed: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    sort: Sort = None,
    limit: Limit = 100,
    after: Cursor = None,
) -> Response:
    """List runs, those of newer experiments first, or sorted; `after` is the last id of the page before."""
    records = state.services.runs.page(
        experiment_id=experiment_id,
        status=status,
        candidate=candidate,
        optimizer=optimizer,
        model=model,
        seed=seed,
        sort=sort,
        limit=limit + 1,
        after=after,
    )
    return json_response(cut_page(records, limit, lambda run: run.id))


NO_NUL = r"^[^\x00]*$"
Where = Annotated[
    str,
    Query(
        max_length=LONGEST_FILTER,
        pattern=NO_NUL,
        description="A filter such as `lr<0.01 and optimizer=adapm and model~llama`; docs/runs.md has its grammar.",
    ),
]
FieldName = Annotated[str, Query(max_length=LONGEST_NAME, pattern=NO_NUL)]


@router.get("/runs/table", tags=["runs"], response_model=Page[RunTableRow], responses=problems(422))
def table(
    state: State,
    where: Where = "",
    columns: Annotated[list[FieldName], Query(max_length=MOST_COLUMNS, description="Fields; repeatable.")] = [],  # noqa: B006  # FastAPI's way to give a default
    sort: Annotated[
        str, Query(max_length=LONGEST_NAME, pattern=NO_NUL, description="Any field; `-` before it: largest first.")
    ] = "-created_at",
    limit: Annotated[int, Query(ge=1, le=MOST_ROWS - 1)] = 100,
    after: Annotated[str, Query(max_length=LONGEST_CURSOR, pattern=NO_NUL)] = "",
) -> Response:
    """List the runs of every experiment, external ones too: the fields that are asked for, filtered and sorted."""
    query = read_query(columns=columns, where=where, sort=sort, limit=limit + 1, after=after)
    rows = state.services.run_table.page(query)
    items = tuple(run_row(row, query.columns) for row in rows[:limit])
    return json_response(Page[RunTableRow](items=items, next=rows[limit - 1].cursor() if len(rows) > limit else None))


@router.get("/runs/{run_id}", tags=["runs"], response_model=RunRecord, responses=problems(404))
def run(run_id: RunIdPath, state: State) -> Response:
    """Return a run with its specification, state and result."""
    return json_response(state.services.runs.get(run_id))


@router.get("/runs/{run_id}/points", tags=["runs"], responses=problems(404, 422))
def points(
    run_id: RunIdPath,
    state: State,
    after_step: Annotated[int, Query(ge=-1, le=2**31)] = -1,
    limit: Annotated[int, Query(ge=1, le=MOST_POINTS)] = MOST_POINTS,
) -> Page[Point]:
    """List points after a step, in order of steps; for each step, those of the newest attempt that reached it."""
    records = state.services.runs.points(run_id, after_step=after_step, limit=limit + 1)
    return cut_page(records, limit, lambda point: point.step)


@router.get("/runs/{run_id}/observations", tags=["runs"], responses=problems(404, 422))
def observations(
    run_id: RunIdPath,
    state: State,
    after_step: Annotated[int, Query(ge=-1, le=2**31)] = -1,
    steps: Annotated[int, Query(ge=1, le=MOST_OBSERVED_STEPS)] = MOST_OBSERVED_STEPS,
) -> Page[Observation]:
    """List observations of probes, at some steps after a step; `after_step` takes the last."""
    items = state.services.runs.observations(run_id, after_step=after_step, most_steps=steps)
    full = len({item.step for item in items}) == steps
    return Page(items=items, next=str(items[-1].step) if full else None)


@router.get("/runs/{run_id}/samples", tags=["runs"], responses=problems(404, 422))
def samples(
    run_id: RunIdPath,
    state: State,
    after_step: Annotated[int, Query(ge=-1, le=2**31)] = -1,
    steps: Annotated[int, Query(ge=1, le=MOST_OBSERVED_STEPS)] = MOST_OBSERVED_STEPS,
) -> Page[TextSamples]:
    """List texts that the model wrote at evaluations, at some steps after a step; `after_step` takes the last."""
    items = state.services.runs.samples(run_id, after_step=after_step, most_steps=steps)
    return Page(items=items, next=str(items[-1].step) if len(items) == steps else None)


@router.get("/runs/{run_id}/events", tags=["runs"], responses=problems(404))
def events(run_id: RunIdPath, state: State) -> Page[EventRecord]:
    """List every change of the run's state, oldest first."""
    return Page(items=state.services.runs.events(run_id))


@router.get("/runs/{run_id}/standing", tags=["runs"], responses=problems(404))
def queue_position(run_id: RunIdPath, state: State) -> QueuePosition:
    """Return a waiting run's place in the queue, and when it may start."""
    return state.services.runs.queue_position(run_id)


@router.get("/runs/{run_id}/attempts", tags=["runs"], responses=problems(404))
def attempts(run_id: RunIdPath, state: State) -> Page[AttemptRecord]:
    """List every execution of the run, oldest first."""
    return Page(items=state.services.runs.attempts(run_id))


@router.get(
    "/runs/{run_id}/attempts/{attempt}/log",
    tags=["runs"],
    response_class=PlainTextResponse,
    responses=problems(404, 422),
)
def log(
    run_id: RunIdPath,
    attempt: AttemptPath,
    state: State,
    tail_bytes: Annotated[int, Query(ge=1, le=SEARCHED_BYTES)] = 2**16,
    search: Annotated[
        str, Query(max_length=LONGEST_SEARCH, pattern=NO_NUL, description="Only lines with it, in any case.")
    ] = "",
    level: Annotated[LogLevel, Query(description="Only lines of this level, or worse.")] = LogLevel.INFO,
) -> str:
    """Return the last lines that the attempt's process printed; of its last 4 MiB as many as are asked for."""
    if not search and level is LogLevel.INFO:
        return state.services.runs.log_tail(run_id, attempt, tail_bytes)
    lines, _ = state.services.runs.search_log(run_id, attempt, search, level, tail_bytes)
    return "".join(f"{line.text}\n" for line in lines)


@router.post("/runs/{run_id}/{action}", tags=["runs"], responses=problems(403, 404, 409, 422))
def apply(run_id: RunIdPath, action: RunAction, state: State, processes: ProcessCount = None) -> RunRecord:
    """Cancel, pause, resume or retry the run. A training run writes a checkpoint before it stops, resumed and retried
    ones continue from it; repeating the request changes nothing."""
    if processes is not None and action not in (RunAction.RESUME, RunAction.RETRY):
        raise RefusedError(422, "invalid", f"processes is for resume and retry; leave it out to {action.value} a run")
    return state.services.runs.apply(run_id, action, processes)


@router.get("/points", tags=["points"], response_model=Page[Chart], responses=problems(404, 422))
def charts(
    state: State,
    run: Annotated[list[RunIdQuery], Query(min_length=1, max_length=MOST_RUNS, description="Once for each run.")],
    metric: Metric,
    buckets: Annotated[int, Query(ge=1, le=MOST_BUCKETS)] = 800,
    after_step: Annotated[int, Query(ge=-1, le=2**53)] = -1,
    until_step: Annotated[int | None, Query(ge=0, le=2**53)] = None,
) -> Response:
    """Return the lowest, mean and highest value of a metric of up to 100 runs, over equal ranges of steps."""
    items = state.services.runs.charts(run, metric, buckets, after_step=after_step, until_step=until_step)
    return json_response(Page[Chart](items=items))
