"""`/docs`: the REST interface for people, rendered here from the OpenAPI document: no script, no CDN."""

import json
import re
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from dashboards.render import below_root, environment

router = APIRouter(include_in_schema=False)


@router.get("/docs")
def reference(request: Request) -> HTMLResponse:
    """Render every operation with its parameters, body and answers, then the fields of every record."""
    document = request.app.openapi()
    records = document["components"]["schemas"]
    nouns: dict[str, list[dict[str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, details in methods.items():
            operation = {
                "method": method.upper(),
                "path": path,
                "text": details.get("description", ""),
                "parameters": [
                    f"{parameter['in']} {parameter['name']}, {'required' if parameter.get('required') else 'optional'}"
                    + (f": {text}" if (text := parameter.get("description")) else "")
                    for parameter in details.get("parameters", ())
                ],
                "body": details.get("requestBody"),
                "answers": details["responses"],
                "examples": list(_examples(details.get("requestBody", {}), records)),
            }
            nouns.setdefault(details["tags"][0], []).append(operation)
    page = environment().get_template("service/reference.html")
    return HTMLResponse(below_root(page.render(nouns=nouns, records=records, record_names=_record_names)))


def _record_names(schema: Any) -> list[str]:
    """Return the names of the records to which a part of the document refers, each once."""
    return list(dict.fromkeys(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(schema))))


def _examples(body: dict[str, Any], records: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each example of a body, its own or those of its record; one alone has no name."""
    for media in body.get("content", {}).values():
        for name, example in media.get("examples", {}).items():
            yield name, json.dumps(example["value"], indent=2, ensure_ascii=False)
        for record in [] if "examples" in media else _record_names(media):
            for example in records[record].get("examples", ()):
                yield "", json.dumps(example, indent=2, ensure_ascii=False)
