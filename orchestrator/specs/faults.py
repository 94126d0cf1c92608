"""Faults as data: what is wrong with a specification, where, and what is allowed, in words.

A pydantic error becomes a `Fault`: a JSON pointer, the value found there, and what is allowed. The api answers with
them, the pages put them beside the fields of their forms.
"""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import date
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

from optim.nearest import hint, nearest
from worker.records.result import Record
from worker.words import pluralize

RequestPart = Literal["body", "query", "header"]
Location = tuple[int | str, ...]

LONGEST_TEXT = 200
"""Characters of a faulty value that are repeated to its sender."""
MOST_ITEMS = 8
"""Items of a faulty list or object that are repeated to its sender."""

OBJECT_EXPECTED = "must be a JSON object, sent as application/json"
QUOTES = "'()"
"""The quotes of pydantic around the name of a discriminator, or of its function."""
SCALAR_EXPECTED = "must be true, false, a finite number, a string or null"


class Fault(Record):
    """A fault of a request."""

    pointer: str
    """JSON pointer (RFC 6901) into the body; into the parameters where `source` is not `body`."""
    value: Any = None
    """The value there, shortened; numbers that JSON does not know are text; null if there was none."""
    allowed: str
    """The allowed values, in words."""
    source: RequestPart = "body"

    def text(self) -> str:
        """Return the fault in a line: where, what, what would be right."""
        given_value = "" if self.value is None else f" {json.dumps(self.value, ensure_ascii=False)}:"
        return f"{self.pointer or 'the whole body'}:{given_value} {self.allowed}"


def validation_faults(error: ValidationError, root: type[BaseModel]) -> tuple[Fault, ...]:
    """Return the faults that pydantic found in a value that should have been a `root`."""
    return faults(error.errors(include_url=False), root)


def faults(errors: Iterable[Mapping[str, Any]], root: Any, source: RequestPart = "body") -> tuple[Fault, ...]:
    """Return one fault for each place; `root` is the body's type, a model or a union, if there is one. What fits no arm
    of a union is one fault, too: it says what each of them allows."""
    faults_by_position: dict[tuple[str, str], Fault] = {}
    of_unions: dict[str, str] = {}
    for error in errors:
        # Pydantic only counts the items that it refused: a long enough tuple is then called too short.
        if error["type"] == "too_short" and len(error["input"]) >= error["ctx"]["min_length"]:
            continue
        fault, in_union = _fault(error, root, source)
        if in_union and fault.pointer in of_unions:
            earlier = faults_by_position.pop((fault.pointer, of_unions[fault.pointer]))
            alternative = fault.allowed.removeprefix("must be ")
            alternatives = alternative if alternative in earlier.allowed else f"{earlier.allowed}, or {alternative}"
            fault = fault.model_copy(
                update={"allowed": earlier.allowed if alternatives == alternative else alternatives}
            )
        if in_union:
            of_unions[fault.pointer] = fault.allowed
        faults_by_position.setdefault((fault.pointer, fault.allowed), fault)
    return tuple(faults_by_position.values())


def pointer(location: Iterable[int | str]) -> str:
    """Return the JSON pointer of a location: `/candidates/0/learning_rates/1`."""
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in location)
    return encodable("".join(f"/{step}" for step in steps))


def encodable(text: str) -> str:
    """Return `text` with lone surrogates, which UTF-8 cannot encode, replaced by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def short_json(value: Any, depth: int = 2) -> Any:
    """Return `value` as finite, short JSON, whatever the input was, for use in an error."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int):
        # Python writes thousands of digits in hexadecimal alone.
        return value if abs(value) < 2**53 else _short(str(value) if abs(value) < 10**600 else hex(value))
    if isinstance(value, bytes):
        return _short(value[: LONGEST_TEXT + 1].decode("utf-8", "replace"))
    if isinstance(value, Mapping):
        if depth == 0:
            return "{…}" if value else {}
        items = list(value.items())[:MOST_ITEMS]
        shown = {_short(encodable(str(key))): short_json(item, depth - 1) for key, item in items}
        return shown | ({"…": "…"} if len(value) > MOST_ITEMS else {})
    if isinstance(value, list | tuple):
        if depth == 0:
            return "[…]" if value else []
        return [short_json(item, depth - 1) for item in value[:MOST_ITEMS]] + ["…"] * (len(value) > MOST_ITEMS)
    return _short(encodable(str(value)))


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"


