"""Runs over REST: list, look, what they reported, what happened to them, cancel."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.pages import Page
from api.routes.context import BenchDependency, Cursor, Limit, RunIdPath, problems
from orchestrator.jobs import RunStatus
from orchestrator.records import AttemptRecord, EventRecord, RunRecord
from worker.record import Observation, Point

router = APIRouter(prefix="/runs", tags=["runs"])

MOST_POINTS = 10_000
"""Points in one answer, about 3 MiB."""
MOST_OBSERVED_STEPS = 100
"""Observed steps in one answer: with all probes on a model of a hundred blocks about 6 MiB."""


@router.get("", responses=problems(422))
def runs(
    bench: BenchDependency,
    experiment_id: Cursor = None,
    status: RunStatus | None = None,
    limit: Limit = 100,
    after: Cursor = None,
) -> Page[RunRecord]:
    """Runs in order; `after` is the last id of the page before."""
    items = bench.runs(experiment_id=experiment_id, status=status, limit=limit, after=after)
    return Page(items=items, next=items[-1].id if len(items) == limit else None)


@router.get("/{run_id}", responses=problems(404))
def run(run_id: RunIdPath, bench: BenchDependency) -> RunRecord:
    """One run with its specification and state, and its result once there is one."""
    return bench.run(run_id)


@router.get("/{run_id}/points", responses=problems(404, 422))
def points(
    run_id: RunIdPath,
    bench: BenchDependency,
    after_step: Annotated[int, Query(ge=-1, le=2**31)] = -1,
    limit: Annotated[int, Query(ge=1, le=MOST_POINTS)] = MOST_POINTS,
) -> Page[Point]:
    """Points after a step, in order of steps; for each step, those of the newest attempt that reached it."""
    found = bench.points(run_id, after_step=after_step)
    items = found[:limit]
    return Page(items=items, next=str(items[-1].step) if len(found) > limit else None)


@router.get("/{run_id}/observations", responses=problems(404, 422))
def observations(
    run_id: RunIdPath,
    bench: BenchDependency,
    after_step: Annotated[int, Query(ge=-1, le=2**31)] = -1,
    steps: Annotated[int, Query(ge=1, le=MOST_OBSERVED_STEPS)] = MOST_OBSERVED_STEPS,
) -> Page[Observation]:
    """What probes saw of gradients and momenta, at up to so many steps after a step; `after_step` takes the last."""
    items = bench.observations(run_id, after_step=after_step, most_steps=steps)
    full = len({item.step for item in items}) == steps
    return Page(items=items, next=str(items[-1].step) if full else None)


@router.get("/{run_id}/events", responses=problems(404))
def events(run_id: RunIdPath, bench: BenchDependency) -> Page[EventRecord]:
    """Every change of the run's state, oldest first."""
    return Page(items=bench.events(run_id))


@router.get("/{run_id}/attempts", responses=problems(404))
def attempts(run_id: RunIdPath, bench: BenchDependency) -> Page[AttemptRecord]:
    """Every execution of the run, oldest first."""
    return Page(items=bench.attempts(run_id))


@router.post("/{run_id}/cancel", responses=problems(403, 404))
def cancel(run_id: RunIdPath, bench: BenchDependency) -> RunRecord:
    """Cancel the run; repeating it changes nothing."""
    return bench.cancel_run(run_id)
