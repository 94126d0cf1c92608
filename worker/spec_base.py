"""`Spec`: the base of everything that a user may send, and how its faults are told (torch-free)."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticKnownError

from worker.field_docs import Described

Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)]
CountOrZero = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
Flag = Annotated[bool, Field(strict=True)]


def _no_disguise(value: object) -> object:
    if isinstance(value, bool | str):
        raise PydanticKnownError("int_type")
    return value


WHOLE_NUMBER = BeforeValidator(_no_disguise)
"""Of an `int` that may be written `2e9`: pydantic would take a truth value and a text of digits, too.

It stands behind the bounds: a schema shows none that follow."""

Fault = tuple[tuple[str | int, ...], object, str]
"""Where in the spec, the value found there, and what is allowed."""


def left_out_at(default: object) -> Any:
    """A field that came later: at its default it is left out of the JSON, so that older specifications keep their
    hashes, by which their checkpoints and idempotency keys are known."""
    return Field(default=default, exclude_if=lambda value: value == default)


class Spec(Described):
    """The base of everything that a user may send: frozen, closed, finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def content_hash(self) -> str:
        """SHA-256 of the canonical JSON: equal hashes mean equal specs."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).hexdigest()


@contextmanager
def as_stored() -> Iterator[None]:
    """Read what was valid once as it is: the catalog may have lost a name since, and a rule may be newer."""
    before = _STORED.set(True)
    try:
        yield
    finally:
        _STORED.reset(before)


def is_stored() -> bool:
    """Whether what is read now is taken `as_stored`: then no fault is looked for."""
    return _STORED.get()


_STORED = ContextVar("stored", default=False)


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys and no spaces, as UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def one_of(kind: str, value: str, known: tuple[str, ...]) -> str:
    """Return `value` if it is known; else a fault that names what is allowed."""
    if value in known or is_stored():
        return value
    raise PydanticCustomError(
        "unknown_name",
        "unknown {kind} '{value}'; known: {known}",
        {"kind": kind, "value": value, "known": ", ".join(known)},
    )


def raise_faults(title: str, faults: list[Fault]) -> None:
    """Raise one `ValidationError` holding every fault; pydantic prefixes the place of this spec in the whole."""
    if not faults or is_stored():
        return
    details = [
        InitErrorDetails(
            type=PydanticCustomError("not_allowed", "{allowed}", {"allowed": allowed}), loc=where, input=value
        )
        for where, value, allowed in faults
    ]
    raise ValidationError.from_exception_data(title, details)
