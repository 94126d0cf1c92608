"""Calls carried out together: each gets its own answer, and only the guilty one fails."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator.errors import ConflictError, OrchestratorError, StoreError
from orchestrator.store.queue.batching import TransactionBatcher


class Squares:
    """Squares numbers in batches; the first batch waits until the test has sent the others."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go_on = threading.Event()

    def together(self, numbers: Sequence[int]) -> list[int | OrchestratorError]:
        self.batches.append(list(numbers))
        if len(self.batches) == 1:
            assert self.go_on.wait(30)
        if -1 in numbers:
            raise ZeroDivisionError
        if -2 in numbers:
            raise StoreError
        return [ConflictError(f"{number} is odd") if number % 2 else number**2 for number in numbers]


def send(squares: Squares, numbers: list[int]) -> list[int | BaseException]:
    """Call with 0, and with all the numbers while that is under way; what each call returned or raised."""
    combined = TransactionBatcher(squares.together)
    waiting = threading.Barrier(len(numbers) + 1)

    def call(number: int) -> int | BaseException:
        if number:
            waiting.wait(30)
        try:
            return combined(number)
        except (OrchestratorError, ZeroDivisionError) as error:
            return error

    with ThreadPoolExecutor(len(numbers) + 1) as pool:
        first = pool.submit(call, 0)
        futures = [pool.submit(call, number) for number in numbers]
        waiting.wait(30)
        while len(combined._queue) < len(numbers):
            pass
        squares.go_on.set()
        assert first.result() == 0
        return [future.result() for future in futures]


def test_calls_that_come_during_another_one_are_carried_out_together() -> None:
    squares = Squares()
    answers = send(squares, [2, 4, 6])
    assert answers == [4, 16, 36]
    assert [sorted(batch) for batch in squares.batches] == [[0], [2, 4, 6]]


def test_a_refused_call_is_refused_alone() -> None:
    two, three, four = send(Squares(), [2, 3, 4])
    assert (two, four) == (4, 16)
    assert isinstance(three, ConflictError)


def test_a_call_that_breaks_the_batch_breaks_alone() -> None:
    squares = Squares()
    two, guilty, four = send(squares, [2, -1, 4])
    assert (two, four) == (4, 16)
    assert isinstance(guilty, ZeroDivisionError)
    assert len(squares.batches) == 5


def test_a_database_that_is_away_is_not_asked_for_each_call_again() -> None:
    squares = Squares()
    assert [type(answer) for answer in send(squares, [2, -2, 4])] == [StoreError] * 3
    assert len(squares.batches) == 2


def test_after_an_error_calls_go_on() -> None:
    combined = TransactionBatcher(Squares.together.__get__(squares := Squares()))
    squares.go_on.set()
    with pytest.raises(ZeroDivisionError):
        combined(-1)
    assert combined(4) == 16
