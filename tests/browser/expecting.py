"""Expectations of a page's later content, met soon after it shows it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Locator, Page
from playwright.sync_api import expect as assertions_of

PATIENCE_SECONDS = 60.0
"""A busy machine is not a fault."""
LOOK_MILLISECONDS = 50.0


@dataclass(frozen=True)
class Expectation:
    """Playwright's assertions, asked anew every 50 ms.

    By itself it looks at once, after 0.1, 0.35 and 0.85 s, then every second; much of what a page does takes 0.4 s.
    """

    _assertions: Any
    """`LocatorAssertions` or `PageAssertions`."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        look = getattr(self._assertions, name)

        def wait_until_it_holds(*expected: object, **options: object) -> None:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while True:
                try:
                    look(*expected, timeout=LOOK_MILLISECONDS, **options)
                    return
                except AssertionError:
                    if time.monotonic() > deadline:
                        raise

        return wait_until_it_holds


def expect(target: Locator | Page) -> Expectation:
    """Expect like `playwright.sync_api.expect`."""
    return Expectation(assertions_of(target))
