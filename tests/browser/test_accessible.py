"""axe-core finds nothing serious on any page, in light and in dark: contrast, names, roles, order; and no page writes
into the browser's console, because a constant message hides the one that matters."""

import pytest
from axe_playwright_python import base as axe
from playwright.sync_api import Page

from orchestrator.annotations import AnnotationChange
from orchestrator.jobs import LeasePolicy, RunAction
from orchestrator.kinds.sweep import SweepSpec
from orchestrator.specs.footprints import footprint_question
from orchestrator.store.queue.queue import Queue
from orchestrator.studies.registry import study
from orchestrator.studies.study import StudyScale
from tests.browser.conftest import Eyes, unfold
from tests.browser.expecting import expect
from tests.factories.playing import DEMO
from tests.factories.scaling import scaling_spec
from tests.factories.serving import Site
from tests.factories.stores import claim, result
from tests.factories.sweep import add_trial, sweep_spec
from worker.records.footprint import Footprint, OptimizerFootprint

pytestmark = pytest.mark.browser

SERIOUS = ("serious", "critical")
COUNTED = Footprint(
    model="gpt2-124m", parameters=1000, parameter_bytes=4000, gradient_bytes=4000, baseline_bytes=8000,
    optimizers=(
        OptimizerFootprint(
            optimizer="adapm", title="AdaPM", options={"rank": 4}, state_bytes=5_000, state_by_block={"head": 5_000}
        ),
    ),
)  # fmt: skip


def test_pages_of_a_comparison_have_no_serious_fault(eyes, site):
    experiment = _half_done(site)
    first, second = (run.id for run in site.runs.page(experiment_id=experiment, limit=2))
    compared = f"/compare?runs={first},{second}"
    paths = (
        "/",
        f"/experiments/{experiment}?columns=all",
        f"/runs/{first}",
        compared,
        "/queue",
        "/runs?group=candidate",
    )
    assert _faults_of(eyes, site, *paths) == []

    site.experiments.annotate(experiment, AnnotationChange(labels=("paper",), note="words"))
    clone = site.experiments.clone(experiment).experiment.id
    site.experiments.apply(clone, RunAction.CANCEL)
    site.experiments.delete(clone)
    path = f"/experiments/{experiment}"
    assert _faults_of(eyes, site, "/?label=paper", "/deleted", f"{path}/edit", f"{path}/delete") == []


def test_pages_of_laws_and_sweeps_have_no_serious_fault(eyes, site):
    scaling, sweep = _scaling(site), _sweep(site, sweep_spec(trials=4))
    paths = (f"/experiments/{scaling}", f"/fits?experiments={scaling}", f"/experiments/{sweep}")
    assert _faults_of(eyes, site, *paths, f"/profiles?experiments={scaling}", "/studies", "/studies/memory-table") == []


def test_forms_and_words_have_no_serious_fault(eyes, site, monkeypatch):
    monkeypatch.setattr(site.footprints, "find", lambda question: COUNTED if question == ASKED else None)
    paths = ("/", "/new", "/new?as=yaml", "/memory", "/login", "/docs", "/experiments/nothing")
    assert _faults_of(eyes, site, *paths) == []


ASKED = footprint_question("gpt2-124m")


def _half_done(site: Site) -> str:
    """A comparison with ended runs and one at work."""
    experiment = site.experiments.submit(DEMO).experiment
    site.player.finish(7)
    site.player.begin().report(60)
    site.experiments.apply(experiment.id, RunAction.CANCEL)
    return str(experiment.id)


def _scaling(site: Site) -> str:
    """A scaling experiment that has ended."""
    candidates = [{"optimizer": optimizer, "learning_rates": [0.004]} for optimizer in ("adamw", "adapm")]
    experiment = site.experiments.submit(scaling_spec(seeds=[1], candidates=candidates)).experiment
    site.player.finish()
    return str(experiment.id)


def _sweep(site: Site, spec: SweepSpec) -> str:
    """A sweep of which three trials have ended."""
    sweep_id = site.experiments.submit(spec).experiment.id
    database = site.database
    for number in range(3):
        add_trial(database, sweep_id, spec, number)
        (lease,) = claim(Queue(database, LeasePolicy()), cpus=1, limit=1)
        identity = lease.run_id, lease.attempt, lease.token
        site.attempts.hello(*identity)
        site.attempts.finish(*identity, result(final_val_loss=2.5 + number / 10))
    return str(sweep_id)


def test_many_hyperparameters_scroll_within_their_table(eyes: Eyes, site: Site) -> None:
    """The page itself does not scroll sideways, on a phone or on a desk."""
    spec = study("partition-search").scales[StudyScale.TINY]["seed 1"]
    assert isinstance(spec, SweepSpec)
    path = f"/experiments/{_sweep(site, spec)}"
    watched = eyes.look()
    for width in (390, 820, 1280, 1440):
        watched.page.set_viewport_size({"width": width, "height": 900})
        page = watched.open(site.url + path, figures=3)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.querySelector('#trials').scrollWidth") > 1280, "else there is nothing to show here"


def _faults_of(eyes: Eyes, site: Site, *paths: str) -> list[tuple[str, ...]]:
    """Return what the console says of these pages once their figures are drawn, and axe's faults on them, in light,
    then in dark."""
    faults: list[tuple[str, ...]] = []
    watched = eyes.look()  # one for all: what the pages share is read and compiled once
    page = watched.page
    for path in paths:
        page.emulate_media(color_scheme="light")
        page.goto(site.url + path)
        unfold(page)
        expect(page.locator("[data-drawn]")).to_have_count(page.locator("[data-figure]").count())
        faults += [(path, complaint) for complaint in watched.complaints if "(Not Found)" not in complaint]
        page.evaluate(axe.AXE_SCRIPT)  # by the browser's driver: the pages' own policy would refuse it
        faults += _faults(page, path, "light")
        page.emulate_media(color_scheme="dark")
        faults += _faults(page, path, "dark", "color-contrast", "link-in-text-block")
        watched.complaints.clear()
    return faults


def _faults(page: Page, path: str, theme: str, *rules: str) -> list[tuple[str, ...]]:
    """Return the faults by all rules, or by those that look at colours."""
    options = {"resultTypes": ["violations"]} | ({"runOnly": rules} if rules else {})
    # What is in order stays in the browser: it is hundreds of times as much.
    violations = page.evaluate("options => axe.run(options).then(answer => answer.violations)", options)
    return [
        (path, theme, violation["id"], str(node["target"]), node["failureSummary"])
        for violation in violations
        if violation["impact"] in SERIOUS
        for node in violation["nodes"][:3]
    ]
