"""What the OpenAPI document says beyond the routes: access, with the answers 401, 403 and 429; tags, with 304;
examples; what a specification may leave out when it is sent; and links: which calls an answer makes possible, and where
in it their parameters are found.

    POST /v1/experiments ─ /experiment/id ─► GET /v1/experiments/{experiment_id}, POST …/cancel, GET …/comparison, …

Programs can walk along the links from an answer to the next call; schemathesis does.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from api.auth.scopes import HEAVY, Access, find_route
from api.middleware.transfer import REST
from api.records import Problem
from api.routes.attempts import batch_body
from api.routes.context import problems
from dashboards.render import ROOT_PATH
from orchestrator.kinds.registry import KINDS
from orchestrator.specs.schema import schema

FILE = Path(__file__).with_name("openapi_examples.json")
"""What is sent to each operation and what it answers, as the service once did: `python -m tests.openapi_examples.write`
writes it, with lists and texts in answers shortened."""
JSON = "application/json"


def add_examples(document: dict[str, Any]) -> None:
    """Put the examples into an OpenAPI document."""
    for route, shown in json.loads(FILE.read_text()).items():
        operation = _operation(document, route)
        if shown["sent"]:
            examples = {name: {"value": body} for name, body in shown["sent"].items()}
            operation["requestBody"]["content"][JSON]["examples"] = examples
        for status, answers in shown["answered"].items():
            content = operation["responses"][status]["content"]
            for media, answer in answers.items():
                content[media if media in content else media.partition(";")[0]]["example"] = answer


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
    content[JSON]["schema"] = {"title": "Specification", "oneOf": kinds}


def _names(parts: dict[str, Any], known: dict[str, Any], beginning: str) -> dict[str, str]:
    """New names for the parts that are not the same in answers, or point to one that is not."""
    other = {name for name, part in parts.items() if _rename_references(part, {}) != known.get(name)}
    uses = {name: set(DEFINITION.findall(json.dumps(part))) for name, part in parts.items()}
    while more := {name for name in parts if name not in other and uses[name] & other}:
        other |= more
    return {name: f"{beginning}{name}" for name in other}


def _rename_references(part: Any, names: dict[str, str]) -> Any:
    """The part with references as this document has them."""
    text = DEFINITION.sub(
        lambda found: f'"#/components/schemas/{names.get(found[1], found[1])}"', json.dumps(part, ensure_ascii=False)
    )
    return json.loads(text)


KEY_SCHEME = "Key"
SCHEMES = {
    KEY_SCHEME: {
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
        problem = Problem.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
        components.setdefault("schemas", {}).update(problem.pop("$defs"), Problem=problem)  # as `problems` refers to it
        for path, operations in made["paths"].items():
            for method, operation in operations.items():
                _describe(operation, method, path)
        for name in NOT_OURS:
            components["schemas"].pop(name, None)
        describe_specs(made)
        add_links(made)
        add_examples(made)
        return made

    def describe_below_root() -> dict[str, Any]:
        root = ROOT_PATH.get()
        return describe() | ({"servers": [{"url": root}]} if root else {})

    return describe_below_root


def _describe(operation: dict[str, Any], method: str, path: str) -> None:
    responses, guarded = operation["responses"], find_route(method.upper(), path)
    access = guarded.access if guarded else Access.ADMIN
    for status in STATUSES[access]:
        responses.setdefault(status, problems(int(status))[int(status)])
    if guarded is not None and guarded.route in HEAVY:
        responses.setdefault("503", problems(503)[503])
    if access.scope() is not None:
        if guarded is not None and path.startswith(REST):  # unknown parameters: `QueryCheckMiddleware`
            responses.setdefault("422", problems(422)[422])
        operation["security"] = [{KEY_SCHEME: []}]
        operation["x-scope"] = access.value
    # FastAPI adds an answer 422 of its own form, which is never given: ours is a problem as all the others.
    if JSON in responses.get("422", {}).get("content", {}):
        responses["422"] = problems(422)[422]
    # A parameter is sent or is not: what the code has as None for one that is not is no value of it.
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        others = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
        if len(others) == 1:
            del schema["anyOf"]
            parameter["schema"] = others[0] | schema
    # What `api/middleware/transfer.py` does to an answer that is no stream.
    if method != "get" or not path.startswith(REST) or path == REVISED:
        return
    if "text/event-stream" not in responses["200"].get("content", {}):
        responses["200"].setdefault("headers", {})["ETag"] = {
            "description": "Of this answer; absent where it is large, or sent in pieces.",
            "schema": {"type": "string"},
        }
        responses.setdefault("304", {"description": "The caller has the answer: its tag was shown."})
        operation.setdefault("parameters", []).append(IF_NONE_MATCH)


EXPERIMENT, RUN, KEY, WEBHOOK, ATTEMPT, EXTERNAL, EXTERNAL_RUN = (
    "/v1/experiments/{experiment_id}",
    "/v1/runs/{run_id}",
    "/v1/keys/{key_id}",
    "/v1/webhooks/{webhook_id}",
    "/v1/attempts/{run_id}/{attempt}",
    "/v1/external-experiments/{external_id}",
    "/v1/external-runs/{external_id}",
)
OF_SUBMISSION, ITSELF, FIRST = "$response.body#/experiment/id", "$response.body#/id", "$response.body#/items/0/id"

OF_AN_EXPERIMENT = (
    f"GET {EXPERIMENT}",
    f"PATCH {EXPERIMENT}",
    f"DELETE {EXPERIMENT}",
    f"POST {EXPERIMENT}/{{action}}",
    f"POST {EXPERIMENT}/clone",
    "GET /v1/runs",
    f"GET {EXPERIMENT}/stream",
)
RESULTS = (
    f"GET {EXPERIMENT}/comparison",
    f"GET {EXPERIMENT}/comparison/{{form}}",
    f"GET {EXPERIMENT}/cells",
    f"GET {EXPERIMENT}/sweep",
    f"GET {EXPERIMENT}/figures",
    f"GET {EXPERIMENT}/report",
    f"GET {EXPERIMENT}/references.bib",
    f"GET {EXPERIMENT}/document.json",
    f"GET {EXPERIMENT}/exports/{{name}}",
)
OF_A_RUN = tuple(
    f"GET {RUN}/{noun}" for noun in ("points", "observations", "samples", "events", "standing", "attempts")
)
ENDS_OF_AN_ATTEMPT = tuple(f"POST {ATTEMPT}/{verb}" for verb in ("finish", "stopped", "fail"))
REPORTS_OF_AN_ATTEMPT = tuple(f"POST {ATTEMPT}/{verb}" for verb in ("heartbeat", "points", "checkpoint"))

CONSTANTS: Mapping[str, Mapping[str, str]] = {
    f"POST {EXPERIMENT}/{{action}}": {"action": "cancel"},
    f"POST {RUN}/{{action}}": {"action": "cancel"},
    f"GET {EXPERIMENT}/comparison/{{form}}": {"form": "csv"},
    f"GET {EXPERIMENT}/exports/{{name}}": {"name": "results.csv"},
    f"GET {RUN}/exports/{{name}}": {"name": "series.csv"},
    f"GET {EXPERIMENT}/figures/{{name}}.{{form}}": {"form": "svg"},
}
"""Parameters that no answer has: any value of theirs would do."""


Link = tuple[str, dict[str, str], tuple[str, ...]]
"""From the answer of a route, with where the parameters are found in it (OpenAPI 3.1's runtime expressions, 4.7.20.4),
to the routes that take them."""


def _link(source: str, found: str, *targets: str, by: str = "experiment_id") -> Link:
    return source, {by: found}, targets


LINKS: tuple[Link, ...] = (
    _link("POST /v1/experiments", OF_SUBMISSION, *OF_AN_EXPERIMENT, *RESULTS),
    _link(f"POST {EXPERIMENT}/clone", OF_SUBMISSION, *OF_AN_EXPERIMENT),
    _link("GET /v1/experiments", FIRST, f"GET {EXPERIMENT}", "GET /v1/runs", *RESULTS),
    _link(f"GET {EXPERIMENT}", ITSELF, *RESULTS, "GET /v1/runs", f"PATCH {EXPERIMENT}", f"POST {EXPERIMENT}/clone"),
    _link(f"PATCH {EXPERIMENT}", ITSELF, f"GET {EXPERIMENT}"),
    _link(f"POST {EXPERIMENT}/{{action}}", ITSELF, f"GET {EXPERIMENT}", f"DELETE {EXPERIMENT}"),
    _link(f"DELETE {EXPERIMENT}", ITSELF, f"POST {EXPERIMENT}/restore"),
    _link(f"POST {EXPERIMENT}/restore", ITSELF, f"GET {EXPERIMENT}"),
    _link(f"GET {EXPERIMENT}/sweep", "$request.path.experiment_id", f"GET {EXPERIMENT}/sweep/comparison"),
    (f"GET {EXPERIMENT}/sweep/comparison", {}, ("POST /v1/experiments",)),
    (
        f"GET {EXPERIMENT}/figures",
        {"experiment_id": "$request.path.experiment_id", "name": "$response.body#/items/0"},
        (f"GET {EXPERIMENT}/figures/{{name}}.{{form}}",),
    ),
    _link("GET /v1/experiments", FIRST, "GET /v1/fits", "GET /v1/profiles", by="experiment"),
    _link("GET /v1/runs", FIRST, f"GET {RUN}", *OF_A_RUN, f"GET {RUN}/exports/{{name}}", by="run_id"),
    _link("GET /v1/runs", FIRST, f"POST {RUN}/{{action}}", by="run_id"),
    _link("GET /v1/runs", FIRST, "GET /v1/points", by="run"),
    _link(f"GET {RUN}", ITSELF, *OF_A_RUN, by="run_id"),
    _link(f"POST {RUN}/{{action}}", ITSELF, f"GET {RUN}", f"GET {RUN}/standing", by="run_id"),
    (
        f"GET {RUN}/attempts",
        {"run_id": "$request.path.run_id", "attempt": "$response.body#/items/0/attempt"},
        (f"GET {RUN}/attempts/{{attempt}}/log",),
    ),
    _link("GET /v1/studies", "$response.body#/items/0/name", "GET /v1/studies/{name}", by="name"),
    _link("POST /v1/keys", "$response.body#/key/id", f"DELETE {KEY}", by="key_id"),
    _link("GET /v1/keys", FIRST, f"DELETE {KEY}", "GET /v1/audit", by="key_id"),
    _link(
        "POST /v1/webhooks",
        "$response.body#/webhook/id",
        f"POST {WEBHOOK}/test",
        f"GET {WEBHOOK}/deliveries",
        f"DELETE {WEBHOOK}",
        by="webhook_id",
    ),
    _link("GET /v1/webhooks", FIRST, f"GET {WEBHOOK}/deliveries", by="webhook_id"),
    _link(f"POST {WEBHOOK}/test", "$request.path.webhook_id", f"GET {WEBHOOK}/deliveries", by="webhook_id"),
    _link(
        f"POST {EXTERNAL_RUN}/lines",
        "$response.body#/run_id",
        f"GET {EXTERNAL_RUN}",
        f"GET {EXTERNAL_RUN}/series",
        f"DELETE {EXTERNAL_RUN}",
        by="external_id",
    ),
    _link(f"POST {EXTERNAL_RUN}/lines", "$response.body#/experiment_id", f"GET {EXTERNAL}", by="external_id"),
    _link("GET /v1/external-experiments", FIRST, f"GET {EXTERNAL}", by="external_id"),
    _link(
        f"GET {EXTERNAL}",
        ITSELF,
        *(f"GET {EXTERNAL}/{noun}" for noun in ("runs", "runs.csv", "judgement")),
        f"DELETE {EXTERNAL}",
        by="external_id",
    ),
    *(
        (
            source,
            {"run_id": "$request.path.run_id", "attempt": "$request.path.attempt"},
            (*REPORTS_OF_AN_ATTEMPT, *ENDS_OF_AN_ATTEMPT),
        )
        for source in (f"POST {ATTEMPT}/hello", f"POST {ATTEMPT}/heartbeat")
    ),
)


def add_links(document: dict[str, Any]) -> None:
    """Put the links into an OpenAPI document: at every answer of success of each source."""
    for source, parameters, targets in LINKS:
        links: dict[str, Any] = {}
        for route in targets:
            name = _operation(document, route)["operationId"]
            links[name] = {"operationId": name, "parameters": {**parameters, **CONSTANTS.get(route, {})}}
            if not parameters:  # the answer as it is
                links[name]["requestBody"] = "$response.body"
        for status, answer in _operation(document, source)["responses"].items():
            if status in ("200", "201", "202"):
                answer.setdefault("links", {}).update(links)


def _operation(document: dict[str, Any], route: str) -> dict[str, Any]:
    method, _, path = route.partition(" ")
    operation: dict[str, Any] = document["paths"][path][method.lower()]
    return operation
