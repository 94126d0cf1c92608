"""`Repeating`: a function that a daemon thread calls every so many seconds."""

import threading
from collections.abc import Callable


class Repeating:
    """Calls `work` for the first time after one pause; an error or a False ends the thread."""

    def __init__(
        self, name: str, seconds: float, work: Callable[[], bool | None], *, once_more_at_end: bool = False
    ) -> None:
        """`once_more_at_end`: call it a last time when it is stopped."""
        self._seconds, self._work, self._once_more_at_end = seconds, work, once_more_at_end
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, wait_seconds: float | None = None) -> None:
        """Let the thread end, and wait for that, for so long at most; nothing if it has not begun."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(wait_seconds)

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            if self._work() is False:
                return
        if self._once_more_at_end:
            self._work()
