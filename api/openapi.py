"""Add to FastAPI's OpenAPI document: access, with the answers 401, 403 and 429; and the fields that a specification may
leave out when it is sent."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from api.auth.scopes import HEAVY, Access, find_route
from api.records import Problem
from api.routes.attempts import batch_body
from api.routes.context import problems
from dashboards.render import ROOT_PATH
from orchestrator.kinds.registry import COMPARISON, KINDS
from orchestrator.specs.schema import schema

JSON = "application/json"


def describe_specs(document: dict[str, Any]) -> None:
    """Put the schema of each kind of specification, as it may be sent, into the body of `POST /v1/experiments`.

    An answer has every field. A request may leave out fields that follow from its task or its sizes, and names a task
    by its word alone: so the parts of a specification are in the document a second time, as `Submitted…`.
    """
    components, kinds = document["components"]["schemas"], []
    for kind, spec in KINDS.items():
        beginning = "Submitted" + (kind.capitalize() if spec.derived_fields else "")
        text = json.dumps(schema(kind), ensure_ascii=False)
        sent = json.loads(text.replace('"#/$defs/', f'"#/components/schemas/{beginning}'))
        components.update({beginning + name: part for name, part in sent.pop("$defs").items()})
        del sent["$schema"]
        if kind != COMPARISON:
            sent["required"].append("kind")
        kinds.append(sent)
    content = document["paths"]["/v1/experiments"]["post"]["requestBody"]["content"]
    content[JSON]["schema"] = {"title": "Specification", "oneOf": kinds}


KEY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key of the service, `adapm_…`; a service without keys asks for none.",
}
POINTS = "/v1/attempts/{run_id}/{attempt}/points"


def document_with_access(document: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Return the maker of an OpenAPI document, with access described in what it makes."""

    @cache
    def describe() -> dict[str, Any]:
        openapi_document = document()
        openapi_document["paths"][POINTS]["post"]["requestBody"] = batch_body()
        components = openapi_document.setdefault("components", {})
        components.setdefault("securitySchemes", {})["Key"] = KEY_SCHEME
        problem = Problem.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
        components.setdefault("schemas", {}).update(problem.pop("$defs"), Problem=problem)  # as `problems` refers to it
        for path, operations in openapi_document["paths"].items():
            for method, operation in operations.items():
                _describe(operation, method, path)
        for name in ("HTTPValidationError", "ValidationError"):  # of FastAPI's own 422
            components["schemas"].pop(name, None)
        describe_specs(openapi_document)
        return openapi_document

    def describe_below_root() -> dict[str, Any]:
        root = ROOT_PATH.get()
        return describe() | ({"servers": [{"url": root}]} if root else {})

    return describe_below_root


def _describe(operation: dict[str, Any], method: str, path: str) -> None:
    responses, guarded = operation["responses"], find_route(method.upper(), path)
    access = guarded.access if guarded else Access.ADMIN
    changes = access in (Access.SUBMITTER, Access.ADMIN)
    refusals = ["429", *(["401"] if access.scope() else []), *(["403"] if changes else [])]
    for status in refusals:
        responses.setdefault(status, problems(int(status))[int(status)])
    if guarded is not None and guarded.route in HEAVY:
        responses.setdefault("503", problems(503)[503])
    if access.scope() is not None:
        if guarded is not None and path.startswith("/v1/"):  # unknown parameters: `JsonRoute`
            responses.setdefault("422", problems(422)[422])
        operation["security"] = [{"Key": []}]
        operation["x-scope"] = access.value
    # FastAPI adds an answer 422 of its own form, which is never given: ours is a problem as all the others.
    if JSON in responses.get("422", {}).get("content", {}):
        responses["422"] = problems(422)[422]
    # A parameter is sent or is not: what the code has as None for one that is not is no value of it.
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
        if len(choices) == 1:
            del schema["anyOf"]
            parameter["schema"] = choices[0] | schema
