"""The workers' side, as worker/protocol.py describes it: every request bears the token of its lease.

401 without a token; 409 where the lease is gone: the worker stops and writes nothing more.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Path
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.problems import RefusedError
from api.routes.context import BenchDependency, RunIdPath, problems
from worker.protocol import (
    Assignment,
    CheckpointNotice,
    Failure,
    Heartbeat,
    HeartbeatReply,
    PointsBatch,
    Stopped,
)
from worker.record import Result

router = APIRouter(prefix="/attempts/{run_id}/{attempt}", tags=["workers"], responses=problems(401, 409, 413, 422))

bearer = HTTPBearer(auto_error=False, description="The token of the attempt's lease.")


def lease_token(credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> str:
    """The bearer token of the request."""
    if credentials is None or not credentials.credentials:
        headers = {"WWW-Authenticate": "Bearer"}
        raise RefusedError(401, "token-missing", "Send the lease's token: Authorization: Bearer <token>.", headers)
    return credentials.credentials


TokenDependency = Annotated[str, Depends(lease_token)]
AttemptPath = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.post("/hello")
def hello(run_id: RunIdPath, attempt: AttemptPath, token: TokenDependency, bench: BenchDependency) -> Assignment:
    """The worker is up: leased → running; tells it what to train."""
    return bench.hello(run_id, attempt, token)


@router.post("/heartbeat")
def heartbeat(
    run_id: RunIdPath, attempt: AttemptPath, token: TokenDependency, bench: BenchDependency, beat: Heartbeat
) -> HeartbeatReply:
    """The worker is alive: its lease is extended; the answer may tell it to stop."""
    return bench.heartbeat(run_id, attempt, token, beat)


@router.post("/points", status_code=204)
def points(
    run_id: RunIdPath, attempt: AttemptPath, token: TokenDependency, bench: BenchDependency, batch: PointsBatch
) -> None:
    """Points in the order of their steps; a batch that was already taken changes nothing."""
    bench.append_points(run_id, attempt, token, batch)


@router.post("/checkpoint", status_code=204)
def checkpoint(
    run_id: RunIdPath, attempt: AttemptPath, token: TokenDependency, bench: BenchDependency, notice: CheckpointNotice
) -> None:
    """A checkpoint is complete on disk."""
    bench.checkpoint(run_id, attempt, token, notice)


@router.post("/finish", status_code=204)
def finish(
    run_id: RunIdPath, attempt: AttemptPath, token: TokenDependency, bench: BenchDependency, result: Result
) -> None:
    """The run has its result: running → succeeded, exactly once."""
    bench.finish(run_id, attempt, token, result)


@router.post("/stopped", status_code=204)
def stopped(
    run_id: RunIdPath, attempt: AttemptPath, token: TokenDependency, bench: BenchDependency, stopped: Stopped
) -> None:
    """The worker obeyed cancel or pause."""
    bench.stopped(run_id, attempt, token, stopped)


@router.post("/fail", status_code=204)
def fail(
    run_id: RunIdPath, attempt: AttemptPath, token: TokenDependency, bench: BenchDependency, failure: Failure
) -> None:
    """The attempt broke down: another one follows, or the run has failed."""
    bench.fail(run_id, attempt, token, failure)
