"""The parts that every route needs: the service's verbs, and parameters checked the same way everywhere."""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from api.auth.callers import Caller
from api.middleware.authentication import AuthState, caller_of
from api.middleware.metrics import Meters
from api.problems import invalid_request
from api.records import Item, Page
from dashboards.files.figures import FigureFiles
from optim.nearest import hint
from orchestrator.annotations import MOST_LABELS, Label
from orchestrator.services.composition import Services
from orchestrator.specs.faults import Fault, pointer, short_json
from orchestrator.studies.reports import Studies

# Answers of the busiest routes: a record written to JSON once, on the thread that has read it.
#
# What a route returns as a record FastAPI validates again, on another thread; a record of ours was validated when it
# was made. At some hundred requests per second that thread's turn costs more than the database's work.

MEDIA_TYPE = "application/json"


def json_response(record: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return the record as the whole answer; the route names its type as `response_model`, for OpenAPI."""
    return Response(record.model_dump_json(), status, headers, MEDIA_TYPE)


def revision_tag(revision: int) -> dict[str, str]:
    """Return the headers with the revision of labels and note that an answer has, for `If-Match`.

    Progress does not change it: a label is not refused because a run has taken a step. So it is no tag for caches,
    which may keep nothing.
    """
    return {"ETag": f'"{revision}"', "Cache-Control": "no-store"}


ID_PATTERN = r"^[A-Za-z0-9_-]{1,64}$"
"""The pattern of ids; others never reach the database."""

MOST_ITEMS = 1_000
"""Records on one page."""

MOST_FAULTS = 8
"""Unknown parameters that one answer lists: each is compared with the known ones."""


@dataclass(frozen=True, kw_only=True)
class AppState:
    """The shared state of an application's routes."""

    services: Services
    studies: Studies
    figure_files: FigureFiles
    meters: Meters
    auth: AuthState
    stopping: Callable[[], bool]
    """Whether the process is about to end."""


async def app_state(request: Request) -> AppState:
    """Return the shared state of this application's routes.

    It is `async`, as the next one is, though it waits for nothing: FastAPI would call it on a thread otherwise.
    """
    state = request.app.state.bench
    assert isinstance(state, AppState)
    return state


async def current_caller(request: Request) -> Caller:
    """Return the caller of the request."""
    return caller_of(request.scope)


State = Annotated[AppState, Depends(app_state)]
CallerDependency = Annotated[Caller, Depends(current_caller)]
ExperimentIdPath = Annotated[str, Path(pattern=ID_PATTERN)]
RunIdPath = Annotated[str, Path(pattern=ID_PATTERN)]
AttemptPath = Annotated[int, Path(ge=1, le=2**31 - 1)]
Cursor = Annotated[str | None, Query(pattern=ID_PATTERN)]
CellQuery = Annotated[
    str | None,
    Query(
        max_length=80,
        pattern=r"^[^\x00]*$",
        description="Of a scaling experiment: a key of `cells`. Default: its largest model, of figures its law.",
    ),
]
Limit = Annotated[int, Query(ge=1, le=MOST_ITEMS)]
WithLabels = Annotated[
    tuple[Label, ...],
    Query(max_length=MOST_LABELS, description="Only those with this label; several: with all of them."),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,128}$",
        description="The same key gives the same answer, however often it is sent.",
    ),
]


def cut_page(records: Sequence[Item], limit: int, cursor: Callable[[Item], object]) -> Page[Item]:
    """Return the page of `limit` records; if one more was found, `next` is the cursor of the last one on the page."""
    items = tuple(records[:limit])
    return Page(items=items, next=str(cursor(items[-1])) if len(records) > limit else None)


class JsonRoute(APIRoute):
    """The class of the routes of every router for users: it refuses query parameters that it does not know, lest a
    misspelt filter answer with all. A figure takes what is added to a page's address, as pages do.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the route's own handler, behind this check."""
        handle, names = super().get_route_handler(), tuple(_query_parameters(self.dependant))
        takes_all = self.path.endswith("/figures/{name}.{form}")

        async def handle_checked(request: Request) -> Response:
            unknown = [] if takes_all else [name for name in request.query_params if name not in names]
            if unknown:
                return invalid_request(
                    tuple(
                        Fault(
                            pointer=pointer((name,)),
                            value=short_json(request.query_params[name]),
                            allowed=f"unknown parameter; {hint(name, names) if names else 'there are none here'}",
                            source="query",
                        )
                        for name in unknown[:MOST_FAULTS]
                    )
                )
            return await handle(request)

        return handle_checked


def _query_parameters(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        kind = field.field_info.annotation
        # Of a model of the whole query, its fields are the parameters.
        yield from kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else (field.alias,)
    for dependency in dependant.dependencies:
        yield from _query_parameters(dependency)


PROBLEM_SCHEMA = {"$ref": "#/components/schemas/Problem"}
"""Defined once, by `api/openapi.py`."""


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the problems that a route may answer with, for OpenAPI."""
    content = {"application/problem+json": {"schema": PROBLEM_SCHEMA}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}
