"""Calls of an event loop that share a thread's turn: each gets its own answer, whoever leaves or fails."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from api.batching import MOST_CALLS, ThreadBatcher


class Squares:
    """Squares numbers in batches; the first batch waits until the test lets it go on."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def together(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(numbers))
        self.begun.set()
        assert self.go_on.wait(30)
        if -1 in numbers:
            raise ZeroDivisionError
        return [ValueError(f"{number} is odd") if number % 2 else number**2 for number in numbers]


async def sent(
    gathered: ThreadBatcher[int, int], squares: Squares, numbers: Sequence[int]
) -> list[int | BaseException]:
    """Ask for 0, and for all the numbers while that is under way; the answers to the numbers."""
    first = asyncio.create_task(gathered(0))
    while not squares.begun.is_set():
        await asyncio.sleep(0.001)
    others = [asyncio.create_task(gathered(number)) for number in numbers]
    await asyncio.sleep(0.01)
    squares.go_on.set()
    assert await first == 0
    return await asyncio.gather(*others, return_exceptions=True)


@pytest.mark.parametrize("count", [3, MOST_CALLS + 2])
def test_calls_that_come_during_another_one_share_the_next_turn(count: int) -> None:
    squares = Squares()
    numbers = list(range(2, 2 * count + 2, 2))
    assert asyncio.run(sent(ThreadBatcher(squares.together), squares, numbers)) == [number**2 for number in numbers]
    assert squares.batches == [[0], *[batch for batch in (numbers[:MOST_CALLS], numbers[MOST_CALLS:]) if batch]]


def test_calls_of_one_moment_share_a_turn() -> None:
    squares = Squares()
    squares.go_on.set()
    gathered = ThreadBatcher(squares.together)

    async def at_once() -> list[int]:
        return await asyncio.gather(*map(gathered, (2, 4, 6)))

    assert asyncio.run(at_once()) == [4, 16, 36]
    assert asyncio.run(at_once()) == [4, 16, 36], "another loop, as each test has"
    assert squares.batches == [[2, 4, 6]] * 2


def test_what_refuses_one_refuses_no_other() -> None:
    squares = Squares()
    even, odd, last = asyncio.run(sent(ThreadBatcher(squares.together), squares, [2, 3, 4]))
    assert (even, last) == (4, 16)
    assert isinstance(odd, ValueError) and str(odd) == "3 is odd"


def test_a_fault_of_the_whole_turn_is_everybodys_answer_and_the_next_turn_is_fine() -> None:
    squares = Squares()
    gathered = ThreadBatcher(squares.together)

    async def story() -> tuple[list[int | BaseException], int]:
        return await sent(gathered, squares, [2, -1]), await gathered(6)

    broken, after = asyncio.run(story())
    assert [type(each) for each in broken] == [ZeroDivisionError] * 2
    assert after == 36


def test_a_caller_who_leaves_takes_no_other_along() -> None:
    squares = Squares()
    gathered = ThreadBatcher(squares.together)

    async def story() -> list[int]:
        leaving = asyncio.create_task(gathered(2))
        staying = asyncio.create_task(gathered(4))
        while not squares.begun.is_set():
            await asyncio.sleep(0.001)
        leaving.cancel()
        squares.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        return [await staying, await gathered(6)]

    assert asyncio.run(story()) == [16, 36]
