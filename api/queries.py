"""Middleware: query parameters that a REST route does not know are refused, lest a misspelt filter answer with all.

Pages take whatever is added to their addresses, and so do the files of their figures. The workers' routes have no
parameters, and their senders are ours.
"""

from collections.abc import Iterable, Iterator, Mapping

from fastapi import APIRouter, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from api.faults import Fault, pointer, shown
from api.problems import problem_response
from optim.nearest import hint

Known = Mapping[str, tuple[str, ...]]

LIKE_PAGES = frozenset(("GET /v1/experiments/{experiment_id}/figures/{name}.{form}",))
"""Routes whose query is that of a page's address (`dashboards/viewstate.py`), hand-edited links included."""
MOST_FAULTS = 8
"""Unknown names that are told of at once: each is compared with the known ones."""


class KnownQueries:
    """Refuse (422) parameters that the route at which a request arrives does not have."""

    def __init__(self, app: ASGIApp, known: Known) -> None:
        self.app = app
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["query_string"]:
            known = self._known.get(scope["bench.route"])
            refusal = None if known is None else _refusal(scope, known)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)


def known_queries(routers: Iterable[APIRouter], prefix: str) -> Known:
    """The parameters of every route, by its line in the table of scopes: `GET /v1/runs`."""
    known = {
        f"{method} {prefix}{route.path}": tuple(_names(route.dependant))
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    return {route: names for route, names in known.items() if route not in LIKE_PAGES}


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for each in dependant.dependencies:
        yield from _names(each)


def _refusal(scope: Scope, known: tuple[str, ...]) -> Response | None:
    sent = QueryParams(scope["query_string"])
    unknown = [name for name in sent if name not in known][:MOST_FAULTS]
    if not unknown:
        return None
    faults = tuple(
        Fault(pointer=pointer((name,)), value=shown(sent[name]), allowed=_allowed(name, known), source="query")
        for name in unknown
    )
    detail = f"{len(faults)} fault{'s' if len(faults) != 1 else ''} in the request; nothing was changed."
    return problem_response(422, "invalid", detail, errors=faults)


def _allowed(name: str, known: tuple[str, ...]) -> str:
    return f"unknown parameter; {hint(name, known)}" if known else "unknown parameter; there are none here"
