"""The end of a service's process: on SIGTERM or SIGINT, or when the supervisor at its standard input ends."""

import os
import signal
import sys
import threading
from collections.abc import Callable


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGTERM and SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())


def stop_with_parent(stop: Callable[[], None]) -> None:
    """Call `stop` once standard input is closed: even kill -9 of the supervisor closes its end of the pipe."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 64):
            pass
        stop()

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()
