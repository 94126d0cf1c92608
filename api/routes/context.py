"""What every route needs: the service's verbs, and parameters checked the same way everywhere."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request

from api.auth import caller_of
from api.callers import Caller
from api.faults import Problem
from dashboards.live import Pulse
from orchestrator.service import Bench

ID_PATTERN = r"^[A-Za-z0-9_-]{1,64}$"
"""What ids look like; anything else is nowhere, and never reaches the database."""

MOST_ITEMS = 1_000
"""Records on one page."""


async def the_bench(request: Request) -> Bench:
    """The verbs of the service that this app was made for.

    Like the others here it is `async` though it waits for nothing: FastAPI would call it on a thread otherwise.
    """
    bench = request.app.state.bench
    assert isinstance(bench, Bench)
    return bench


async def when_stopping(request: Request) -> Callable[[], bool]:
    """Tells a stream whether the process is about to end."""
    stopping: Callable[[], bool] = request.app.state.stopping
    return stopping


async def the_pulse(request: Request) -> Pulse:
    """The experiments' versions, looked up once for all streams."""
    pulse = request.app.state.pulse
    assert isinstance(pulse, Pulse)
    return pulse


def the_caller(request: Request) -> Caller:
    """Who makes the request."""
    return caller_of(request.scope)


BenchDependency = Annotated[Bench, Depends(the_bench)]
CallerDependency = Annotated[Caller, Depends(the_caller)]
StoppingDependency = Annotated[Callable[[], bool], Depends(when_stopping)]
PulseDependency = Annotated[Pulse, Depends(the_pulse)]
ExperimentIdPath = Annotated[str, Path(pattern=ID_PATTERN)]
RunIdPath = Annotated[str, Path(pattern=ID_PATTERN)]
AttemptPath = Annotated[int, Path(ge=1, le=2**31 - 1)]
Cursor = Annotated[str | None, Query(pattern=ID_PATTERN)]
Limit = Annotated[int, Query(ge=1, le=MOST_ITEMS)]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer with, for OpenAPI."""
    content = {"application/problem+json": {"schema": Problem.model_json_schema()}}
    return {status: {"description": "Problem", "content": content} for status in statuses}
