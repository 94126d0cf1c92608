"""The live stream: an event at once, another at each change, coalesced; listeners hold no thread and may leave; who
was cut off goes on after the last event that it heard."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from api.client import AsyncClient
from api.client.client import Client, ClientError
from orchestrator.jobs import RunAction
from tests.factories.waiting import until
from tests.integration.api_service import Service, serving, submitted
from tests.integration.cut_connections import relay

MORE_THAN_THREADS = 60
"""More listeners than the 40 threads that serve synchronous endpoints."""


def events(response: httpx2.Response) -> Iterator[dict[str, Any]]:
    """The `changed` events of a stream, as they come."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def listening(stack: ExitStack, service: Service, experiment_id: str) -> httpx2.Response:
    # No certificates are read: that takes longer than all else of a listener.
    client = stack.enter_context(httpx2.Client(base_url=service.url, trust_env=False, verify=False, timeout=20))
    return stack.enter_context(client.stream("GET", f"/v1/experiments/{experiment_id}/stream"))


def counts(status: str) -> dict[str, object]:
    """Return the counts of four runs in one state."""
    return {"total": 4, "by_status": {status: 4}, "by_verdict": {}, "growing": False}


def test_changes_are_told_as_they_happen(service: Service):
    experiment_id = submitted(service)
    with ExitStack() as stack:
        response = listening(stack, service, experiment_id)
        assert response.headers["Content-Type"].startswith("text/event-stream")
        changes = events(response)
        first = next(changes)
        assert (first["counts"], first["done"]) == (counts("queued"), False)
        service.experiments.apply(experiment_id, RunAction.CANCEL)
        second = next(changes)
    assert second["version"] > first["version"]
    assert (second["counts"], second["done"]) == (counts("cancelled"), True)


def test_many_listeners_do_not_block_the_service(service: Service):
    experiment_id = submitted(service)
    with ExitStack() as stack:
        streams = [events(listening(stack, service, experiment_id)) for _ in range(MORE_THAN_THREADS)]
        assert {next(stream)["done"] for stream in streams} == {False}
        assert httpx2.get(f"{service.url}/healthz", trust_env=False, verify=False, timeout=60).status_code == 200
        service.experiments.apply(experiment_id, RunAction.CANCEL)
        assert {next(stream)["done"] for stream in streams} == {True}


def test_an_open_stream_ends_when_the_service_stops(tmp_path_factory):
    with ExitStack() as stack:
        with serving(tmp_path_factory.mktemp("stopping")) as service:
            experiment_id = submitted(service)
            changes = events(listening(stack, service, experiment_id))
            next(changes)
        assert list(changes) == []


def coming_back(service: Service, experiment_id: str, last: int | None, action: Callable[[], object]) -> int:
    """The first version that a listener who comes back with that id hears, when `action` happens after it is there."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with (
        httpx2.Client(base_url=service.url, trust_env=False, verify=False, timeout=60) as client,
        client.sse(f"/v1/experiments/{experiment_id}/stream", headers=headers) as stream,
    ):
        for event in stream:
            if event.retry is not None:  # the first thing that a stream says
                action()
            if event.event == "changed":
                assert event.id == str(json.loads(event.data)["version"])
                return int(event.id)
    raise AssertionError("the stream ended by itself")


def test_who_comes_back_is_told_what_was_missed_once_and_nothing_twice(service: Service):
    experiment_id = submitted(service)
    runs = [run.id for run in service.runs.page(experiment_id=experiment_id)]
    first = coming_back(service, experiment_id, None, lambda: None)
    second = coming_back(service, experiment_id, first, lambda: service.runs.apply(runs[0], RunAction.CANCEL))
    assert second > first, "what it had heard is not told again"
    for run_id in runs[1:3]:
        service.runs.apply(run_id, RunAction.CANCEL)
    third = coming_back(service, experiment_id, second, lambda: None)
    assert third > second, "what it missed is told at once, both changes as one"
    fourth = coming_back(service, experiment_id, third, lambda: service.runs.apply(runs[3], RunAction.CANCEL))
    assert fourth > third
    newer = fourth + 1000  # of a database that went back to a backup
    assert coming_back(service, experiment_id, newer, lambda: None) == fourth


class Watcher:
    """The yields of `watch()`, collected on a thread: of the one client or of the other."""

    def __init__(self, url: str, experiment_id: str, *, awaited: bool) -> None:
        self.seen: list[int] = []
        self._url, self._experiment_id = url, experiment_id
        self.thread = threading.Thread(target=self._use_async if awaited else self._use, daemon=True)
        self.thread.start()

    def _use(self) -> None:
        with Client(self._url) as client:
            for now in client.watch(self._experiment_id, pause_seconds=0.05):
                self.seen.append(now.counts.ended())

    def _use_async(self) -> None:
        async def use() -> None:
            async with AsyncClient(self._url) as client:
                async for now in client.watch(self._experiment_id, pause_seconds=0.05):
                    self.seen.append(now.counts.ended())

        asyncio.run(use())

    def wait_for(self, expected: list[int]) -> None:
        """Return when just that was yielded."""

        def has_seen() -> bool:
            lives, numbers = self.thread.is_alive(), tuple(self.seen)  # in this order: what it saw last is among them
            assert numbers == tuple(expected[: len(numbers)])
            assert lives or len(numbers) == len(expected), "the watcher gave up"
            return len(numbers) == len(expected)

        until(has_seen, f"{expected} were seen")


@pytest.mark.parametrize("awaited", [False, True])
def test_a_watcher_whose_connection_is_cut_misses_nothing_and_sees_nothing_twice(service: Service, awaited: bool):
    experiment_id = submitted(service)
    runs = [run.id for run in service.runs.page(experiment_id=experiment_id)]
    with relay(service.url) as line:
        watcher = Watcher(line.url, experiment_id, awaited=awaited)
        watcher.wait_for([0])
        line.cut()
        service.runs.apply(runs[0], RunAction.CANCEL)
        watcher.wait_for([0, 1])
        line.cut()
        service.experiments.apply(experiment_id, RunAction.CANCEL)
        watcher.wait_for([0, 1, 4])
        watcher.thread.join(30)
        assert not watcher.thread.is_alive(), "it ends with the experiment"


def test_a_watcher_gives_up_on_a_service_that_stays_away(service: Service):
    experiment_id = submitted(service)
    with relay(service.url) as line, Client(line.url, retries=1) as client:
        watched = client.watch(experiment_id, pause_seconds=0.01)
        assert next(watched).counts.ended() == 0
        line.lets_through = False
        line.cut()
        with pytest.raises(ClientError) as failure:
            next(watched)
    assert failure.value.status is None and line.url in str(failure.value)
