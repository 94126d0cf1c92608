"""Requests and answers of the clients: ids, lists and specifications, checked and written as JSON; answers, read as
typed records, or as an error with the service's reason.
"""

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar, cast
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from api.records import Problem
from orchestrator.records import AnyExperiment
from orchestrator.specs.faults import Fault
from worker.schema import read_stored

Answer = TypeVar("Answer")
Item = TypeVar("Item", bound=str | int)

LONGEST_WAIT_SECONDS = 10
"""A service that asks for more is not waited for: somebody should know."""


class ClientError(Exception):
    """The service refused a request, or could not be reached; the message is made for people."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None,
        faults: tuple[Fault, ...] = (),
        kind: str | None = None,
    ) -> None:
        super().__init__("\n".join([message, *(f"  {fault.text()}" for fault in faults)]))
        self.status = status
        """The HTTP status; None if there was no answer."""
        self.faults = faults
        """Every fault of the request, where it was invalid."""
        self.kind = kind
        """The problem's `type`: its name for programs; None if there was no answer of ours."""


class InputError(ClientError):
    """An argument of the client that cannot be sent; no service was asked."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=None)


ANY_EXPERIMENT = cast("type[AnyExperiment]", AnyExperiment)
"""The answer of verbs that concern damaged experiments, too: a union is not a type to mypy."""


def read(response: httpx2.Response, answer: type[Answer]) -> Answer:
    """Return the record that an answer holds; raises `ClientError` if it is a refusal."""
    if response.is_success:
        try:
            record: Answer = read_stored(answer, response.content)  # what the service has accepted is not ours to judge
            return record
        except ValidationError as error:
            raise ClientError(
                f"cannot read the answer of {response.url}; use the same version of client and service",
                status=response.status_code,
            ) from error
    raise refusal(response)


def wait_seconds(response: httpx2.Response) -> float | None:
    """Return the seconds that the service asks to wait before another try; None if it does not, or asks for too
    long."""
    header = response.headers.get("Retry-After", "") if response.status_code in (429, 503) else ""
    return float(header) if header.isdecimal() and int(header) <= LONGEST_WAIT_SECONDS else None


def refusal(response: httpx2.Response) -> ClientError:
    """Return the error that an answer stands for."""
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        message = f"{response.url} answered {response.status_code} {response.reason_phrase}, not as this service does"
        return ClientError(message, status=response.status_code)
    return ClientError(problem.detail, status=response.status_code, faults=problem.errors, kind=problem.type)


def unreachable_error(url: str, error: Exception) -> ClientError:
    """Return the error of a service that does not answer at `url`."""
    return ClientError(f"no service at {url} ({str(error) or type(error).__name__})", status=None)


def segment(identifier: str) -> str:
    """Return a segment of a path from the id that a user typed; raises `InputError` if it is empty."""
    if not identifier:
        raise InputError("the id is empty")
    return quote(str(identifier), safe="")


def as_list(items: Iterable[Item] | Item) -> list[Item]:
    """Return the items as a list; a single text is one item, not its letters."""
    return [items] if isinstance(items, str | int) else list(items)


def json_body(fields: BaseModel | Mapping[str, Any]) -> bytes:
    """Return the body of a request as JSON, in which numpy's numbers are numbers. Raises `InputError` for what JSON
    cannot hold; numbers that are not finite the service refuses, together with every other fault."""
    if not isinstance(fields, BaseModel | Mapping):
        raise InputError(f"the fields must be a mapping, not {type(fields).__name__}")
    try:
        return to_json(fields, by_alias=False, inf_nan_mode="constants", fallback=_plain_number)
    except ValueError as error:
        raise InputError(f"the fields cannot be sent: {error}") from None


def _plain_number(value: Any) -> Any:
    """Return a number of numpy as Python's. Raises `TypeError` for anything else."""
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"JSON cannot hold a {type(value).__name__}")