def _fault(error: Mapping[str, Any], root: Any, source: RequestPart) -> tuple[Fault, bool]:
    """Return a fault, and whether it is about one arm of a union alone."""
    location: Location = tuple(error["loc"])
    if error["type"] == "json_invalid":
        suffix = f" at character {location[-1]}" if location else ""  # where pydantic read the bytes, its words have it
        return Fault(pointer="", allowed=f"must be JSON: {error['ctx']['error']}{suffix}"), False
    path, model, union = _walk(location, root)
    content = None if error["type"] == "missing" else error["input"]
    if error["type"] in ("union_tag_invalid", "union_tag_not_found") and isinstance(content, Mapping):
        name = error["ctx"]["discriminator"].strip(QUOTES)
        path, content = (*path, name), content.get(name)
    # Of `optim.catalog.Scalar` each of pydantic's errors tells of one arm, and none of all.
    is_scalar = {bool, str} <= {*map(_unwrap, get_args(union))}
    allowed = SCALAR_EXPECTED if is_scalar else _expectation(error, model, path)
    return Fault(pointer=pointer(path), value=short_json(content), allowed=encodable(allowed), source=source), bool(
        union
    )


def _expectation(error: Mapping[str, Any], model: type[BaseModel] | None, path: Location) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "unknown_name":
        meant = nearest(context["value"], context["known"].split(", "))
        allowed = f"must be one of {context['known']}{context['way_out']}"
        return f"did you mean {meant}? It {allowed}" if meant else allowed
    if kind == "union_tag_invalid":
        tags = context["expected_tags"].replace("'", "")
        meant = nearest(context["tag"], tags.split(", "))
        return f"did you mean {meant}? It must be one of {tags}" if meant else f"must be one of {tags}"
    if kind == "union_tag_not_found":
        return "required"
    if kind == "extra_forbidden":
        return "unknown field" + (f"; {hint(path[-1], model.model_fields)}" if model else "")
    if kind == "missing":
        return "required" if path else OBJECT_EXPECTED
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return OBJECT_EXPECTED if not path else "must be a JSON object"
    if kind in ("tuple_type", "list_type"):
        content = error["input"]
        numeric = isinstance(content, int | float) and not isinstance(content, bool)
        return f"must be a list of numbers, as [{short_json(content)}]" if numeric else "must be a list"
    if kind == "string_type":
        if isinstance(error["input"], date):
            return "must be text, in quotes: without them YAML reads a date"
        return "must be text, in quotes" if isinstance(error["input"], int | float) else "must be text"
    if kind == "too_short":
        return f"must have at least {pluralize(context['min_length'], 'item')}"
    if kind == "too_long":
        return f"must have at most {context['max_length']} items"
    message: str = error["msg"].removeprefix("Value error, ")
    for opening in ("Input should", "String should", "Value should"):
        message = message.replace(opening, "must", 1) if message.startswith(opening) else message
    return message


def _walk(location: Location, root: Any) -> tuple[Location, type[BaseModel] | None, Any]:
    """Follow `location` from `root`: its path without pydantic's union tags, the innermost model, and the union without
    tags that it ends in, of which the last step names an arm."""
    path: list[int | str] = []
    current_type: Any = root
    model = root if isinstance(root, type) else None
    for step in location:
        current_type = _unwrap(current_type)
        if get_origin(current_type) in (Union, UnionType):
            arm = _arm_with_tag(current_type, step)
            if arm is not None:
                current_type = model = arm
                continue
            # Our own faults name no tag: the first arm that is a model and has a field of that name.
            models = (arm for arm in map(_unwrap, get_args(current_type)) if hasattr(arm, "model_fields"))
            arm = next((arm for arm in models if step in arm.model_fields), None)
            if arm is None:
                return tuple(path), model, current_type
            current_type = arm
        path.append(step)
        if isinstance(current_type, type) and issubclass(current_type, BaseModel):
            model = current_type
            field = current_type.model_fields.get(str(step))
            current_type = field.annotation if field else None
        else:
            kind, arguments = get_origin(current_type), get_args(current_type)
            is_nested = arguments and kind in (tuple, list, dict)
            current_type = arguments[kind is dict] if is_nested else None
    return tuple(path), model, None


def _arm_with_tag(union: Any, tag: int | str) -> type[BaseModel] | None:
    """Return the arm of a discriminated union that bears the tag; None if the union is none."""
    for arm in map(_unwrap, get_args(union)):
        fields = arm.model_fields if isinstance(arm, type) and issubclass(arm, BaseModel) else {}
        if any(get_origin(field.annotation) is Literal and field.default == tag for field in fields.values()):
            return cast("type[BaseModel]", arm)
    return None


def _unwrap(annotation: Any) -> Any:
    """Return `annotation` without `Annotated` and without `| None`, because pydantic leaves both out of a location."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        arms = [arm for arm in get_args(annotation) if arm is not type(None)]
        return _unwrap(arms[0]) if len(arms) == 1 else annotation
    return annotation
