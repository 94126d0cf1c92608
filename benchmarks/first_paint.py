"""Times of the pages in a real Chromium, over an experiment of 1,000 runs with 1,000 points each.

    python -m benchmarks.first_paint --json benchmarks/results/first-paint.json

One api process over SQLite in a temporary folder, on loopback, and Chromium on the same machine without a graphics
card; a minute and a half on an idle machine, half of it for writing the points. `cold` is the first page of a fresh api
process in a browser without a cache; otherwise both have been there before. All times begin with the navigation.

first paint     the first text stands
interactive     the last task is done that held the page for longer than 50 ms: scripts loaded, all figures drawn
server to pixels  from the request of a figure's points until the frame that shows them
live update     from a worker's report until its number stands in the table
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.load_figures import Figure, show
from benchmarks.load_paint import Shown, written
from benchmarks.load_processes import Service, call, machine, running_service
from tests.browser.conftest import ARGUMENTS, chromium_path
from worker.records.protocol import PointsBatch
from worker.records.result import Point

PATIENCE_MILLISECONDS = 120_000
QUIET_MILLISECONDS = 400
"""The time without a long task after the last figure, after which none is expected."""

MEASURE = """
window.bench = { held: 0, drawn: {}, awaited: null, seen: null };
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) bench.held = Math.max(bench.held, one.startTime + one.duration);
}).observe({ type: "longtask", buffered: true });
new MutationObserver((records) => {
  for (const { target } of records) requestAnimationFrame(() => requestAnimationFrame(() => {
    bench.drawn[target.id] ??= performance.now();
  }));
}).observe(document, { subtree: true, attributeFilter: ["data-drawn"] });
new MutationObserver(() => {
  if (bench.awaited && document.getElementById("runs").textContent.includes(bench.awaited)) {
    bench.awaited = null;
    requestAnimationFrame(() => requestAnimationFrame(() => { bench.seen = Date.now() / 1000; }));
  }
}).observe(document, { subtree: true, childList: true, characterData: true });
"""
"""Runs before the page's own scripts: when tasks that held the page ended, when each figure stood, and when a text that
is awaited stood in the table of runs."""

ALL_DRAWN = "document.querySelectorAll('[data-figure]').length === Object.keys(bench.drawn).length"


@dataclass(frozen=True, kw_only=True)
class Look:
    """A navigation, all times in seconds from its start."""

    first_paint: float
    interactive: float
    answers: float
    """The deferred scripts have run: the page answers clicks."""
    figures: dict[str, float]
    """The time from the request of each figure to the frame that shows it, by the figure's id."""
    weight_bytes: int
    """The bytes that were transferred, without Plotly and without the figures' points."""
    figure_bytes: int


def looked(browser: Browser, url: str, again: int = 0) -> list[Look]:
    """Open a page in a fresh profile, then as often again in the same one."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    context.add_init_script(MEASURE)
    looks = []
    for _ in range(1 + again):
        page = context.new_page()
        looks.append(_look(page, url))
        page.close()
    context.close()
    return looks


def till(page: Page, condition: str) -> None:
    """Ask until it is so. The page's policy forbids what Playwright's own waiting is made of; all times are the page's
    own, so that nothing depends on how often it is asked."""
    deadline = time.monotonic() + PATIENCE_MILLISECONDS / 1000
    while not page.evaluate(condition):
        if time.monotonic() > deadline:
            raise RuntimeError(f"never came true within two minutes: {condition}")
        page.wait_for_timeout(50)


def _look(page: Page, url: str) -> Look:
    page.goto(url)
    till(page, ALL_DRAWN)
    page.wait_for_timeout(QUIET_MILLISECONDS)
    timed: dict[str, Any] = page.evaluate(
        """() => ({
          paint: performance.getEntriesByName("first-contentful-paint")[0].startTime,
          scripts: performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd,
          held: bench.held, drawn: bench.drawn,
          sizes: [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].map(
            (one) => [one.name, one.encodedBodySize]),
          asked: Object.fromEntries([...document.querySelectorAll("[data-figure]")].map((one) =>
            [one.id, performance.getEntriesByType("resource").filter((each) =>
              each.name.includes(new URL(one.dataset.figure, location.href).pathname))[0].startTime])),
        })"""
    )
    sizes: list[tuple[str, int]] = timed["sizes"]
    return Look(
        first_paint=timed["paint"] / 1000,
        interactive=max(timed["held"], timed["scripts"], *timed["drawn"].values(), 0) / 1000,
        answers=timed["scripts"] / 1000,
        figures={name: (moment - timed["asked"][name]) / 1000 for name, moment in timed["drawn"].items()},
        weight_bytes=sum(size for url, size in sizes if "/figures/" not in url and "plotly" not in url),
        figure_bytes=sum(size for url, size in sizes if "/figures/" in url),
    )


def painting(browser: Browser, folder: Path, url: str, shown: Shown, times: int) -> Iterator[Figure]:
    """The experiment's page: by fresh services and browsers, then again."""
    path = f"/experiments/{shown.experiment_id}"
    cold, warm = [], []
    for _ in range(times):
        with running_service(folder, url) as service:
            first, *repeats = looked(browser, _address(service, path), again=times)
            cold.append(first)
            warm += repeats
    for name, looks in (("cold", cold), ("warm", warm)):
        yield _seconds(f"first paint, {name}", [look.first_paint for look in looks], 1.0)
        yield _seconds(f"answers clicks, {name}", [look.answers for look in looks])
        yield _seconds(f"interactive, {name}", [look.interactive for look in looks], 2.0)
    weight = cold[0].weight_bytes / 1000
    note = f"the points of its {len(cold[0].figures)} figures: {cold[0].figure_bytes / 1000:.0f} kB"
    yield Figure(path="weight without Plotly", measured=weight, unit="kB", target="≤ 150", met=weight <= 150, note=note)


