"""The operations of an OpenAPI document, and the examples of what is sent to each."""

import re
from collections.abc import Iterator
from typing import Any

JSON = "application/json"


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `POST /v1/experiments` and the like, each with its operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def body_examples(document: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the examples of each operation's body: its own, or those of the record that it is."""
    return {
        route: list(_examples(operation.get("requestBody", {}).get("content", {}).get(JSON, {}), document))
        for route, operation in operations(document)
    }


def _examples(media: dict[str, Any], document: dict[str, Any]) -> Iterator[Any]:
    if "examples" in media:
        yield from (example["value"] for example in media["examples"].values())
    else:
        for name in re.findall(r"'#/components/schemas/([^']+)'", str(media)):
            yield from document["components"]["schemas"][name].get("examples", ())
