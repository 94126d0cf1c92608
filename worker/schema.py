"""`Spec`: the base of everything that a user may send, and how its faults are reported (torch-free)."""

import ast
import hashlib
import inspect
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, TypeAdapter, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, PydanticKnownError, SchemaValidator


class DescribedRecord(BaseModel):
    """A record whose fields are described by the docstrings under them, read when a JSON schema is asked for.

    Pydantic would take them itself (`use_attribute_docstrings`) while it makes each class. That would
    lengthen the start of every process, for sentences that only OpenAPI, `adapm-bench init --schema` and editors show.
    """

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return Pydantic's own schema, with the meaning of each field."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, meaning in field_docs(cls).items():
            if name in properties:
                properties[name].setdefault("description", meaning)
        return schema


def field_docs(record: type[BaseModel]) -> dict[str, str]:
    """Return the docstring under each field of a record, and of what it inherits from."""
    docs: dict[str, str] = {}
    for base in reversed(record.__mro__):
        if issubclass(base, BaseModel) and not base.__module__.startswith("pydantic"):
            docs |= _docs_in(base.__module__).get(base.__name__, {})
    return docs


@cache
def _docs_in(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of every class of a module, by its name; empty if there is no source."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    return {
        node.name: dict(_docs_under(node)) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)
    }


def _docs_under(tree: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, statement in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(statement, ast.Expr):
            docstring = statement.value.value if isinstance(statement.value, ast.Constant) else None
            if isinstance(docstring, str):
                yield field.target.id, inspect.cleandoc(docstring)


Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)]
CountOrZero = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
Flag = Annotated[bool, Field(strict=True)]


def _no_disguise(value: object) -> object:
    if isinstance(value, bool | str):
        raise PydanticKnownError("int_type")
    return value


WHOLE_NUMBER = BeforeValidator(_no_disguise)
"""A whole number: an `int` that may be written `2e9`; pydantic would take a truth value and a text of digits, too.

It stands behind the bounds: a schema shows none that follow."""

SpecFault = tuple[tuple[str | int, ...], object, str]
"""A fault: its place in the spec, the value there, and the allowed values."""


def omit_default(default: object) -> Any:
    """Return a field that came later: at its default it is left out of the JSON, so that older specifications keep
    their hashes, by which their checkpoints and idempotency keys are known."""
    return Field(default=default, exclude_if=lambda value: value == default)


class Spec(DescribedRecord):
    """The base of everything that a user may send: frozen, closed, finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def content_hash(self) -> str:
        """SHA-256 of the canonical JSON: equal hashes mean equal specs."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).hexdigest()


@contextmanager
def trust_stored_names() -> Iterator[None]:
    """Accept stored names without checks: the catalog may have lost a name since, and a rule may be newer."""
    token = _STORED.set(True)
    try:
        yield
    finally:
        _STORED.reset(token)


def is_stored() -> bool:
    """Return whether stored data is being read (`trust_stored_names`), which skips checks for faults."""
    return _STORED.get()


def read_stored(kind: Any, content: str | bytes) -> Any:
    """Return the record, of a type or union, in JSON that was accepted once: no catalog, rule or limit of today is
    asked, and a field that is no more is left out. Raises `ValidationError` for what was never such a record."""
    with trust_stored_names():
        return _limitless(kind).validate_json(content, extra="ignore")


@cache
def _limitless(kind: Any) -> SchemaValidator:
    # Without `_use_prebuilt` the validator of each class inside would stand in for it, limits included.
    return SchemaValidator(_drop_limits(TypeAdapter(kind).core_schema), _use_prebuilt=False)


def _drop_limits(schema: Any) -> Any:
    if isinstance(schema, dict):
        limits = LIMITS if isinstance(schema.get("type"), str) else frozenset()
        return {key: _drop_limits(value) for key, value in schema.items() if key not in limits}
    if isinstance(schema, list | tuple):
        return type(schema)(map(_drop_limits, schema))
    return schema


LIMITS = frozenset({"ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern"})
"""The limits of pydantic's core schemas."""


_STORED = ContextVar("stored", default=False)


def canonical_json(value: Any) -> bytes:
    """Return JSON with sorted keys and no spaces, as UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def require_known(kind: str, value: str, names: tuple[str, ...], way_out: str = "") -> str:
    """Return `value` if it is known; else a fault that names what is allowed, and the way to have more."""
    if value in names or is_stored():
        return value
    raise PydanticCustomError(
        "unknown_name",
        "unknown {kind} '{value}'; known: {known}{way_out}",
        {"kind": kind, "value": value, "known": ", ".join(names), "way_out": way_out and f"; {way_out}"},
    )


def raise_faults(title: str, faults: list[SpecFault]) -> None:
    """Raise one `ValidationError` holding every fault; pydantic prefixes the place of this spec in the whole."""
    if not faults or is_stored():
        return
    details = [
        InitErrorDetails(
            type=PydanticCustomError("not_allowed", "{allowed}", {"allowed": allowed}), loc=location, input=value
        )
        for location, value, allowed in faults
    ]
    raise ValidationError.from_exception_data(title, details)


def first_fault(error: ValidationError) -> str:
    """Return the first of its faults, with where it is: `budget.steps: Input should be greater than 0`."""
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
