"""Event streams: no event without a change, an end."""

import asyncio

import pytest

from dashboards.data import live
from dashboards.data.live import changes


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Streams that look fifty times a second."""
    monkeypatch.setattr(live, "INTERVAL_SECONDS", 0.02)


class Store:
    """A version that a test raises."""

    def __init__(self) -> None:
        self.version = 1

    def read(self) -> int:
        """The version now."""
        return self.version


async def heard(
    store: Store, *, since: int | None, events: int = 0, ended=lambda: False, stopping=lambda: False, seconds=0.3
):
    """The (event, data) pairs that one listener hears: so many, however long they take, and those of some time more."""
    pairs = []

    async def listen() -> None:
        async for event in changes(store.read, since, ended=ended, stopping=stopping):
            if event.event:
                pairs.append((event.event, event.data))

    listening = asyncio.create_task(listen())
    async with asyncio.timeout(60):
        while len(pairs) < events and not listening.done():
            await asyncio.sleep(0.005)
    await asyncio.wait([listening], timeout=seconds)
    if not listening.done():
        listening.cancel()
        pairs.append(("still listening", None))
    return pairs


def test_a_page_that_is_up_to_date_hears_nothing():
    assert asyncio.run(heard(Store(), since=1)) == [("still listening", None)]


def test_changes_in_quick_succession_are_one_event(monkeypatch):
    monkeypatch.setattr(live, "INTERVAL_SECONDS", 0.15)
    store = Store()

    async def scenario():
        async def change() -> None:
            await asyncio.sleep(0.05)
            for _ in range(5):
                store.version += 1

        listening, _ = await asyncio.gather(heard(store, since=1, events=1), change())
        return listening

    assert asyncio.run(scenario()) == [("changed", 6), ("still listening", None)]


def test_the_stream_ends_with_the_experiment_after_its_last_change():
    assert asyncio.run(heard(Store(), since=0, events=2, ended=lambda: True)) == [("changed", 1), ("done", 1)]


def test_a_page_of_an_ended_experiment_is_told_so():
    assert asyncio.run(heard(Store(), since=1, events=1, ended=lambda: True)) == [("done", 1)]


def test_a_stopping_process_ends_its_streams_without_done():
    assert asyncio.run(heard(Store(), since=1, stopping=lambda: True)) == []


def test_a_look_that_fails_ends_the_stream(monkeypatch):
    """As when the experiment is deleted."""
    store = Store()
    monkeypatch.setattr(store, "read", lambda: dict[str, int]()["e"])
    with pytest.raises(KeyError):
        asyncio.run(anext_event(store))


async def anext_event(store: Store) -> None:
    """Listen until the first event."""
    async for event in changes(store.read, 1, ended=lambda: False, stopping=lambda: False):
        if event.event:
            return
