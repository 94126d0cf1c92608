"""Turn every exception into an answer in RFC 9457's `application/problem+json`, without a stack trace; a browser gets
the same as a page.

Errors of this project keep their sentence. Any other exception is logged with an id, and the caller gets the id alone.
"""

import json
import secrets
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import Scope

from api.auth.scopes import methods_at
from api.records import Problem
from dashboards.render import refused_page
from orchestrator.errors import (
    ChangedMeanwhileError,
    ConflictError,
    DamagedError,
    DeletedError,
    DiskFullError,
    IdempotencyError,
    LeaseLostError,
    MissingDataError,
    NotFoundError,
    OrchestratorError,
    StoreError,
)
from orchestrator.run_table.fields import FilterError
from orchestrator.specs.faults import Fault, RequestPart, faults
from orchestrator.webhooks.policy import WebhookUrlError
from orchestrator.webhooks.signing import SigningKeyError
from worker.errors import is_disk_full
from worker.words import pluralize

MEDIA_TYPE = "application/problem+json"

UNREADABLE = "There was an error parsing the body"
"""FastAPI's words for a body at which its parser gave up."""

FORM = "application/x-www-form-urlencoded"

log = structlog.get_logger("api")

KINDS: dict[type[OrchestratorError], tuple[int, str]] = {
    NotFoundError: (404, "not-found"),
    DeletedError: (404, "deleted"),
    LeaseLostError: (409, "lease-lost"),
    IdempotencyError: (409, "idempotency-key-reused"),
    ConflictError: (409, "conflict"),
    ChangedMeanwhileError: (412, "changed-meanwhile"),
    MissingDataError: (422, "missing-data"),
    FilterError: (422, "filter"),
    WebhookUrlError: (422, "url-refused"),
    DamagedError: (500, "damaged"),
    StoreError: (503, "store-unavailable"),
    DiskFullError: (507, "disk-full"),
    SigningKeyError: (503, "signing-key-unavailable"),
}
"""Status and kind of each error; an error has those of its nearest ancestor here."""


