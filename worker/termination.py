"""SIGTERM and Ctrl-C as a wish: the training loop looks at it between two steps, writes a checkpoint and leaves."""

import logging
import signal
import threading
from types import FrameType
from typing import Any, Self

logger = logging.getLogger(__name__)


class Termination:
    """While it is entered, SIGTERM and SIGINT set `is_requested` and do nothing else; the former handlers return after.

    It may be entered again: what was requested stays requested.
    """

    def __init__(self) -> None:
        self._requested = False
        self._former: dict[signal.Signals, Any] = {}

    @property
    def is_requested(self) -> bool:
        """Return whether somebody wants the run to leave."""
        return self._requested

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._former = {number: signal.signal(number, self._request) for number in (signal.SIGTERM, signal.SIGINT)}
        else:  # Python handles signals in the main thread only; whoever owns it decides there
            logger.info("signals are not watched: the run is not in the main thread")
        return self

    def __exit__(self, *error: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._requested = True
