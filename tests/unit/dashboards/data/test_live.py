"""Event streams: few looks at the store, no event without a change, an end."""

import asyncio

import pytest

from dashboards.data import live
from dashboards.data.live import Pulse, changes


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


async def heard(
    store: Store, *, since: int | None, events: int = 0, ended=lambda key: False, stopping=lambda: False, seconds=0.3
):
    """The (event, data) pairs that one listener hears: so many, however long they take, and those of some time more."""
    pairs = []

    async def listen() -> None:
        async for event in changes(Pulse(store.read), "e", since, ended=ended, stopping=stopping):
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


def test_a_page_that_is_behind_hears_it_at_once():
    assert asyncio.run(heard(Store(), since=0, events=1)) == [("changed", 1), ("still listening", None)]


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
    assert asyncio.run(heard(Store(), since=0, events=2, ended=lambda key: True)) == [("changed", 1), ("done", 1)]


def test_a_page_of_an_ended_experiment_is_told_so():
    assert asyncio.run(heard(Store(), since=1, events=1, ended=lambda key: True)) == [("done", 1)]


def test_a_stopping_process_ends_its_streams_without_done():
    assert asyncio.run(heard(Store(), since=1, stopping=lambda: True)) == []


def test_a_change_is_told_to_all_listeners_at_once(monkeypatch):
    """They joined at different moments; none sleeps through a look that others have had."""
    monkeypatch.setattr(live, "INTERVAL_SECONDS", 0.2)
    store = Store()
    answers: list[object] = []

    async def scenario() -> None:
        pulse = Pulse(store.read)

        async def listen() -> None:
            async for event in changes(pulse, "e", 1, ended=lambda key: False, stopping=lambda: False):
                if event.event:
                    answers.append(event.data)
                    return

        tasks = []
        for _ in range(20):
            tasks.append(asyncio.create_task(listen()))
            await asyncio.sleep(0.01)
        looks, store.version = store.looks, 2
        await asyncio.gather(*tasks)
        assert store.looks <= looks + 2

    asyncio.run(scenario())
    assert answers == [2] * 20


def test_a_look_that_fails_ends_every_stream_that_waits_for_it():
    """As when the experiment is deleted: none of them hangs, and the next listener looks anew."""

    faults = [KeyError("e")]

    def fail_once(key: str) -> int:
        if faults:
            raise faults.pop()
        return 7

    async def scenario() -> list[object]:
        pulse = Pulse(fail_once)
        waits = [pulse.next("e") for _ in range(3)]
        return [*await asyncio.gather(*waits, return_exceptions=True), await pulse.next("e")]

    *failed, answer = asyncio.run(scenario())
    assert [type(error) for error in failed] == [KeyError] * 3
    assert answer == 7
