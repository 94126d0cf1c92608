"""What the clients make of an answer: a typed record, or an error that says what the service refused."""

from typing import Any, TypeVar, cast

import httpx2
from pydantic import TypeAdapter, ValidationError

from api.records import Problem
from orchestrator.records import AnyExperiment
from orchestrator.specs.faults import Fault

Answer = TypeVar("Answer")

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
        near: tuple[str, ...] = (),
    ) -> None:
        super().__init__("\n".join([message, *(f"  {fault.text()}" for fault in faults)]))
        self.status = status
        """The HTTP status; None where there was no answer."""
        self.faults = faults
        """Every fault of the request, where it was invalid."""
        self.kind = kind
        """The problem's `type`: its name for programs; None where there was no answer of ours."""
        self.near = near
        """Where there is nothing of an id: ids that may have been meant."""


class InputError(ClientError):
    """What the client was given is nothing that could be sent; no service was asked."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=None)


ANY_EXPERIMENT: type[Any] = cast("type[Any]", AnyExperiment)
"""What verbs answer with that concern damaged experiments, too: a union is no type to mypy."""


def read(response: httpx2.Response, answer: type[Answer]) -> Answer:
    """The record that an answer holds; raises `ClientError` where it is a refusal."""
    if response.is_success:
        try:
            return TypeAdapter(answer).validate_json(response.content)
        except ValidationError as error:
            raise ClientError(
                f"the answer of {response.url} is not understood; are client and service of the same version?",
                status=response.status_code,
            ) from error
    raise refusal(response)


def wait_seconds(response: httpx2.Response) -> float | None:
    """How long the service asks to wait before another try; None where it does not, or asks for too long."""
    asked = response.headers.get("Retry-After", "") if response.status_code in (429, 503) else ""
    return float(asked) if asked.isdecimal() and int(asked) <= LONGEST_WAIT_SECONDS else None


def refusal(response: httpx2.Response) -> ClientError:
    """The error that a read answer is."""
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        message = f"{response.url} answered {response.status_code} {response.reason_phrase}, not as this service does"
        return ClientError(message, status=response.status_code)
    near = tuple(map(str, (problem.model_extra or {}).get("near", ())))
    return ClientError(problem.detail, status=response.status_code, faults=problem.errors, kind=problem.type, near=near)


def unreachable_error(url: str, error: Exception) -> ClientError:
    """The error of a service that does not answer at `url`."""
    return ClientError(f"no service at {url} ({str(error) or type(error).__name__})", status=None)
