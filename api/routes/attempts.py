"""The workers' side, as worker/records/protocol.py describes it: every request bears the token of its lease.

401 without a token; 404 where there can be no such attempt; 409 where the lease is gone: the worker stops and writes
nothing more.
"""

from typing import Annotated, Any

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


async def lease_token(credentials: Annotated[HTTPAuthorizationCredentials, Depends(bearer)]) -> str:
    """The token, as the guard has let it in; `async` so that it takes no thread."""
    return credentials.credentials


TokenDependency = Annotated[str, Depends(lease_token)]


@router.post("/hello", response_model=Assignment)
def hello(run_id: RunIdPath, attempt: AttemptPath, token: TokenDependency, state: State) -> Response:
    """The worker is up: leased → running; tells it what to train."""
    return json_response(state.services.attempts.hello(run_id, attempt, token))


@router.post("/heartbeat", response_model=HeartbeatReply)
def heartbeat(
    run_id: RunIdPath, attempt: AttemptPath, token: TokenDependency, state: State, beat: Heartbeat
) -> Response:
    """The worker is alive: its lease is extended; the answer may tell it to stop."""
    return json_response(state.services.attempts.heartbeat(run_id, attempt, token, beat))


def batch_body() -> dict[str, Any]:
    """The body of `POST …/points` for OpenAPI: the route reads it by itself, so FastAPI does not know."""
    schema = PointsBatch.model_json_schema(ref_template="#/components/schemas/{model}")
    # A page of observations has brought the other definitions into the document.
    schema["properties"]["columns"] = schema.pop("$defs")["PointColumns"]
    return {"required": True, "content": {"application/json": {"schema": schema}}}


@router.post("/points", status_code=204)
async def points(
    run_id: RunIdPath, attempt: AttemptPath, token: TokenDependency, state: State, request: Request
) -> None:
    """Points in the order of their steps; a batch that was already taken changes nothing."""
    # Ten thousand points take some milliseconds to be validated: on a thread, straight from their bytes: nobody waits.
    count = await run_in_threadpool(_append, state.services.attempts, run_id, attempt, token, await request.body())
    state.meters.points.inc(count)


def _append(attempts: Attempts, run_id: str, attempt: int, token: str, body: bytes) -> int:
    try:
        batch = PointsBatch.model_validate_json(body)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
        raise RequestValidationError(faults) from error
    attempts.append_points(run_id, attempt, token, batch)
    return len(batch.columns)


@router.post("/checkpoint", status_code=204)
def checkpoint(
    run_id: RunIdPath,
    attempt: AttemptPath,
    token: TokenDependency,
    state: State,
    notice: CheckpointNotice,
) -> None:
    """A checkpoint is complete on disk."""
    state.services.attempts.checkpoint(run_id, attempt, token, notice)


@router.post("/finish", status_code=204)
def finish(run_id: RunIdPath, attempt: AttemptPath, token: TokenDependency, state: State, result: Result) -> None:
    """The run has its result: running → succeeded, exactly once."""
    state.services.attempts.finish(run_id, attempt, token, result)


@router.post("/stopped", status_code=204)
def report_stop(
    run_id: RunIdPath, attempt: AttemptPath, token: TokenDependency, state: State, stopped: Stopped
) -> None:
    """The worker obeyed cancel or pause."""
    state.services.attempts.record_stop(run_id, attempt, token, stopped)


@router.post("/fail", status_code=204)
def fail(run_id: RunIdPath, attempt: AttemptPath, token: TokenDependency, state: State, failure: Failure) -> None:
    """The attempt broke down: another one follows, or the run has failed."""
    state.services.attempts.fail(run_id, attempt, token, failure)
