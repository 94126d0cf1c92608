"""Middleware: query parameters that a REST route does not know are refused, lest a misspelt filter answer with all.

Pages take whatever is added to their addresses, and so do the files of their figures. The workers' routes have no
parameters, and their senders are ours. NUL is refused everywhere: PostgreSQL has no text with it, SQLite has.
"""

from collections.abc import Iterable, Iterator, Mapping

from fastapi import APIRouter, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from api.problems import invalid_request, negotiate, problem_response
from optim.nearest import hint
from orchestrator.specs.faults import Fault, pointer, short_json

Known = Mapping[str, tuple[str, ...]]

LIKE_PAGES = frozenset(("GET /v1/experiments/{experiment_id}/figures/{name}.{form}",))
"""Routes whose query is that of a page's address (`dashboards/view_state.py`), hand-edited links included."""
MOST_FAULTS = 8
"""Unknown names that one answer lists: each is compared with the known ones."""


class QueryCheckMiddleware:
    """Refuse (422) parameters that the route at which a request arrives does not have."""

    def __init__(self, app: ASGIApp, known: Known) -> None:
        self.app = app
        self._known = known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["query_string"]:
            refusal = _refusal(scope, self._known.get(scope["bench.route"]))
            if refusal is not None:
                await negotiate(refusal, scope)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def known_queries(routers: Iterable[APIRouter], prefix: str) -> Known:
    """The parameters of every route, by its line in the table of scopes: `GET /v1/runs`."""
    known = {
        f"{method} {prefix}{route.path}": tuple(_parameter_names(route.dependant))
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    return {route: names for route, names in known.items() if route not in LIKE_PAGES}


def _parameter_names(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for each in dependant.dependencies:
        yield from _parameter_names(each)


def _refusal(scope: Scope, known: tuple[str, ...] | None) -> Response | None:
    """What refuses a query; `known` are the route's parameters, None where it takes all."""
    sent = QueryParams(scope["query_string"])
    unknown = [name for name in sent if known is not None and name not in known]
    with_nul = [(name, value) for name, value in sent.multi_items() if "\0" in name + value and name not in unknown]
    found = [(name, sent[name], _describe_allowed(name, known or ())) for name in unknown[:MOST_FAULTS]]
    found += [(name, value, "text without the character U+0000") for name, value in with_nul[:MOST_FAULTS]]
    if not found:
        return None
    faults = tuple(
        Fault(pointer=pointer((name,)), value=short_json(value), allowed=allowed, source="query")
        for name, value, allowed in found
    )
    if unknown:
        return invalid_request(faults)
    detail = "A text in the query has the character U+0000; send it without that."  # all that a page says of it
    return problem_response(422, "invalid", detail, errors=faults)


def _describe_allowed(name: str, known: tuple[str, ...]) -> str:
    return f"unknown parameter; {hint(name, known)}" if known else "unknown parameter; there are none here"
