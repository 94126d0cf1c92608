"""Links of the OpenAPI document: which calls an answer makes possible, and where in it their parameters are found.

    POST /v1/experiments ─ /experiment/id ─► GET /v1/experiments/{experiment_id}, POST …/cancel, GET …/comparison, …

Programs can walk from an answer to the next call without a word of ours; schemathesis does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EXPERIMENT, RUN, KEY, WEBHOOK, ATTEMPT = (
    "/v1/experiments/{experiment_id}",
    "/v1/runs/{run_id}",
    "/v1/keys/{key_id}",
    "/v1/webhooks/{webhook_id}",
    "/v1/attempts/{run_id}/{attempt}",
)
SUBMITTED, ITSELF, FIRST = "$response.body#/experiment/id", "$response.body#/id", "$response.body#/items/0/id"

OF_AN_EXPERIMENT = (
    f"GET {EXPERIMENT}",
    f"PATCH {EXPERIMENT}",
    f"DELETE {EXPERIMENT}",
    f"POST {EXPERIMENT}/cancel",
    f"POST {EXPERIMENT}/pause",
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
    f"GET {EXPERIMENT}/provenance",
    f"GET {EXPERIMENT}/references.bib",
    f"GET {EXPERIMENT}/document.json",
    f"GET {EXPERIMENT}/exports/{{name}}",
)
OF_A_RUN = tuple(f"GET {RUN}/{noun}" for noun in ("points", "observations", "events", "standing", "attempts"))
ENDS_OF_AN_ATTEMPT = tuple(f"POST {ATTEMPT}/{verb}" for verb in ("finish", "stopped", "fail"))
REPORTS_OF_AN_ATTEMPT = tuple(f"POST {ATTEMPT}/{verb}" for verb in ("heartbeat", "points", "checkpoint"))

CONSTANTS: Mapping[str, Mapping[str, str]] = {
    f"GET {EXPERIMENT}/comparison/{{form}}": {"form": "csv"},
    f"GET {EXPERIMENT}/exports/{{name}}": {"name": "results.csv"},
    f"GET {RUN}/exports/{{name}}": {"name": "series.csv"},
    f"GET {EXPERIMENT}/figures/{{name}}.{{form}}": {"form": "svg"},
}
"""Parameters that no answer has: any value of theirs would do."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """From one answer to the calls that have what they need of it."""

    source: str
    """The route whose answer it is."""
    targets: tuple[str, ...]
    parameters: Mapping[str, str]
    """The targets' parameter, and the runtime expression (OpenAPI 3.1, 4.7.20.4) that gives its value."""
    body: str | None = None
    """The expression of the targets' body; None where they have none, or one that is the caller's to write."""


def _way(source: str, found: str, *targets: str, by: str = "experiment_id") -> Way:
    return Way(source=source, targets=targets, parameters={by: found})


