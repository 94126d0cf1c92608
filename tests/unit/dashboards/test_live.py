"""Event streams: few looks at the store, no event without a change, an end."""

import asyncio
import time

import pytest

from dashboards import live
from dashboards.live import Pulse, changes


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Streams that look fifty times a second."""
    monkeypatch.setattr(live, "INTERVAL_SECONDS", 0.02)


class Store:
    """A version that a test raises, and a count of the looks at it."""

    def __init__(self) -> None:
        self.version = 1
        self.looks = 0

    def read(self, key: str) -> int:
        """The version now."""
        self.looks += 1
        return self.version


async def heard(store: Store, *, since: int | None, ended=lambda key: False, stopping=lambda: False, seconds=0.3):
    """The (event, data) pairs that one listener hears within so many seconds."""
    events = []

    async def listen() -> None:
        async for event in changes(Pulse(store.read), "e", since, ended=ended, stopping=stopping):
            if event.event:
                events.append((event.event, event.data))

    try:
        await asyncio.wait_for(listen(), seconds)
    except TimeoutError:
        events.append(("still listening", None))
    return events


def test_a_page_that_is_up_to_date_hears_nothing():
    assert asyncio.run(heard(Store(), since=1)) == [("still listening", None)]


def test_a_page_that_is_behind_hears_it_at_once():
    assert asyncio.run(heard(Store(), since=0)) == [("changed", 1), ("still listening", None)]


def test_changes_in_quick_succession_are_one_event(monkeypatch):
    monkeypatch.setattr(live, "INTERVAL_SECONDS", 0.15)
    store = Store()

    async def scenario():
        async def change() -> None:
            await asyncio.sleep(0.05)
            for _ in range(5):
                store.version += 1

        listening, _ = await asyncio.gather(heard(store, since=1, seconds=0.5), change())
        return listening

    assert asyncio.run(scenario()) == [("changed", 6), ("still listening", None)]


def test_the_stream_ends_with_the_experiment_after_its_last_change():
    assert asyncio.run(heard(Store(), since=0, ended=lambda key: True)) == [("changed", 1), ("done", 1)]


def test_a_page_of_an_ended_experiment_is_told_so():
    assert asyncio.run(heard(Store(), since=1, ended=lambda key: True)) == [("done", 1)]


def test_a_stopping_process_ends_its_streams_without_done():
    assert asyncio.run(heard(Store(), since=1, stopping=lambda: True)) == []


def test_listeners_share_one_look(monkeypatch):
    monkeypatch.setattr(live, "INTERVAL_SECONDS", 0.1)
    store = Store()

    async def scenario() -> None:
        pulse = Pulse(store.read)

        async def listen() -> None:
            async for _ in changes(pulse, "e", 1, ended=lambda key: False, stopping=lambda: False):
                pass

        tasks = [asyncio.create_task(listen()) for _ in range(200)]
        await asyncio.sleep(0.55)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    began = time.monotonic()
    asyncio.run(scenario())
    assert store.looks <= 2 + (time.monotonic() - began) / 0.1