def million_points(browser: Browser, folder: Path, url: str, shown: Shown, times: int) -> Iterator[Figure]:
    """A chart of a million points: of one run, and of a thousand runs with every rate and every seed."""
    charts = (
        ("of one run", f"/runs/{shown.long_run_id}", "figure-series"),
        ("of 1,000 runs", f"/experiments/{shown.experiment_id}?rates=all&seeds=1", "figure-curves"),
    )
    for name, path, figure in charts:
        looks = []
        for _ in range(times):
            with running_service(folder, url) as service:
                looks.append(looked(browser, _address(service, path), again=times))
        cold = [visit[0].figures[figure] for visit in looks]
        warm_seconds = median(look.figures[figure] for visit in looks for look in visit[1:])
        yield _seconds(
            f"1e6 points, server to pixels, {name}", cold, 1.0, note=f"of a fresh service; again {warm_seconds:.2f} s"
        )


def live_update(browser: Browser, folder: Path, url: str, shown: Shown, times: int) -> Iterator[Figure]:
    """A worker reports to a run among 1,000; the page that shows them is open."""
    with running_service(folder, url) as service:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(PATIENCE_MILLISECONDS)
        page.add_init_script(MEASURE)
        page.goto(_address(service, f"/experiments/{shown.experiment_id}"))
        till(page, ALL_DRAWN)
        till(page, "document.getElementById('live').dataset.state === 'live'")
        connection, late = service.connection(), []
        for number in range(2 * times):
            time.sleep(1.3 + 0.17 * number)  # at any moment between two looks of the service
            step = EXTRA_STEPS + int(time.monotonic() * 1000) % EXTRA_STEPS
            loss = round(2 + step / EXTRA_STEPS / 10, 4)
            batch = PointsBatch.from_points(step, [Point(step=step, tokens=step, train_loss=loss)])
            page.evaluate("(text) => { bench.seen = null; bench.awaited = text; }", f"{loss:.4f}")
            sent = time.time()
            call(connection, "POST", f"/v1/attempts/{shown.live.run_id}/1/points", batch.body(), shown.live.token)
            till(page, "bench.seen")
            late.append(page.evaluate("bench.seen") - sent)
        page.close()
    yield _seconds("live update of a table of 1,000 runs", late, 1.5, note=f"longest {max(late):.2f} s")


EXTRA_STEPS = 1_000_000
"""Steps of the reports that are watched: beyond all others."""
Part = Callable[[Browser, Path, str, Shown, int], Iterator[Figure]]
PARTS: dict[str, Part] = {"paint": painting, "points": million_points, "live": live_update}


def _seconds(path: str, seconds: Sequence[float], limit: float | None = None, note: str = "") -> Figure:
    spread = f"{min(seconds):.2f} to {max(seconds):.2f} s, {len(seconds)} times"
    return Figure(
        path=path,
        measured=median(seconds),
        unit="s",
        target="" if limit is None else f"≤ {limit:g}",
        met=None if limit is None else median(seconds) <= limit,
        note="; ".join(filter(None, (spread, note))),
    )


def _address(service: Service, path: str) -> str:
    return f"http://{service.host}:{service.port}{path}"


@contextmanager
def chromium() -> Iterator[Browser]:
    """The first Chromium on the path, headless."""
    path = chromium_path()
    if path is None:
        sys.exit("There is no Chromium on the path; ADAPM_BENCH_CHROMIUM may name one.")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield opened
        opened.close()


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="Write the figures there, too.")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="Only these.")
    parser.add_argument("--times", type=int, default=3, help="Fresh services a figure, and looks at each of them.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="adapm-bench-paint-") as name, chromium() as browser:
        folder = Path(name)
        url = f"sqlite:///{folder / 'bench.sqlite3'}"
        with running_service(folder, url) as service:
            shown = written(service)
        figures = [
            figure for part in arguments.parts for figure in PARTS[part](browser, folder, url, shown, arguments.times)
        ]
        report = {"machine": machine(), "chromium": browser.version, "load": os.getloadavg()[0]}
    show(figures)
    print(f"Chromium {report['chromium']}; {report['machine']}; load {report['load']:.1f}")
    if arguments.json:
        report |= {"figures": [asdict(figure) for figure in figures]}
        arguments.json.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
