"""The pages of external runs say that they are external, what speaks against verdicts, and what cannot be judged."""

from pathlib import Path

from starlette.testclient import TestClient

from tests.factories.external_runs import batch, header
from tests.factories.serving import application, open_services


def test_external_runs_have_pages_of_their_own_that_say_so(tmp_path: Path) -> None:
    with open_services(tmp_path) as (services, _), TestClient(application(services)) as browser:
        assert "No external runs yet" in browser.get("/external").text
        append = services.external_runs.append
        for seed in (1, 2):
            for name, lr in (("<b>muon</b>", 0.02), ("adamw", 0.002)):
                run = header(name, lr=lr, seed=seed, config={"note": "=1+1"})
                told = batch({0: 5.0, 100: 3.0 + lr + seed / 100}, run=run)
                append(f"run-{seed}-{lr}", told.model_copy(update={"run": run}))
        found = services.external_runs.experiment("a study")
        assert f'href="/external/{found.id}"' in browser.get("/external").text
        page = browser.get(f"/external/{found.id}").text
        assert "No verdict" in page and "still training, or killed" in page, "no run has said that it is finished"
        assert "&lt;b&gt;muon" in page and "<b>muon" not in page and ">external</span>" in page
        judged = browser.get(f"/external/{found.id}?metric=none&baseline=&workload=x")
        assert judged.status_code == 200 and "no run has the workload" in judged.text
        assert browser.get("/external/none").status_code == 404
        assert "external" not in browser.get("/").text.split("<main")[1], "home lists what the bench itself measured"
