"""`/docs`: the REST interface for people, rendered here from the OpenAPI document: no script, no CDN."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from dashboards.render import environment

router = APIRouter(include_in_schema=False)

TEMPLATE = """{% extends "base.html" %}
{% block title %}REST interface · AdaPM Bench{% endblock %}
{% block main %}
<h1>REST interface</h1>
<p>JSON in, JSON out; errors are <code>application/problem+json</code> with a pointer to each fault.
The same as a document for programs: <a href="/v1/openapi.json">/v1/openapi.json</a>.</p>
{% for noun, operations in nouns.items() %}
<section>
<h2>{{ noun }}</h2>
{% for operation in operations %}
<article>
<h3><code>{{ operation.method }} {{ operation.path }}</code></h3>
<p>{{ operation.text }}</p>
<ul>
{% for line in operation.parameters %}<li>{{ line }}</li>
{% endfor %}{% if operation.body %}<li>body: {{ operation.body }}</li>
{% endif %}<li>answers: {{ operation.answers }}</li>
</ul>
</article>
{% endfor %}
</section>
{% endfor %}
{% endblock %}
"""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One method of one path, in words."""

    noun: str
    method: str
    path: str
    text: str
    parameters: tuple[str, ...]
    body: str
    answers: str


@router.get("/docs")
def reference(request: Request) -> HTMLResponse:
    """Every operation with its parameters and answers."""
    nouns: dict[str, list[Operation]] = {}
    for operation in operations(request.app.openapi()):
        nouns.setdefault(operation.noun, []).append(operation)
    return HTMLResponse(environment().from_string(TEMPLATE).render(nouns=nouns))


def operations(document: dict[str, Any]) -> Iterator[Operation]:
    """The operations of an OpenAPI document, in its order."""
    for path, methods in document["paths"].items():
        for method, details in methods.items():
            yield Operation(
                noun=details["tags"][0],
                method=method.upper(),
                path=path,
                text=details.get("description", ""),
                parameters=tuple(_parameter(parameter) for parameter in details.get("parameters", ())),
                body=_content_name(details.get("requestBody", {})),
                answers=", ".join(_answer(status, answer) for status, answer in details["responses"].items()),
            )


def _parameter(parameter: dict[str, Any]) -> str:
    needed = "required" if parameter.get("required") else "optional"
    text = parameter.get("description", "")
    return f"{parameter['in']} {parameter['name']}, {needed}" + (f": {text}" if text else "")


def _answer(status: str, answer: dict[str, Any]) -> str:
    name = _content_name(answer)
    return f"{status} ({name})" if name else status


def _content_name(holder: dict[str, Any]) -> str:
    """The name of what a request or an answer holds; empty where that has none."""
    for media in holder.get("content", {}).values():
        schema = media.get("schema", {})
        name = schema.get("$ref", "").rpartition("/")[2] or schema.get("title", "")
        return str(name).replace("_", " ").strip()
    return ""