WAYS: tuple[Way, ...] = (
    _way("POST /v1/experiments", SUBMITTED, *OF_AN_EXPERIMENT, *RESULTS),
    _way(f"POST {EXPERIMENT}/clone", SUBMITTED, *OF_AN_EXPERIMENT),
    _way("GET /v1/experiments", FIRST, f"GET {EXPERIMENT}", "GET /v1/runs", *RESULTS),
    _way(f"GET {EXPERIMENT}", ITSELF, *RESULTS, "GET /v1/runs", f"PATCH {EXPERIMENT}", f"POST {EXPERIMENT}/clone"),
    _way(f"PATCH {EXPERIMENT}", ITSELF, f"GET {EXPERIMENT}"),
    _way(f"POST {EXPERIMENT}/cancel", ITSELF, f"POST {EXPERIMENT}/retry", f"DELETE {EXPERIMENT}"),
    _way(f"POST {EXPERIMENT}/pause", ITSELF, f"POST {EXPERIMENT}/resume", f"POST {EXPERIMENT}/cancel"),
    _way(f"POST {EXPERIMENT}/resume", ITSELF, f"POST {EXPERIMENT}/pause"),
    _way(f"POST {EXPERIMENT}/retry", ITSELF, f"POST {EXPERIMENT}/cancel"),
    _way(f"DELETE {EXPERIMENT}", ITSELF, f"POST {EXPERIMENT}/restore"),
    _way(f"POST {EXPERIMENT}/restore", ITSELF, f"GET {EXPERIMENT}"),
    _way(f"GET {EXPERIMENT}/sweep", "$request.path.experiment_id", f"GET {EXPERIMENT}/sweep/comparison"),
    Way(
        source=f"GET {EXPERIMENT}/sweep/comparison",
        targets=("POST /v1/experiments",),
        parameters={},
        body="$response.body",
    ),
    Way(
        source=f"GET {EXPERIMENT}/figures",
        targets=(f"GET {EXPERIMENT}/figures/{{name}}.{{form}}",),
        parameters={"experiment_id": "$request.path.experiment_id", "name": "$response.body#/items/0"},
    ),
    _way("GET /v1/experiments", FIRST, "GET /v1/fits", "GET /v1/profiles", by="experiment"),
    _way("GET /v1/runs", FIRST, f"GET {RUN}", *OF_A_RUN, f"GET {RUN}/exports/{{name}}", by="run_id"),
    _way("GET /v1/runs", FIRST, f"POST {RUN}/cancel", f"POST {RUN}/pause", by="run_id"),
    _way("GET /v1/runs", FIRST, "GET /v1/points", by="run"),
    _way(f"GET {RUN}", ITSELF, *OF_A_RUN, by="run_id"),
    _way(f"POST {RUN}/cancel", ITSELF, f"POST {RUN}/retry", f"GET {RUN}", by="run_id"),
    _way(f"POST {RUN}/pause", ITSELF, f"POST {RUN}/resume", by="run_id"),
    _way(f"POST {RUN}/resume", ITSELF, f"GET {RUN}/standing", by="run_id"),
    _way(f"POST {RUN}/retry", ITSELF, f"GET {RUN}/standing", by="run_id"),
    Way(
        source=f"GET {RUN}/attempts",
        targets=(f"GET {RUN}/attempts/{{attempt}}/log",),
        parameters={"run_id": "$request.path.run_id", "attempt": "$response.body#/items/0/attempt"},
    ),
    _way("GET /v1/studies", "$response.body#/items/0/name", "GET /v1/studies/{name}", by="name"),
    _way("POST /v1/keys", "$response.body#/key/id", f"GET {KEY}", f"DELETE {KEY}", by="key_id"),
    _way("GET /v1/keys", FIRST, f"GET {KEY}", "GET /v1/audit", by="key_id"),
    _way(f"DELETE {KEY}", ITSELF, f"GET {KEY}", by="key_id"),
    _way(
        "POST /v1/webhooks",
        "$response.body#/webhook/id",
        f"GET {WEBHOOK}",
        f"POST {WEBHOOK}/test",
        f"GET {WEBHOOK}/deliveries",
        f"DELETE {WEBHOOK}",
        by="webhook_id",
    ),
    _way("GET /v1/webhooks", FIRST, f"GET {WEBHOOK}", f"GET {WEBHOOK}/deliveries", by="webhook_id"),
    _way(f"GET {WEBHOOK}", ITSELF, f"POST {WEBHOOK}/test", by="webhook_id"),
    _way(f"POST {WEBHOOK}/test", "$request.path.webhook_id", f"GET {WEBHOOK}/deliveries", by="webhook_id"),
    *(
        Way(
            source=source,
            targets=(*REPORTS_OF_AN_ATTEMPT, *ENDS_OF_AN_ATTEMPT),
            parameters={"run_id": "$request.path.run_id", "attempt": "$request.path.attempt"},
        )
        for source in (f"POST {ATTEMPT}/hello", f"POST {ATTEMPT}/heartbeat")
    ),
)


def add_links(document: dict[str, Any]) -> None:
    """Put the links into an OpenAPI document: at every answer of success of each source."""
    for way in WAYS:
        for status, answer in _operation(document, way.source)["responses"].items():
            if status in ("200", "201", "202"):
                answer.setdefault("links", {}).update(_links(document, way))


def _links(document: dict[str, Any], way: Way) -> dict[str, Any]:
    found = {}
    for route in way.targets:
        target = _operation(document, route)
        parameters = {**way.parameters, **CONSTANTS.get(route, {})}
        link: dict[str, Any] = {"operationId": target["operationId"], "parameters": parameters}
        if way.body is not None:
            link["requestBody"] = way.body
        found[target["operationId"]] = link
    return found


def _operation(document: dict[str, Any], route: str) -> dict[str, Any]:
    method, _, path = route.partition(" ")
    operation: dict[str, Any] = document["paths"][path][method.lower()]
    return operation
