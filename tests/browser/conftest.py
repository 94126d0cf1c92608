"""A real Chromium looking at a real server; skipped, with the reason, where there is no Chromium."""

import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser.expecting import expect
from tests.factories.serving import Site, listen, served

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Without its window Chromium takes less time: 16 instead of 18 and 22 s for the first test of `test_accessible.py`."""
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def chromium_path() -> str | None:
    """Return the path of Chromium: `ADAPM_BENCH_CHROMIUM`, else the first known name on the path."""
    return os.environ.get("ADAPM_BENCH_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield one Chromium for a module's tests; longer-lived, its event loop would forbid other modules theirs."""
    path = chromium_path()
    if path is None:
        pytest.skip("install Chromium (apt-get install chromium-headless-shell), or name one in ADAPM_BENCH_CHROMIUM")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield opened
        opened.close()


@dataclass
class Profiles:
    """A browser's profiles of one origin: what all its pages load is read and compiled once in each."""

    browser: Browser
    contexts: dict[bool, BrowserContext] = field(default_factory=dict)

    def get(self, *, scripts: bool) -> BrowserContext:
        """The profile whose pages carry out scripts, or the one whose pages do not."""
        if scripts not in self.contexts:
            # Without a GPU, what moves without end costs a fifth of a processor.
            self.contexts[scripts] = self.browser.new_context(java_script_enabled=scripts, reduced_motion="reduce")
            self.contexts[scripts].set_default_timeout(60_000)
        return self.contexts[scripts]

    def forget(self, origin: str) -> None:
        """Close all pages, and leave nothing that they stored or were allowed but the cache of what never changes."""
        for context in self.contexts.values():
            context.set_offline(False)
            context.clear_permissions()
            for number, page in enumerate(context.pages):
                if number == 0:
                    stored = {"origin": origin, "storageTypes": "cookies,local_storage,indexeddb,service_workers"}
                    context.new_cdp_session(page).send("Storage.clearDataForOrigin", stored)
                page.close()


@pytest.fixture(scope="module")
def profiles(browser: Browser) -> Profiles:
    return Profiles(browser)


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    """Yield one origin for the sites of a module."""
    with listen() as bound_socket:
        yield bound_socket


@pytest.fixture
def site(tmp_path: Path, listener: socket.socket) -> Iterator[Site]:
    """An empty service behind a server."""
    with served(tmp_path, listener) as opened_site:
        yield opened_site


def unfold(page: Page) -> None:
    """Open all parts of a page, whose figures are drawn then."""
    page.locator("details.part").evaluate_all("parts => parts.forEach(part => { part.open = true; })")


@dataclass
class Watched:
    """A page with everything that went wrong on it."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self._hear(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, url: str, *, figures: int = 0, folded: bool = False) -> Page:
        """Go there and wait until so many figures are drawn; `folded`: with the page's parts as they are."""
        self.page.goto(url)
        if not folded:
            unfold(self.page)
        expect(self.page.locator("[data-drawn]")).to_have_count(figures)
        return self.page

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning", "trace"):  # a trace is how Plotly warns
            self.complaints.append(f"{kind}: {text}")


@dataclass
class Eyes:
    """Opens watched pages of a kind of screen."""

    profiles: Profiles

    def look(self, *, width: int = 1440, height: int = 900, theme: str = "light", scripts: bool = True) -> Watched:
        """A fresh page."""
        page = self.profiles.get(scripts=scripts).new_page()
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        return Watched(page)


@pytest.fixture
def eyes(profiles: Profiles, site: Site) -> Iterator[Eyes]:
    """Pages that are closed after the test, before their site is."""
    yield Eyes(profiles)
    profiles.forget(site.url)
