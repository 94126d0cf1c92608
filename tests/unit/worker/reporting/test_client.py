"""The client of the service: what each answer means."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.attempt_service import TOKEN, AttemptService, made_assignment
from worker.backoff import backoff
from worker.errors import LeaseRevokedError, ReportRefusedError, ServiceUnavailableError
from worker.records.protocol import CheckpointNotice
from worker.reporting.client import ServiceClient


@pytest.fixture
def service(tmp_path: Path) -> Iterator[AttemptService]:
    assignment = made_assignment(
        tmp_path, checkpoint=CheckpointNotice(step=3, path="/x", size_bytes=5, sha256="0" * 64)
    )
    with AttemptService(assignment) as running:
        yield running


def test_hello_waits_for_a_service_that_is_just_starting(service: AttemptService) -> None:
    """The dispatcher may be quicker than the api process."""
    service.lose_answers = 2
    with ServiceClient(service.url, "r1", 1, TOKEN) as client:
        assert client.hello() == service.assignment


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (409, LeaseRevokedError),
        (401, ReportRefusedError),
        (404, ReportRefusedError),
        (422, ReportRefusedError),
        (429, ServiceUnavailableError),
        (500, ServiceUnavailableError),
        (200, ReportRefusedError),
    ],
)
def test_every_answer_has_its_meaning(service: AttemptService, status: int, error: type[Exception]) -> None:
    """A 200 with a body in other words is a refusal too."""
    service.status = status
    with ServiceClient(service.url, "r1", 1, TOKEN) as client, pytest.raises(error, match=r"hello was answered"):
        client.hello(patience_seconds=0)


def test_pauses_double_up_to_a_bound_and_are_jittered() -> None:
    """Each is between half of its step and the whole of it."""
    pauses = list(itertools.islice(backoff(0.2, 5.0), 8))

    for pause, step in zip(pauses, [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0], strict=True):
        assert step / 2 <= pause <= step
