"""SIGTERM as a wish."""

import os
import signal
import threading

from worker.termination import Termination


def test_sigterm_is_noted_inside_and_the_former_handler_returns_after() -> None:
    """The process lives on either way, because the former handler here does nothing."""
    calls: list[int] = []
    original = signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    try:
        with Termination() as termination:
            assert not termination.is_requested
            os.kill(os.getpid(), signal.SIGTERM)
            assert termination.is_requested
        assert calls == []
        with termination:
            assert termination.is_requested, "a second watch remembers what the first one saw"
        os.kill(os.getpid(), signal.SIGTERM)
        assert calls == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, original)


def test_outside_the_main_thread_it_stays_out_of_the_way() -> None:
    """Python would refuse a handler there; a run in a thread still works."""
    requests: list[bool] = []

    def enter() -> None:
        with Termination() as termination:
            requests.append(termination.is_requested)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()

    assert requests == [False]
