"""The worker's client of the service: one attempt, its lease token, and what each answer means (torch-free).

2xx                         accepted
409                         LeaseRevokedError: stop, write nothing more
other 4xx                   ReportRefusedError: worker and service do not fit together
5xx, 429, no connection     ServiceUnavailableError: try again later
"""

import time
from typing import Final, NewType, Self, TypeVar

import httpx2
from pydantic import ValidationError

from worker.backoff import backoff
from worker.errors import LeaseRevokedError, ReportRefusedError, ServiceUnavailableError
from worker.records.protocol import Assignment, Heartbeat, HeartbeatReply
from worker.records.result import Record

Verb = NewType("Verb", str)
HELLO, HEARTBEAT, POINTS, CHECKPOINT = Verb("hello"), Verb("heartbeat"), Verb("points"), Verb("checkpoint")
FINISH, STOPPED, FAIL = Verb("finish"), Verb("stopped"), Verb("fail")

TIMEOUT_SECONDS: Final = 5.0
"""Per request: two heartbeats in a row may time out within a lease of 30 s."""
HELLO_PATIENCE_SECONDS: Final = 60.0
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})

Reply = TypeVar("Reply", bound=Record)


class ServiceClient:
    """Requests of one attempt. It may be used from several threads."""

    def __init__(self, service_url: str, run_id: str, attempt: int, token: str) -> None:
        root = f"{service_url.rstrip('/')}/v1/attempts/{run_id}/{attempt}/"
        self._client = httpx2.Client(
            base_url=root,
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            timeout=TIMEOUT_SECONDS,
            trust_env=httpx2.URL(root).host not in LOOPBACK,  # a proxy cannot reach our own loopback
            verify=httpx2.URL(root).scheme == "https",  # reading certificates takes longer than the hello
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def hello(self, patience_seconds: float = HELLO_PATIENCE_SECONDS) -> Assignment:
        """Take up the attempt; tries again for a while where the service does not answer."""
        deadline = time.monotonic() + patience_seconds
        for pause_seconds in backoff():
            try:
                return _parse(Assignment, HELLO, self.post(HELLO, b"{}"))
            except ServiceUnavailableError:
                if time.monotonic() + pause_seconds > deadline:
                    raise
            time.sleep(pause_seconds)
        raise AssertionError("backoff() never ends")

    def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        """Give a sign of life, once."""
        return _parse(HeartbeatReply, HEARTBEAT, self.post(HEARTBEAT, heartbeat.model_dump_json().encode()))

    def post(self, verb: Verb, body: bytes) -> bytes:
        """Send one request, once; returns the answer's body."""
        try:
            response = self._client.post(verb, content=body)
        except httpx2.TransportError as error:
            raise ServiceUnavailableError(
                f"{verb} did not reach {self._client.base_url} ({type(error).__name__}: {error}). "
                "Check that the service is up and that this machine can reach its address."
            ) from error
        if response.is_success:
            return response.content
        raise _refusal(verb, response)


def _refusal(verb: Verb, response: httpx2.Response) -> Exception:
    answer = f"{verb} was answered {response.status_code}: {response.text[:500]}"
    if response.status_code == 409:
        return LeaseRevokedError(f"{answer}. Another attempt may be running; this one stops.")
    if response.status_code == 429 or response.status_code >= 500:
        return ServiceUnavailableError(f"{answer}. The service's log says why.")
    return ReportRefusedError(f"{answer}. Use the same version of the bench for service and workers.")


def _parse(record: type[Reply], verb: Verb, body: bytes) -> Reply:
    try:
        return record.model_validate_json(body)
    except ValidationError as error:
        raise ReportRefusedError(
            f"{verb} was answered in words that this worker does not know: {error}. "
            "Use the same version of the bench for service and workers."
        ) from error
