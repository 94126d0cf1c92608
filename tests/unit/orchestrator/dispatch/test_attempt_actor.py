"""The actor of an attempt, called as Ray would call it, against a service that is not there."""

import socket
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from orchestrator.dispatch.attempt_actor import NEVER_STARTED, AttemptActor
from worker.fork_server import ForkServerError
from worker.meters.clock import DeviceClock
from worker.reporting import client


@pytest.fixture(autouse=True)
def no_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the fork server, as if its folder could not be made: the actor's own process carries out the attempt."""

    def refuse(_: object) -> str:
        raise ForkServerError("no fork server: as the test wants")

    monkeypatch.setattr("orchestrator.dispatch.attempt_actor.execute_in_fork", refuse)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address that nobody listens at; asking it is given up at once, and no GPU is hidden from other tests."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(client.ServiceClient.hello, "__defaults__", (0.0,))
    with socket.socket() as bound_socket:
        bound_socket.bind(("127.0.0.1", 0))  # nobody else takes the port, and nobody listens there
        yield f"http://127.0.0.1:{bound_socket.getsockname()[1]}"


def test_an_attempt_begins_with_its_hello(nowhere: str) -> None:
    """Which is heard by nobody."""
    actor = AttemptActor()
    assert actor.last_word() == NEVER_STARTED
    assert actor.execute(nowhere, "run", 1, "token", 0) == "unreachable"
    assert actor.last_word() == "unreachable"


class SlowToImport(ModuleType):
    """Stands for `worker.attempt`; imports of a name from it take a while."""

    def __init__(self, execute: Callable[..., str]) -> None:
        super().__init__("worker.attempt")
        self._execute = execute

    def __getattr__(self, name: str) -> Callable[..., str]:
        if name != "execute":
            raise AttributeError(name)
        time.sleep(0.05)
        return self._execute


def test_what_an_attempt_imports_itself_is_device_time(nowhere: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its device waits for it."""
    held_seconds: list[float] = []

    def execute(*_: object, clock: DeviceClock) -> str:
        held_seconds.append(clock.seconds())
        return "succeeded"

    monkeypatch.setitem(sys.modules, "worker.attempt", SlowToImport(execute))
    assert AttemptActor().execute(nowhere, "run", 1, "token", 0) == "succeeded"
    assert held_seconds[0] >= 0.05
