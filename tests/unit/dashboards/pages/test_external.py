"""The pages of external runs say that they are external, what speaks against verdicts, and what cannot be judged."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from orchestrator.external_runs import ExternalState, SpoolLine
from tests.factories.external_runs import BEGAN, batch, header
from tests.factories.serving import application, open_services


def test_external_runs_have_pages_of_their_own_that_say_so(tmp_path: Path) -> None:
    with open_services(tmp_path) as (services, _), TestClient(application(services)) as browser:
        assert "No external runs" in browser.get("/external").text
        append = services.external_runs.append
        for seed in (1, 2):
            for name, lr in (("<b>muon</b>", 0.02), ("adamw", 0.002)):
                run = header(name, lr=lr, seed=seed, config={"note": "=1+1"})
                told = batch({0: 5.0, 100: 3.0 + lr + seed / 100}, run=run)
                append(f"run-{seed}-{lr}", told.model_copy(update={"run": run}))
        found = services.external_runs.experiment("a study")
        assert f'href="/external/{found.id}"' in browser.get("/external").text
        page = browser.get(f"/external/{found.id}").text
        assert "No verdict" in page and "still training" in page, "no run has said that it is finished"
        assert "&lt;b&gt;muon" in page and "<b>muon" not in page and ">external</span>" in page
        judged = browser.get(f"/external/{found.id}?metric=none&baseline=&workload=x")
        assert judged.status_code == 200
        assert browser.get("/external/none").status_code == 404
        home = browser.get("/").text.split("<main")[1]
        assert "External experiments" in home and ">external</span>" in home and f"/external/{found.id}" in home
        assert "External experiments" not in browser.get("/?q=x").text

        labels = f"/external/{found.id}/labels"
        assert browser.post(labels, data={"add": "<i>paper, second try,"}).url.path == f"/external/{found.id}"
        browser.post(labels, data={"remove": "second try"})
        assert services.external_runs.experiment(found.id).labels == ("<i>paper",)
        for address in ("/", "/external", f"/external/{found.id}", "/?label=%3Ci%3Epaper"):
            shown = browser.get(address).text
            assert "&lt;i&gt;paper" in shown and "<i>paper" not in shown and found.id in shown
        assert found.id not in browser.get("/?label=second+try").text
        assert browser.post(labels, data={"add": "x" * 61}).status_code == 422
        assert browser.post("/external/none/labels", data={"add": "x"}).status_code == 404

        curves = f"/external/{found.id}/figures/curves"
        figure = browser.get(f"{curves}.json?metric=val_loss").json()
        assert [(each["x"], each["y"][0]) for each in figure["data"]] == [([0.0, 100.0], 5.0)] * 4
        assert all("<b>" not in each["name"] for each in figure["data"])
        assert browser.get(f"{curves}.svg?metric=val_loss").text.startswith("<?xml")
        assert browser.get(f"{curves}.json?metric=none").json()["data"] == []
        tag = browser.get(f"{curves}.json").headers["ETag"]
        assert browser.get(f"{curves}.json", headers={"If-None-Match": tag}).status_code == 304

        form = {"edit": "0", "p_metric": "val_loss", "p_smooth": "0", "p_by": "candidate", "p_across": "tokens"}
        kept = {"metric": "val_loss"}
        address = browser.get(f"/external/{found.id}", params=kept | form, follow_redirects=False).headers["Location"]
        assert "metric=val_loss&panel=val_loss*tokens*s0*by-candidate" in address
        assert 'id="figure-panel-0"' in browser.get(address).text
        panel = f"/external/{found.id}/figures/panel"
        means = browser.get(f"{panel}.json?panel=val_loss*steps*s0*by-candidate").json()["data"]
        named = {each["name"]: each for each in means if "name" in each}
        assert set(named) == {"&lt;b&gt;muon&lt;/b&gt; · external (n = 2)", "adamw · external (n = 2)"}
        assert named["adamw · external (n = 2)"]["y"] == pytest.approx([5.0, 3.0 + 0.002 + 0.015])
        assert browser.get(f"{panel}.svg?panel=val_loss*steps*s0").text.startswith("<?xml")
        assert len(browser.get(f"{panel}.json?panel=none").json()["data"]) == 4, "the first metric in place of none"

        assert "deleted permanently" in browser.get(f"/external/{found.id}/delete").text
        done = browser.post(f"/external/{found.id}/delete", follow_redirects=False)
        assert (done.status_code, done.headers["Location"]) == (303, "/external")
        for gone in ("", "/delete", "/figures/curves.json", "/figures/panel.json"):
            assert browser.get(f"/external/{found.id}{gone}").status_code == 404
        assert browser.post(f"/external/{found.id}/delete").status_code == 404


def test_a_run_that_diverged_has_its_curve_though_no_rate_was_judged(tmp_path: Path) -> None:
    with open_services(tmp_path) as (services, _), TestClient(application(services)) as browser:
        run = header("adamw", lr=1.0, seed=1)
        told = batch({0: 5.0, 50: 9.0, 100: float("nan")}, run=run)
        end = SpoolLine(at=BEGAN + 101, state=ExternalState.FINISHED)
        services.external_runs.append("run-1", told.model_copy(update={"lines": (*told.lines, end)}))
        found = services.external_runs.experiment("a study")
        page = browser.get(f"/external/{found.id}").text
        assert "</bdi> of 1 run</p>" in page and "1 of 1 run" in page
        figure = browser.get(f"/external/{found.id}/figures/curves.json?metric=val_loss").json()
        assert [each["x"] for each in figure["data"]] == [[0.0, 50.0]]
