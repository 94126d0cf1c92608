"""Examples of the OpenAPI document: what is sent to each operation and what it answers, as the service once did.

They are in `openapi_examples.json`, which `python -m tests.reference.made_examples` writes; lists and texts in answers
are shortened. The file is read when the document is asked for, and not before.
"""

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("openapi_examples.json")
JSON = "application/json"


def add_examples(document: dict[str, Any]) -> None:
    """Put the examples into an OpenAPI document."""
    for route, told in json.loads(FILE.read_text()).items():
        method, _, path = route.partition(" ")
        operation = document["paths"][path][method.lower()]
        if told["sent"]:
            examples = {name: {"value": body} for name, body in told["sent"].items()}
            operation["requestBody"]["content"][JSON]["examples"] = examples
        for status, answers in told["answered"].items():
            content = operation["responses"][status]["content"]
            for media, answer in answers.items():
                content[_media_of(content, media)]["example"] = answer


def _media_of(content: dict[str, Any], media: str) -> str:
    """The document's own word for a media type, with parameters or without."""
    return media if media in content else media.partition(";")[0]
