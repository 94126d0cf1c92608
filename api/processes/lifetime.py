"""When a process of the service ends: on SIGTERM or SIGINT, or when the supervisor at its standard input does."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

# Whether a service answers: asked by whoever starts it, relies on it, or finds its note.


def answers(url: str, timeout_seconds: float = 2.0, path: str = "/healthz") -> bool:
    """Whether the service at `url` is there and reaches its database."""
    import httpx2  # a client, which the service itself has no use for

    try:
        # A proxy of the environment is not meant for this machine's own addresses; reading certificates, which only
        # HTTPS needs, takes longer than all of the rest.
        https = url.startswith("https:")
        return httpx2.get(f"{url}{path}", timeout=timeout_seconds, trust_env=False, verify=https).status_code == 200
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return False


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGTERM and SIGINT."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


def stop_with_parent(stop: Callable[[], None]) -> None:
    """Call `stop` once standard input is closed: even kill -9 of the supervisor closes its end of the pipe."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 64):
            pass
        stop()

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()
