"""What fields mean stands in JSON schemas, and is the docstring under each of them."""

from typing import Generic, TypeVar

import pytest
from pydantic import Field, create_model

from worker.schema import DescribedRecord, field_docs

Answer = TypeVar("Answer")


class Parent(DescribedRecord):
    first: int
    """What the parent says."""
    second: int = 0
    """Told anew by the child."""


class Child(Parent):
    second: int = 1
    """What the child
    says."""
    other: Parent | None = None
    """Another one."""
    silent: int = 0
    said: int = Field(default=0, description="What its field says.")
    """What is not shown."""


class Page(DescribedRecord, Generic[Answer]):
    items: tuple[Answer, ...]
    """Of this page."""


def descriptions(schema):
    return {name: field.get("description") for name, field in schema["properties"].items()}


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_a_schema_says_what_each_field_means(mode):
    schema = Child.model_json_schema(mode=mode)
    assert descriptions(schema) == {
        "first": "What the parent says.",
        "second": "What the child\nsays.",
        "other": "Another one.",
        "silent": None,
        "said": "What its field says.",
    }
    assert descriptions(schema["$defs"]["Parent"])["second"] == "Told anew by the child."
    assert descriptions(Page[Child].model_json_schema(mode=mode)) == {"items": "Of this page."}


def test_a_class_without_a_source_is_not_described():
    model = create_model("Made", __base__=DescribedRecord, __module__="nowhere", first=(int, ...))
    assert field_docs(model) == {}
    assert descriptions(model.model_json_schema()) == {"first": None}
