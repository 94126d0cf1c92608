"""What may be submitted, as the OpenAPI document has it: what editors are told (`orchestrator/spec_schema.py`).

A specification in an answer has everything. In a request it may leave out what its task or its sizes say, and name a
task by its word alone. So those parts that may look otherwise when they are sent are in the document a second time.
"""

import json
import re
from typing import Any

from orchestrator.spec_schema import schema

BEGINNINGS = {"comparison": "Submitted", "sweep": "Submitted", "scaling": "SubmittedScaling"}
"""Of the names of such parts; a scaling experiment's workload may leave out more than the others'."""
DEFINITION = re.compile(r'"#/\$defs/(\w+)"')


def describe_specs(document: dict[str, Any]) -> None:
    """Say in an OpenAPI document what the body of `POST /v1/experiments` may be."""
    known, kinds = document["components"]["schemas"], []
    for kind, beginning in BEGINNINGS.items():
        wanted = schema(kind)
        parts = wanted.pop("$defs")
        names = _names(parts, known, beginning)
        known.update({names[name]: _pointed(part, names) for name, part in parts.items() if name in names})
        del wanted["$schema"]
        if kind != "comparison":
            wanted["required"].append("kind")  # what has none is a comparison
        kinds.append(_pointed(wanted, names))
    content = document["paths"]["/v1/experiments"]["post"]["requestBody"]["content"]
    content["application/json"]["schema"] = {"title": "Specification", "oneOf": kinds}


def _names(parts: dict[str, Any], known: dict[str, Any], beginning: str) -> dict[str, str]:
    """New names for the parts that are not the same in answers, or point to one that is not."""
    other = {name for name, part in parts.items() if _pointed(part, {}) != known.get(name)}
    while more := {name for name, part in parts.items() if name not in other and _points_to(part) & other}:
        other |= more
    return {name: f"{beginning}{name}" for name in other}


def _points_to(part: Any) -> set[str]:
    return set(DEFINITION.findall(json.dumps(part)))


def _pointed(part: Any, names: dict[str, str]) -> Any:
    """The part with references as this document has them."""
    text = DEFINITION.sub(
        lambda found: f'"#/components/schemas/{names.get(found[1], found[1])}"', json.dumps(part, ensure_ascii=False)
    )
    return json.loads(text)
