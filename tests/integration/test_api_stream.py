"""The live stream: an event at once, another at each change, coalesced; listeners hold no thread and may leave."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from orchestrator.experiments import ComparisonSpec
from tests.integration.api_service import Service, comparison_fields, serving

MORE_THAN_THREADS = 60
"""More listeners than the 40 threads that serve synchronous endpoints."""


@pytest.fixture
def service(tmp_path):
    with serving(tmp_path) as running:
        yield running


def submitted(service: Service, **changes: Any) -> str:
    return service.bench.submit(ComparisonSpec.model_validate(comparison_fields(**changes))).experiment.id


def events(response: httpx2.Response) -> Iterator[dict[str, Any]]:
    """The `changed` events of a stream, as they come."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def listening(stack: ExitStack, service: Service, experiment_id: str) -> httpx2.Response:
    client = stack.enter_context(httpx2.Client(base_url=service.url, trust_env=False, timeout=20))
    return stack.enter_context(client.stream("GET", f"/v1/experiments/{experiment_id}/stream"))


def test_changes_are_told_as_they_happen(service: Service):
    experiment_id = submitted(service)
    with ExitStack() as stack:
        response = listening(stack, service, experiment_id)
        assert response.headers["Content-Type"].startswith("text/event-stream")
        told = events(response)
        first = next(told)
        assert (first["counts"], first["done"]) == ({"total": 4, "by_status": {"queued": 4}, "growing": False}, False)
        service.bench.cancel_experiment(experiment_id)
        second = next(told)
    assert second["version"] > first["version"]
    assert (second["counts"], second["done"]) == ({"total": 4, "by_status": {"cancelled": 4}, "growing": False}, True)


def test_changes_in_quick_succession_are_told_as_one(service: Service):
    experiment_id = submitted(service, seeds=list(range(20)))
    with ExitStack() as stack:
        told = events(listening(stack, service, experiment_id))
        next(told)
        runs = service.bench.runs(experiment_id=experiment_id)
        started = time.monotonic()
        for run in runs:
            service.bench.cancel_run(run.id)
        elapsed = time.monotonic() - started
        count = 0
        for event in told:
            count += 1
            if event["done"]:
                break
    assert count <= 2 + elapsed / 0.5


def test_many_listeners_do_not_block_the_service(service: Service):
    experiment_id = submitted(service)
    with ExitStack() as stack:
        streams = [events(listening(stack, service, experiment_id)) for _ in range(MORE_THAN_THREADS)]
        assert {next(stream)["done"] for stream in streams} == {False}
        assert httpx2.get(f"{service.url}/healthz", trust_env=False, timeout=60).status_code == 200
        service.bench.cancel_experiment(experiment_id)
        assert {next(stream)["done"] for stream in streams} == {True}


def test_a_listener_may_leave_and_the_service_forgets_it(service: Service):
    experiment_id = submitted(service)
    threads_before = threading.active_count()
    for _ in range(20):
        with ExitStack() as stack:
            next(events(listening(stack, service, experiment_id)))
    assert httpx2.get(f"{service.url}/healthz", trust_env=False).status_code == 200
    assert threading.active_count() <= threads_before + 10


def test_an_open_stream_ends_when_the_service_stops(tmp_path_factory):
    with ExitStack() as stack:
        with serving(tmp_path_factory.mktemp("stopping")) as service:
            experiment_id = submitted(service)
            told = events(listening(stack, service, experiment_id))
            next(told)
        assert list(told) == []
