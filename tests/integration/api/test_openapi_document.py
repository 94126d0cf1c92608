"""The OpenAPI document says of every operation what it does, what it takes and answers, and how it refuses."""

from typing import Any

import jsonschema
import pytest

from api.app import create_app
from tests.factories.openapi import JSON, body_examples, operations
from tests.factories.serving import open_services

PROBLEM = "application/problem+json"
FIGURE = "GET /v1/experiments/{experiment_id}/figures/{name}.{form}"
"""A figure whose JSON is Plotly's."""


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with open_services(tmp_path_factory.mktemp("document")) as (services, _):
        return create_app(services).openapi()


def validate(document: dict[str, Any], value: Any, schema: dict[str, Any]) -> None:
    """Raise where the value is not what a schema of the document says."""
    jsonschema.validate(value, schema | {"components": document["components"]}, jsonschema.Draft202012Validator)


def test_every_operation_has_words_and_says_how_it_refuses(document: dict[str, Any]):
    for route, operation in operations(document):
        assert operation["summary"] and operation["description"].endswith((".", ")")), route
        assert operation["tags"], route
        statuses = operation["responses"].keys()
        assert any(status.startswith("2") for status in statuses), route
        assert any(status.startswith("4") for status in statuses), route


def test_every_refusal_is_a_problem(document: dict[str, Any]):
    for route, operation in operations(document):
        for status, answer in operation["responses"].items():
            if not status.startswith(("4", "5")):
                continue
            assert list(answer["content"]) == [PROBLEM], (route, status)
            assert answer["content"][PROBLEM]["schema"] == {"$ref": "#/components/schemas/Problem"}
    assert "HTTPValidationError" not in str(document)


def test_every_body_of_a_user_has_an_example_which_its_schema_allows(document: dict[str, Any]):
    examples = body_examples(document)
    for route, operation in operations(document):
        body = operation.get("requestBody", {}).get("content", {}).get(JSON)
        if body is None:
            continue
        assert examples[route] or "/attempts/" in route, route
        for example in examples[route]:
            validate(document, example, body["schema"])


def test_every_answer_in_json_is_a_record_whose_schema_says_what_it_is(document: dict[str, Any]):
    for route, operation in operations(document):
        for status, answer in operation["responses"].items():
            content = answer.get("content", {}).get(JSON)
            if status.startswith("2") and content is not None and route != FIGURE:
                assert "#/components/schemas/" in str(content["schema"]), route
    for name, record in document["components"]["schemas"].items():
        assert record.get("description") or name == "JsonValue" or name.startswith("Page_"), name
