"""What OpenAPI says that holds for many operations: access, with the answers 401, 403 and 429, and tags, with 304."""

from collections.abc import Callable
from functools import cache
from typing import Any

from api.faults import Problem
from api.links import add_links
from api.openapi_examples import add_examples
from api.routes.attempts import batch_body
from api.routes.context import problems
from api.scopes import HEAVY, Access, Place, place_of
from api.spec_document import describe_specs
from api.tags import REST

KEY = "Key"
SCHEMES = {
    KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "A key of the service, `adapm_…`; a service without keys asks for none.",
    }
}
IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "The `ETag` of an earlier answer: 304 where it would be the same.",
    "schema": {"type": "string"},
}
NOT_OURS = ("HTTPValidationError", "ValidationError")
"""Schemas of FastAPI's own 422."""
REVISED = "/v1/experiments/{experiment_id}"
"""Its tag is the revision of labels and note, for `If-Match`, and is not looked at by a GET."""
POINTS = "/v1/attempts/{run_id}/{attempt}/points"
STATUSES = {
    Access.OPEN: ("429",),
    Access.LEASE: ("429",),
    Access.VIEWER: ("401", "429"),
    Access.SUBMITTER: ("401", "403", "429"),
    Access.ADMIN: ("401", "403", "429"),
}


def access_described(document: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """The maker of an OpenAPI document, with access described in what it makes."""

    @cache
    def described() -> dict[str, Any]:
        made = document()
        made["paths"][POINTS]["post"]["requestBody"] = batch_body()
        components = made.setdefault("components", {})
        components.setdefault("securitySchemes", {}).update(SCHEMES)
        components.setdefault("schemas", {}).update(_problem_schemas())
        for path, operations in made["paths"].items():
            for method, operation in operations.items():
                _describe(operation, place_of(method.upper(), path))
                _describe_faults(operation)
                _describe_parameters(operation)
                if method == "get" and path.startswith(REST) and path != REVISED:
                    _describe_tag(operation)
        for name in NOT_OURS:
            components["schemas"].pop(name, None)
        describe_specs(made)
        add_links(made)
        add_examples(made)
        return made

    return described


def _problem_schemas() -> dict[str, Any]:
    """What `problems` of `routes/context.py` refers to."""
    schema = Problem.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
    return {**schema.pop("$defs"), "Problem": schema}


def _describe(operation: dict[str, Any], place: Place | None) -> None:
    access = place.access if place else Access.ADMIN
    for status in STATUSES[access]:
        operation["responses"].setdefault(status, problems(int(status))[int(status)])
    if place is not None and place.route in HEAVY:
        operation["responses"].setdefault("503", problems(503)[503])
    if access.scope() is not None:
        if place is not None and place.route.partition(" ")[2].startswith(REST):  # unknown parameters: `queries.py`
            operation["responses"].setdefault("422", problems(422)[422])
        operation["security"] = [{KEY: []}]
        operation["x-scope"] = access.value


def _describe_faults(operation: dict[str, Any]) -> None:
    """FastAPI adds an answer 422 of its own form, which is never given: ours is a problem as all the others."""
    if "application/json" in operation["responses"].get("422", {}).get("content", {}):
        operation["responses"]["422"] = problems(422)[422]


def _describe_parameters(operation: dict[str, Any]) -> None:
    """A parameter is sent or is not: what the code has as None for one that is not is no value of it."""
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        others = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
        if len(others) == 1:
            del schema["anyOf"]
            parameter["schema"] = others[0] | schema


def _describe_tag(operation: dict[str, Any]) -> None:
    """What `tags.py` does to an answer that is no stream."""
    answer = operation["responses"]["200"]
    if "text/event-stream" in answer.get("content", {}):
        return
    answer.setdefault("headers", {})["ETag"] = {
        "description": "Of this answer; absent where it is large, or sent in pieces.",
        "schema": {"type": "string"},
    }
    operation["responses"].setdefault("304", {"description": "The caller has the answer: its tag was shown."})
    operation.setdefault("parameters", []).append(IF_NONE_MATCH)
