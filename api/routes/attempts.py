"""The workers' side, as worker/records/protocol.py describes it: every request bears the token of its lease.

401 without a token; 404 where there can be no such attempt; 409 where the lease is gone: the worker stops and writes
nothing more.
"""

from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import ValidationError

from api.routes.context import AttemptPath, RunIdPath, State, json_response, problems
from orchestrator.store.queue.attempts import Attempts
from worker.records.protocol import (
    Assignment,
    CheckpointNotice,
    Failure,
    Heartbeat,
    HeartbeatReply,
    PointsBatch,
    Stopped,
)
from worker.records.result import Result

router = APIRouter(prefix="/attempts/{run_id}/{attempt}", tags=["workers"], responses=problems(401, 404, 409, 413, 422))

bearer = HTTPBearer(description="The token of the attempt's lease.")


class PresentedLease(NamedTuple):
    """The attempt that a worker reports for, and the token of its lease."""

    run_id: str
    attempt: int
    token: str


async def presented_lease(
    run_id: RunIdPath, attempt: AttemptPath, credentials: Annotated[HTTPAuthorizationCredentials, Depends(bearer)]
) -> PresentedLease:
    """Return the lease that the guard has let in; `async` so that it takes no thread."""
    return PresentedLease(run_id, attempt, credentials.credentials)


Lease = Annotated[PresentedLease, Depends(presented_lease)]


@router.post("/hello", response_model=Assignment)
def hello(lease: Lease, state: State) -> Response:
    """Begin the attempt: leased → running; the answer says what to train."""
    return json_response(state.services.attempts.hello(*lease))


@router.post("/heartbeat", response_model=HeartbeatReply)
def heartbeat(lease: Lease, state: State, beat: Heartbeat) -> Response:
    """Extend the lease of a live worker; the answer may order it to stop."""
    return json_response(state.services.attempts.heartbeat(*lease, beat))


def batch_body() -> dict[str, Any]:
    """Return the body of `POST …/points` for OpenAPI: the route reads it by itself, so FastAPI does not know it."""
    schema = PointsBatch.model_json_schema(ref_template="#/components/schemas/{model}")
    # A page of observations has brought the other definitions into the document.
    schema["properties"]["columns"] = schema.pop("$defs")["PointColumns"]
    return {"required": True, "content": {"application/json": {"schema": schema}}}


@router.post("/points", status_code=204)
async def points(lease: Lease, state: State, request: Request) -> None:
    """Store points in the order of their steps; a batch that was already taken changes nothing."""
    # Ten thousand points take some milliseconds to be validated: on a thread, straight from their bytes: nobody waits.
    count = await run_in_threadpool(_append, state.services.attempts, lease, await request.body())
    state.meters.points.inc(count)


def _append(attempts: Attempts, lease: PresentedLease, body: bytes) -> int:
    try:
        batch = PointsBatch.model_validate_json(body)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
        raise RequestValidationError(faults) from error
    attempts.append_points(*lease, batch)
    return len(batch.columns)


@router.post("/checkpoint", status_code=204)
def checkpoint(lease: Lease, state: State, notice: CheckpointNotice) -> None:
    """Record a checkpoint that is complete on disk."""
    state.services.attempts.checkpoint(*lease, notice)


@router.post("/finish", status_code=204)
def finish(lease: Lease, state: State, result: Result) -> None:
    """Store the result of the run: running → succeeded, exactly once."""
    state.services.attempts.finish(*lease, result)


@router.post("/stopped", status_code=204)
def report_stop(lease: Lease, state: State, stopped: Stopped) -> None:
    """End the attempt of a worker that obeyed cancel or pause."""
    state.services.attempts.finish(*lease, stopped)


@router.post("/fail", status_code=204)
def fail(lease: Lease, state: State, failure: Failure) -> None:
    """End the attempt that broke down: another one follows, or the run has failed."""
    state.services.attempts.finish(*lease, failure)
