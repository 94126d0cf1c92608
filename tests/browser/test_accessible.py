"""axe-core finds nothing serious on any page, in light and in dark: contrast, names, roles, order."""

import pytest

from orchestrator.annotations import AnnotationChange
from orchestrator.studies.demo import DEMO

pytestmark = pytest.mark.browser
axe = pytest.importorskip("axe_playwright_python.base", reason="axe-playwright-python is not installed")

SERIOUS = ("serious", "critical")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_has_a_serious_fault(eyes, site, theme):
    experiment = site.bench.submit(DEMO).experiment
    site.player.finish(7)
    site.player.begin().report(60)
    run = site.bench.runs(limit=1)[0]
    site.bench.annotate(experiment.id, AnnotationChange(labels=("paper",), note="words"))
    other = site.bench.clone_experiment(experiment.id).experiment.id
    site.bench.cancel_experiment(other)
    site.bench.delete_experiment(other)
    pages = (("/?label=paper", 0), ("/deleted", 0), (f"/experiments/{experiment.id}/edit", 0),
             (f"/experiments/{experiment.id}/delete", 0), (f"/?deleted={other}", 0),
             ("/new", 0), ("/new?as=yaml", 0), (f"/experiments/{experiment.id}", 7), (f"/runs/{run.id}", 2),
             (f"/compare?runs={run.id}", 1), ("/queue", 0), ("/experiments/nothing", 0))  # fmt: skip
    found = []
    for path, figures in pages:
        page = eyes.look(theme=theme).open(site.url + path, figures=figures)
        page.evaluate(axe.AXE_SCRIPT)  # by the browser's driver: the pages' own policy would refuse it
        answer = page.evaluate("axe.run()")
        found += [
            (path, one["id"], node["target"], node["failureSummary"])
            for one in answer["violations"]
            if one["impact"] in SERIOUS
            for node in one["nodes"][:3]
        ]
    assert found == []
