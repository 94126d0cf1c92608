"""What the clients are given, checked before it is sent: ids, lists of ids, and specifications as JSON."""

import json
from collections.abc import Iterable, Mapping
from datetime import date
from numbers import Integral, Real
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from api.client.answers import InputError
from orchestrator.specs.faults import pointer

LONGEST_SHOWN = 80
"""Characters of a value that are repeated to who gave it."""
JsonPath = tuple[int | str, ...]
Item = TypeVar("Item", bound=str | int)


def segment(identifier: str, what: str = "id") -> str:
    """One segment of a path, whatever a user typed as an id; raises `InputError` where that is none."""
    if not isinstance(identifier, str):
        raise InputError(f"the {what} must be text, not {_type_and_value(identifier)}")
    if not identifier:
        raise InputError(f"the {what} is empty")
    return quote(identifier, safe="")


def as_texts(given: Iterable[str] | str, what: str) -> list[str]:
    """The texts where as_texts are due; a single one is one, not its letters. Raises `InputError` for anything else."""
    found = as_list(given, what)
    for each in found:
        if not isinstance(each, str):
            raise InputError(f"{what} must be texts, not {_type_and_value(each)}")
    return found


def as_list(given: Iterable[Item] | Item, what: str) -> list[Item]:
    """The items of what is given, or what is given, where it is one; raises `InputError` for what is neither."""
    if isinstance(given, str | int):
        return [given]
    try:
        return list(given)
    except TypeError:
        raise InputError(f"{what} must be a list, not {_type_and_value(given)}") from None


def json_body(fields: BaseModel | Mapping[str, Any]) -> str:
    """The body of a request as JSON, in which numpy's numbers are numbers. Raises `InputError` for what JSON cannot
    hold; numbers that are not finite the service refuses, together with every other fault."""
    if isinstance(fields, BaseModel):
        return fields.model_dump_json()
    if not isinstance(fields, Mapping):
        raise InputError(f"the fields must be a mapping, not {_type_and_value(fields)}")
    try:
        return json.dumps(_json_value(fields, ()))
    except RecursionError:
        raise InputError("the fields are nested too deeply, or hold themselves") from None


def _json_value(value: Any, path: JsonPath) -> Any:
    """`value` as JSON knows it."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Mapping):
        return {_name(name, path): _json_value(held, (*path, str(name))) for name, held in value.items()}
    if isinstance(value, date):
        return str(value)  # YAML reads some names as dates
    if isinstance(value, list | tuple):
        return [_json_value(held, (*path, position)) for position, held in enumerate(value)]
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise InputError(f"{pointer(path)}: JSON cannot hold {_type_and_value(value)}")


def _name(name: Any, path: JsonPath) -> str | float | None:
    """The name of a field; YAML has some that are numbers."""
    if name is None or isinstance(name, str | int | float):
        return name
    raise InputError(f"{pointer(path) or 'the fields'}: the name of a field must be text, not {_type_and_value(name)}")


def _type_and_value(value: object) -> str:
    if value is None:
        return "None"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + '…'}"
