"""The progress of a preparation on this terminal: a bar, or a line now and then in a log."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from api.cli.console import complain, console

if TYPE_CHECKING:
    from worker.data.preparation import Order
    from worker.data.sections import SectionProgress

LINE_SECONDS = 5.0
"""Without a terminal: at most one line in this time."""


class PreparationProgress:
    """Shows what a preparation has reached, towards the tokens, documents or bytes that it will end with."""

    def __init__(self, total_bytes: int | None, order: "Order", *, quiet: bool) -> None:
        """`total_bytes` is the size of the source, where it is known; `quiet` prints nothing."""
        self._order, self._total_bytes, self._quiet = order, total_bytes, quiet
        self._started = self._told_at = time.monotonic()
        self._first_bytes: int | None = None
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console(sys.stderr),
            disable=quiet or not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task(f"preparing {order.dataset}", total=self._total())

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def update(self, reached: "SectionProgress") -> None:
        """Show the documents, bytes and tokens so far."""
        now = time.monotonic()
        if self._first_bytes is None:  # what an earlier call had finished is no speed of this one
            self._first_bytes, self._started = reached.text_bytes, now
        rate = (reached.text_bytes - self._first_bytes) / 1e6 / (now - self._started) if now > self._started else 0.0
        text = (
            f"{self._order.dataset}: {reached.documents:,} documents, {reached.training_tokens:,} training tokens, "
            f"{reached.text_bytes / 1e6:,.0f} MB" + (f", {rate:.1f} MB/s" if rate else "")
        )
        self._bar.update(self._task, completed=self._done(reached), description=text)
        if self._bar.disable and not self._quiet and now - self._told_at >= LINE_SECONDS:
            self._told_at = now
            complain(text)

    def _total(self) -> int | None:
        return self._order.tokens or self._order.documents or self._total_bytes

    def _done(self, reached: "SectionProgress") -> int:
        if self._order.tokens:
            return reached.training_tokens
        return reached.documents if self._order.documents else reached.text_bytes
