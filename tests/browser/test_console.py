"""The browser's console stays empty on pages of stored experiments: of every kind, with probes, of all states.

`test_accessible.py` listens to it on all other pages.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from socket import socket

import pytest

from orchestrator.jobs import LeasePolicy, RunStatus
from orchestrator.store.queue.queue import Queue
from tests.browser.conftest import Eyes, Watched, unfold
from tests.browser.expecting import expect
from tests.factories.serving import Site, served
from tests.factories.stored import unpacked
from tests.factories.stores import claim, result, sqlite_database
from tests.factories.sweep import RATES, add_trial, sweep_spec

pytestmark = pytest.mark.browser

PROBED = "0cv87s9wx6-0000"


@pytest.fixture
def site(tmp_path: Path, listener: socket) -> Iterator[Site]:
    folder = unpacked(tmp_path)
    with closing(sqlite_database(folder)) as database:
        database.migrate()
    with served(folder, listener) as opened_site:
        yield opened_site


def test_no_page_writes_into_the_console(eyes: Eyes, site: Site) -> None:
    ids = [experiment.id for experiment in site.experiments.page()]
    (failed,) = site.runs.page(status=RunStatus.FAILED)
    paths = [
        "/runs",
        f"/runs/{PROBED}?probe=gradient-sparsity&quantity=norm",
        f"/runs/{failed.id}",
        f"/compare?runs={failed.id},{PROBED}",
        *(f"/experiments/{listed_id}" for listed_id in (*ids, _sweep(site))),
    ]
    watched = eyes.look()
    for path in paths:
        _open(watched, f"{site.url}{path}")
        assert watched.complaints == [], path


def _open(watched: Watched, url: str) -> None:
    watched.page.goto(url)
    unfold(watched.page)
    figures = watched.page.locator("[data-figure]").count()
    expect(watched.page.locator("[data-drawn]")).to_have_count(figures)


def _sweep(site: Site) -> str:
    """A sweep of enough ended trials over two hyperparameters."""
    space = {"lr": RATES, "rank_ratio": {"kind": "catalog"}}
    spec = sweep_spec(trials=5, candidates=[{"optimizer": "adapm", "space": space}])
    sweep_id = site.experiments.submit(spec).experiment.id
    for number in range(5):
        add_trial(site.database, sweep_id, spec, number)
        # What else waits in the stored folder is claimed too, and left at that.
        leases = claim(Queue(site.database, LeasePolicy()), cpus=1_000, limit=1_000)
        (lease,) = (lease for lease in leases if lease.run_id.startswith(sweep_id))
        site.attempts.hello(lease.run_id, lease.attempt, lease.token)
        site.attempts.finish(lease.run_id, lease.attempt, lease.token, result(final_val_loss=2.5 + number / 10))
    return str(sweep_id)