class RefusedError(HTTPException):
    """A request that is answered with a problem before it reaches any verb.

    An `HTTPException`, because FastAPI turns everything else that is raised while it reads a body into a bare 400.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, headers)
        self.kind = kind

    def response(self) -> Response:
        """Return this refusal as a problem."""
        return problem_response(self.status_code, self.kind, str(self.detail), headers=dict(self.headers or {}))


def handle_errors(app: FastAPI) -> None:
    """Answer every exception of `app` with a problem."""

    def negotiating(problem_of: Callable[[Request, Any], Response]) -> Callable[[Request, Exception], Response]:
        return lambda request, error: negotiate(problem_of(request, error), request.scope)

    app.add_exception_handler(RequestValidationError, negotiating(_validation_error))
    app.add_exception_handler(StarletteHTTPException, negotiating(_http_error))
    app.add_exception_handler(RefusedError, negotiating(lambda _request, refusal: refusal.response()))
    app.add_exception_handler(OrchestratorError, negotiating(_orchestrator_error))


def negotiate(problem: Response, scope: Scope) -> Response:
    """Return the problem as its caller reads it: as a page, with the same status and headers, where a browser shows
    whatever comes. It asks for a page, or sent a form of one; scripts accept all."""
    headers = Headers(scope=scope)
    sends_form = scope["method"] == "POST" and headers.get("content-type", "").startswith(FORM)
    is_problem = problem.media_type == MEDIA_TYPE
    if not is_problem or not asks_for_page({**scope, "method": "GET"} if sends_form else scope, headers):
        return problem
    fields = json.loads(bytes(problem.body))
    page = refused_page(problem.status_code, fields["title"].capitalize(), fields["detail"])
    replaced_headers = ("content-length", "content-type", "cache-control")
    page.raw_headers += [(name, value) for name, value in problem.raw_headers if name.decode() not in replaced_headers]
    return page


def asks_for_page(scope: Scope, headers: Headers) -> bool:
    """Return whether a browser waits for something to show."""
    return (
        scope["method"] == "GET"
        and "text/html" in headers.get("accept", "")
        and not scope["path"].startswith(("/v1/", "/static/"))
    )


def problem_response(
    status: int,
    kind: str,
    detail: str,
    *,
    errors: tuple[Fault, ...] = (),
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Response:
    """Return a problem as a response; `kind` names it for programs, `detail` for people."""
    title = HTTPStatus(status).phrase
    urn = f"urn:adapm-bench:problem:{kind}"  # identifies the kind; nothing needs to be found at it
    problem = Problem(type=urn, title=title, status=status, detail=detail, errors=errors, **more)
    return Response(problem.model_dump_json(), status_code=status, headers=headers, media_type=MEDIA_TYPE)


def _validation_error(request: Request, error: RequestValidationError) -> Response:
    by_source: dict[str, list[dict[str, Any]]] = {}
    for fault in error.errors():
        by_source.setdefault(fault["loc"][0], []).append({**fault, "loc": fault["loc"][1:]})
    if "path" in by_source:
        return problem_response(404, "not-found", "There is nothing at this address.")
    parts: dict[str, RequestPart] = {"body": "body", "query": "query", "header": "header"}
    body = getattr(request.scope.get("route"), "body_field", None)
    model = body.field_info.annotation if body is not None else None
    return invalid_request(
        tuple(
            fault
            for source, errors in by_source.items()
            for fault in faults(errors, model if source == "body" else None, parts[source])
        )
    )


def invalid_request(faults: tuple[Fault, ...]) -> Response:
    """Return the answer to a request with faults."""
    detail = f"{pluralize(len(faults), 'fault')} in the request; nothing was changed."
    return problem_response(422, "invalid", detail, errors=faults)


def _http_error(request: Request, error: StarletteHTTPException) -> Response:
    kind = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
    detail = str(error.detail)
    if error.status_code == 404:
        detail = f"There is nothing at {request.url.path}."
    if error.status_code == 400 and detail == UNREADABLE:
        allowed = "must be JSON in UTF-8, nested no deeper than some hundred levels, its integers below 4,000 digits"
        fault = Fault(pointer="", allowed=allowed)
        return problem_response(422, "invalid", "The body cannot be read; nothing was changed.", errors=(fault,))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        detail = f"{request.method} is not possible here."
        headers["Allow"] = methods_at(request.url.path)  # Starlette names the first route's methods alone
    return problem_response(error.status_code, kind, detail, headers=headers)


def _orchestrator_error(request: Request, error: OrchestratorError) -> Response:
    for ancestor in type(error).__mro__:
        if ancestor in KINDS:
            status, kind = KINDS[ancestor]
            headers = {"Retry-After": "1"} if status == 503 else {"Retry-After": "10"} if status == 507 else None
            members: dict[str, Any] = {}
            if isinstance(error, NotFoundError) and error.near:
                members = {
                    "asked": error.asked,
                    "near": error.near,
                    "meant": error.near[0] if len(error.near) == 1 else None,
                }
            return problem_response(status, kind, str(error), headers=headers, **members)
    return internal_error(error, request.method, request.url.path)


def internal_error(error: BaseException, method: str, path: str) -> Response:
    """Log `error` with an id and answer with the id alone; a full disk is named."""
    if is_disk_full(error):
        detail = f"A disk of the service has no room: {error}. Make room, then ask again."
        return problem_response(507, "disk-full", detail, headers={"Retry-After": "10"})
    error_id = secrets.token_hex(6)
    log.error("request failed", error_id=error_id, method=method, path=path, exc_info=error)
    detail = f"The service failed at this request; its log says why, under {error_id}."
    return problem_response(500, "internal", detail, error_id=error_id)
