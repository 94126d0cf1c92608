"""The OpenAPI document says of every operation what it does, what it takes, and how it refuses: always in one form."""

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from api.app import create_app
from api.faults import Problem
from tests.browser.serving import opened_bench

PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with opened_bench(tmp_path_factory.mktemp("document")) as (bench, _):
        return create_app(bench).openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


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
            jsonschema.validate(example, answer["content"][PROBLEM]["schema"])
    assert "HTTPValidationError" not in str(document)


def test_what_may_be_tagged_says_so(document: dict[str, Any]):
    tagged = {route for route, operation in operations(document) if "304" in operation["responses"]}
    assert {"GET /v1/runs/{run_id}", "GET /v1/experiments", "GET /v1/points"} <= tagged
    assert "GET /v1/experiments/{experiment_id}/stream" not in tagged
    assert all(route.startswith("GET /v1/") for route in tagged)
