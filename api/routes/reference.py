"""`/docs`: the REST interface for people, rendered here from the OpenAPI document: no script, no CDN."""

import json
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from dashboards.render import below_root, environment

router = APIRouter(include_in_schema=False)

TEMPLATE = """{% extends "base.html" %}
{% block title %}REST interface · AdaPM Bench{% endblock %}
{% block head %}<link rel="stylesheet" href="{{ asset('reference.css') }}">{% endblock %}
{% block main %}
<h1>REST interface</h1>
<p class="reference">JSON in, JSON out; errors are <code>application/problem+json</code> with a pointer to each fault.
The examples are answers of this service; their lists and texts are shortened.
The same as a document for programs: <a href="/v1/openapi.json">/v1/openapi.json</a>;
it also says to which calls an answer leads.</p>
{% for noun, operations in nouns.items() %}
<section class="noun">
<h2>{{ noun }}</h2>
{% for operation in operations %}
<article class="operation">
<h3><code>{{ operation.method }} {{ operation.path }}</code></h3>
<p>{{ operation.text }}</p>
<ul>
{% for line in operation.parameters %}<li>{{ line }}</li>
{% endfor %}{% if operation.body %}<li>body: {{ operation.body }}</li>
{% endif %}<li>answers: {{ operation.answers }}</li>
</ul>
{% for example in operation.examples %}<details class="spec">
<summary>{{ example.title }}</summary>
<pre tabindex="0"><code>{{ example.text }}</code></pre>
</details>
{% endfor %}</article>
{% endfor %}
</section>
{% endfor %}
{% endblock %}
"""


@router.get("/docs")
def reference(request: Request) -> HTMLResponse:
    """Every operation with its parameters and answers, in the order of the OpenAPI document."""
    nouns: dict[str, list[dict[str, Any]]] = {}
    for path, methods in request.app.openapi()["paths"].items():
        for method, details in methods.items():
            operation = {
                "method": method.upper(),
                "path": path,
                "text": details.get("description", ""),
                "parameters": [_parameter(parameter) for parameter in details.get("parameters", ())],
                "body": _content_name(details.get("requestBody", {})),
                "answers": ", ".join(_answer(status, answer) for status, answer in details["responses"].items()),
                "examples": list(_examples(details)),
            }
            nouns.setdefault(details["tags"][0], []).append(operation)
    return HTMLResponse(below_root(environment().from_string(TEMPLATE).render(nouns=nouns)))


def _parameter(parameter: dict[str, Any]) -> str:
    needed = "required" if parameter.get("required") else "optional"
    text = parameter.get("description", "")
    return f"{parameter['in']} {parameter['name']}, {needed}" + (f": {text}" if text else "")


def _answer(status: str, answer: dict[str, Any]) -> str:
    name = _content_name(answer)
    return f"{status} ({name})" if name else status


def _examples(details: dict[str, Any]) -> Iterator[dict[str, str]]:
    """What is sent, then what comes back where all is well; lists and texts of answers are shortened."""
    for media in details.get("requestBody", {}).get("content", {}).values():
        for name, example in media.get("examples", {}).items():
            title = f"sent: {name}" if len(media["examples"]) > 1 else "sent"
            yield {"title": title, "text": _text(example["value"])}
    for status, answer in details["responses"].items():
        for kind, media in answer.get("content", {}).items():
            if "example" in media and status.startswith("2"):
                yield {"title": f"{status}, {kind}", "text": _text(media["example"])}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def _content_name(holder: dict[str, Any]) -> str:
    """The name of what a request or an answer holds; empty where that has none."""
    for media in holder.get("content", {}).values():
        schema = media.get("schema", {})
        name = schema.get("$ref", "").rpartition("/")[2] or schema.get("title", "")
        return str(name).replace("_", " ").strip()
    return ""
