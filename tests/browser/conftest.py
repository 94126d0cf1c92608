"""A real Chromium looking at a real server; skipped, with the reason, where there is no Chromium."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.factories.serving import Site, served

expect.set_options(timeout=60_000)  # a busy machine is not a fault

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def chromium_path() -> str | None:
    """Where Chromium is: `ADAPM_BENCH_CHROMIUM`, else the first known name on the path."""
    return os.environ.get("ADAPM_BENCH_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for a module's tests; longer-lived, its event loop would forbid other modules theirs."""
    path = chromium_path()
    if path is None:
        pytest.skip(f"no Chromium: none of {', '.join(NAMES)} is on the path and ADAPM_BENCH_CHROMIUM is not set")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """An empty service behind a server."""
    with served(tmp_path) as found:
        yield found


@dataclass
class Watched:
    """A page with everything that went wrong on it."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda said: self._hear(said.type, said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, url: str, *, figures: int = 0) -> Page:
        """Go there and wait until so many figures are drawn."""
        self.page.goto(url)
        expect(self.page.locator("[data-drawn]")).to_have_count(figures, timeout=60_000)
        return self.page

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")


@dataclass
class Eyes:
    """Opens watched pages of a kind of screen."""

    browser: Browser
    contexts: list[BrowserContext] = field(default_factory=list)

    def look(self, *, width: int = 1440, height: int = 900, theme: str = "light", scripts: bool = True) -> Watched:
        """A fresh page of a fresh profile."""
        context = self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            java_script_enabled=scripts,
        )
        context.set_default_timeout(60_000)
        self.contexts.append(context)
        return Watched(context.new_page())


@pytest.fixture
def eyes(browser: Browser, site: Site) -> Iterator[Eyes]:
    """Pages that are closed after the test, before their site is."""
    found = Eyes(browser)
    yield found
    for context in found.contexts:
        context.close()
