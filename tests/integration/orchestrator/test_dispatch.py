"""The dispatcher process ends all of its parts, whichever of them cannot be closed."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from api.processes import dispatcher as dispatching
from orchestrator.errors import StoreError
from orchestrator.settings import Settings


class Broken:
    """A runner behind which the database has gone."""

    def __init__(self, *_: object, **__: object) -> None:
        """Ray is not needed to fail."""

    def address(self) -> str:
        return "127.0.0.1:9"

    def close(self, _grace_seconds: float) -> Sequence[object]:
        raise StoreError("the database is away")


def test_a_dispatcher_that_cannot_be_closed_leaves_no_thread_and_no_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[Path] = []

    def stop_at_once(stop: Callable[[], None]) -> None:
        stop()

    monkeypatch.setattr(dispatching, "start_embedded_ray", lambda *_: None)
    monkeypatch.setattr(dispatching, "stop_embedded_ray", stopped.append)
    monkeypatch.setattr(dispatching, "stop_on_signals", stop_at_once)
    monkeypatch.setattr("orchestrator.dispatch.ray_runner.RayRunner", Broken)
    monkeypatch.setattr(dispatching, "configure_logs", lambda _name: None)
    with pytest.raises(StoreError, match="the database is away"):
        dispatching.dispatch(Settings(data_folder=tmp_path), "http://127.0.0.1:9", name="a", watch_stdin=False)
    assert stopped == [tmp_path]
    assert not {"mlflow-export", "retention"} & {thread.name for thread in threading.enumerate()}
