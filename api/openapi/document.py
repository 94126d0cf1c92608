"""What the OpenAPI document says beyond the routes: access, with the answers 401, 403 and 429; tags, with 304;
examples; and what a specification may leave out when it is sent.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from api.auth.scopes import HEAVY, Access, GuardedRoute, place_of
from api.middleware.transfer import REST
from api.openapi.links import add_links
from api.records import Problem
from api.routes.attempts import batch_body
from api.routes.context import problems
from orchestrator.kinds.registry import KINDS
from orchestrator.specs.schema import schema

FILE = Path(__file__).with_name("examples.json")
"""What is sent to each operation and what it answers, as the service once did: `python -m tests.openapi_examples.write`
writes it, with lists and texts in answers shortened."""
JSON = "application/json"


def add_examples(document: dict[str, Any]) -> None:
    """Put the examples into an OpenAPI document."""
    for route, shown in json.loads(FILE.read_text()).items():
        method, _, path = route.partition(" ")
        operation = document["paths"][path][method.lower()]
        if shown["sent"]:
            examples = {name: {"value": body} for name, body in shown["sent"].items()}
            operation["requestBody"]["content"][JSON]["examples"] = examples
        for status, answers in shown["answered"].items():
            content = operation["responses"][status]["content"]
            for media, answer in answers.items():
                content[_media_of(content, media)]["example"] = answer


def _media_of(content: dict[str, Any], media: str) -> str:
    """The document's own word for a media type, with parameters or without."""
    return media if media in content else media.partition(";")[0]


SUBMITTED = "Submitted"
"""The beginning of the names of such parts; behind it the kind, where one may leave out more than the others."""
COMPARISON = "comparison"
"""What an experiment is that names no kind."""
DEFINITION = re.compile(r'"#/\$defs/(\w+)"')


def describe_specs(document: dict[str, Any]) -> None:
    """Say in an OpenAPI document what the body of `POST /v1/experiments` may be.

    A specification in an answer has everything. In a request it may leave out what its task or its sizes say, and name
    a task by its word alone: parts that may look otherwise when they are sent are in the document a second time.
    """
    known, kinds = document["components"]["schemas"], []
    for kind, spec in KINDS.items():
        wanted = schema(kind)
        parts = wanted.pop("$defs")
        names = _names(parts, known, SUBMITTED + (kind.capitalize() if spec.derived_fields else ""))
        known.update({names[name]: _rename_references(part, names) for name, part in parts.items() if name in names})
        del wanted["$schema"]
        if kind != COMPARISON:
            wanted["required"].append("kind")
        kinds.append(_rename_references(wanted, names))
    content = document["paths"]["/v1/experiments"]["post"]["requestBody"]["content"]
    content["application/json"]["schema"] = {"title": "Specification", "oneOf": kinds}


def _names(parts: dict[str, Any], known: dict[str, Any], beginning: str) -> dict[str, str]:
    """New names for the parts that are not the same in answers, or point to one that is not."""
    other = {name for name, part in parts.items() if _rename_references(part, {}) != known.get(name)}
    while more := {name for name, part in parts.items() if name not in other and _references(part) & other}:
        other |= more
    return {name: f"{beginning}{name}" for name in other}


def _references(part: Any) -> set[str]:
    return set(DEFINITION.findall(json.dumps(part)))


def _rename_references(part: Any, names: dict[str, str]) -> Any:
    """The part with references as this document has them."""
    text = DEFINITION.sub(
        lambda found: f'"#/components/schemas/{names.get(found[1], found[1])}"', json.dumps(part, ensure_ascii=False)
    )
    return json.loads(text)


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


def document_with_access(document: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """The maker of an OpenAPI document, with access described in what it makes."""

    @cache
    def describe() -> dict[str, Any]:
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

    return describe


def _problem_schemas() -> dict[str, Any]:
    """What `problems` of `routes/context.py` refers to."""
    schema = Problem.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
    return {**schema.pop("$defs"), "Problem": schema}


def _describe(operation: dict[str, Any], place: GuardedRoute | None) -> None:
    access = place.access if place else Access.ADMIN
    for status in STATUSES[access]:
        operation["responses"].setdefault(status, problems(int(status))[int(status)])
    if place is not None and place.route in HEAVY:
        operation["responses"].setdefault("503", problems(503)[503])
    if access.scope() is not None:
        if place is not None and place.route.partition(" ")[2].startswith(
            REST
        ):  # unknown parameters: `api/middleware/query_check.py`
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
    """What `api/middleware/transfer.py` does to an answer that is no stream."""
    answer = operation["responses"]["200"]
    if "text/event-stream" in answer.get("content", {}):
        return
    answer.setdefault("headers", {})["ETag"] = {
        "description": "Of this answer; absent where it is large, or sent in pieces.",
        "schema": {"type": "string"},
    }
    operation["responses"].setdefault("304", {"description": "The caller has the answer: its tag was shown."})
    operation.setdefault("parameters", []).append(IF_NONE_MATCH)
