"""The pictures of the documentation, taken from a page of a running service:

adapm-bench demo && adapm-bench up &
python -m tests.browser.picture http://127.0.0.1:8321/experiments/ID docs/images/experiment.png
"""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.conftest import ARGUMENTS, chromium_path

WIDTH, HEIGHT = 1280, 1340
DRAWN = """() => [...document.querySelectorAll('[data-figure]')]
    .every(figure => !figure.checkVisibility() || figure.querySelector('svg, img, p'))"""
"""Whether every figure of the page is there, but for those in sections that are folded."""


def take(url: str, path: Path) -> None:
    """A picture of the first screen of a page, in light colours, once its figures are drawn. Raises `RuntimeError`
    where there is no Chromium."""
    if (browser_path := chromium_path()) is None:
        raise RuntimeError("no Chromium is on the path; set ADAPM_BENCH_CHROMIUM to one")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=list(ARGUMENTS))
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(url)
        page.wait_for_function(DRAWN, timeout=120_000)
        page.screenshot(path=path)
        browser.close()


if __name__ == "__main__":
    take(sys.argv[1], Path(sys.argv[2]))
