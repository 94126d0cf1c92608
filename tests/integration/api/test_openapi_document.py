"""The OpenAPI document says of every operation what it does, what it takes and answers, and how it refuses.

Its examples are true: the service is asked again for each. Its links lead somewhere: what they name is in an example.
"""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from api.app import create_app
from api.openapi import FILE, LINKS
from api.records import Problem
from tests.factories.serving import open_services
from tests.openapi_examples.write import made_examples

PROBLEM = "application/problem+json"
JSON = "application/json"


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with open_services(tmp_path_factory.mktemp("document")) as (services, _):
        return create_app(services).openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def validate(document: dict[str, Any], value: Any, schema: dict[str, Any]) -> None:
    """Raise where the value is not what a schema of the document says."""
    jsonschema.validate(value, schema | {"components": document["components"]}, jsonschema.Draft202012Validator)


def test_every_operation_has_words_and_says_how_it_refuses(document: dict[str, Any]):
    assert len(list(operations(document))) > 60
    for route, operation in operations(document):
        assert operation["summary"] and operation["description"].endswith((".", ")")), route
        assert operation["tags"], route
        statuses = operation["responses"].keys()
        assert any(status.startswith("2") for status in statuses), route
        assert any(status.startswith("4") for status in statuses), route


def test_every_refusal_is_a_problem_with_an_example(document: dict[str, Any]):
    for route, operation in operations(document):
        for status, answer in operation["responses"].items():
            if not status.startswith(("4", "5")):
                continue
            assert list(answer["content"]) == [PROBLEM], (route, status)
            example = answer["content"][PROBLEM]["example"]
            assert Problem.model_validate(example).status == int(status), route
            assert answer["content"][PROBLEM]["schema"] == {"$ref": "#/components/schemas/Problem"}
            validate(document, example, answer["content"][PROBLEM]["schema"])
    assert "HTTPValidationError" not in str(document)


def test_what_may_be_tagged_says_so(document: dict[str, Any]):
    tagged = {route for route, operation in operations(document) if "304" in operation["responses"]}
    assert {"GET /v1/runs/{run_id}", "GET /v1/experiments", "GET /v1/points"} <= tagged
    assert "GET /v1/experiments/{experiment_id}/stream" not in tagged
    assert all(route.startswith("GET /v1/") for route in tagged)


def test_the_examples_are_what_the_service_answers(tmp_path):
    """Where this fails since answers have changed: `python -m tests.openapi_examples.write`."""
    assert made_examples(tmp_path) == json.loads(FILE.read_text())


def test_every_operation_has_examples_of_what_it_takes_and_answers(document: dict[str, Any]):
    without = []
    for route, operation in operations(document):
        body = operation.get("requestBody", {}).get("content", {}).get(JSON)
        if body is not None and not body.get("examples"):
            without.append(f"{route}: what is sent")
        contents = [answer.get("content", {}) for status, answer in operation["responses"].items() if status[0] == "2"]
        shown = [media for content in contents for media in content.values() if "example" in media]
        if any(contents) and not shown:
            without.append(f"{route}: what is answered")
    assert without == []


def test_examples_are_what_their_schemas_say(document: dict[str, Any]):
    checked = 0
    for _, operation in operations(document):
        body = operation.get("requestBody", {}).get("content", {}).get(JSON, {})
        for each in body.get("examples", {}).values():
            validate(document, each["value"], body["schema"])
            checked += 1
        for status, answer in operation["responses"].items():
            media = answer.get("content", {}).get(JSON, {})
            if status.startswith("2") and "example" in media and media.get("schema"):
                validate(document, media["example"], media["schema"])
                checked += 1
    assert checked > 65


def test_examples_hold_no_secret_that_was_ever_one():
    text = FILE.read_text()
    assert "and-43-characters-shown-this-once" in text and "whsec_and-base64" in text
    assert str(FILE.parents[1]) not in text and "/tmp/" not in text


@pytest.mark.parametrize("route", dict.fromkeys(source for source, _, _ in LINKS))
def test_a_link_finds_in_an_answer_what_the_next_call_takes(document: dict[str, Any], route: str):
    source = dict(operations(document))[route]
    answers = [answer for status, answer in source["responses"].items() if answer.get("links")]
    assert answers
    shown = [answer for answer in answers if "example" in answer["content"][JSON]]
    assert shown
    for answer in shown:
        example = answer["content"][JSON]["example"]
        for name, link in answer["links"].items():
            (target,) = [each for _, each in operations(document) if each["operationId"] == name]
            taken = {parameter["name"]: parameter for parameter in target.get("parameters", ())}
            assert link["parameters"].keys() <= taken.keys()
            in_path = {each["name"] for each in taken.values() if each["in"] == "path"}
            assert in_path <= link["parameters"].keys(), "a call that cannot be made"
            for expression in link["parameters"].values():
                assert found(example, source, expression), (route, name, expression)


def found(example: Any, source: dict[str, Any], expression: str) -> bool:
    """Whether a runtime expression gives something, of that answer to that operation."""
    if expression.startswith("$request.path."):
        return expression.rpartition(".")[2] in {each["name"] for each in source["parameters"]}
    if not expression.startswith("$response.body#"):
        return True  # a word
    for step in expression.partition("#")[2].split("/")[1:]:
        example = example[int(step) if isinstance(example, list) else step]
    return isinstance(example, str | int)
