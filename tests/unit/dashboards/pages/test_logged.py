"""Logged and imported runs stand in the list of all experiments, marked, and have its pages at its addresses."""

import pytest
from starlette.testclient import TestClient

from orchestrator.annotations import LabelChange
from orchestrator.external_runs import ExternalState, SpoolLine
from orchestrator.services.composition import Services
from tests.factories.external_runs import BEGAN, batch, header


def test_experiments_of_every_source_are_one_list_and_have_one_page_each(
    client: TestClient, services: Services
) -> None:
    assert "start_run(" in client.get("/").text, "the empty list says how"
    append = services.external_runs.append
    for seed in (1, 2):
        for name, lr in (("<b>muon</b>", 0.02), ("adamw", 0.002)):
            run = header(name, lr=lr, seed=seed, config={"note": "=1+1"})
            lines_batch = batch({0: 5.0, 100: 3.0 + lr + seed / 100}, run=run)
            append(f"run-{seed}-{lr}", lines_batch.model_copy(update={"run": run}))
    study = services.external_runs.experiment("a study")
    address = f"/experiments/{study.id}"
    page = client.get(address).text
    assert "No verdict" in page and "still training" in page, "no run has said that it is finished"
    assert "&lt;b&gt;muon" in page and "<b>muon" not in page and ">logged</span>" in page
    judged = client.get(f"{address}?metric=none&baseline=&workload=x")
    assert judged.status_code == 200
    assert client.get("/experiments/none").status_code == 404
    csv = header("lion", experiment="a table", source="csv")
    append("imported", batch({0: 5.0}, run=csv))
    table = services.external_runs.experiment("a table").id
    for query, shown in (
        ("", {"logged", "imported"}), ("?source=logged", {"logged"}), ("?source=imported", {"imported"}),
        ("?source=bench", set()), ("?q=muon", {"logged"}), ("?state=active", {"logged", "imported"}),
        ("?state=done", set()), ("?q=adamw", {"logged"}),
    ):  # fmt: skip
        home = client.get(f"/{query}").text.split("<main")[1]
        listed = {word for word, id in (("logged", study.id), ("imported", table)) if f"/experiments/{id}" in home}
        assert listed == shown == {word for word in ("logged", "imported") if f">{word}</span>" in home}, query

    labels = f"{address}/edit"
    assert client.post(labels, data={"labels": "<i>paper, second try,"}).url.path == address
    assert 'name="shown" value="&lt;i&gt;paper, second try"' in client.get(labels).text
    services.external_runs.change_labels(study.id, LabelChange(add=("meanwhile",)))
    client.post(labels, data={"labels": "<i>paper", "shown": "<i>paper, second try"})
    assert services.external_runs.experiment(study.id).labels == ("<i>paper", "meanwhile")
    assert client.post(labels, data={"shown": "<i>paper"}).url.path == address
    assert services.external_runs.experiment(study.id).labels == ("<i>paper", "meanwhile"), "without the field"
    client.post(labels, data={"labels": "<i>paper", "shown": "<i>paper, meanwhile"})
    assert services.external_runs.experiment(study.id).labels == ("<i>paper",)
    for page_path in ("/", address, labels, "/?label=%3Ci%3Epaper"):
        page = client.get(page_path).text
        assert "&lt;i&gt;paper" in page and "<i>paper" not in page and study.id in page
    assert study.id not in client.get("/?label=second+try").text
    assert client.post(labels, data={"labels": "x" * 61}).status_code == 422
    assert client.post("/experiments/none/edit", data={"labels": "x"}).status_code == 404

    panel = f"/experiments/{study.id}/figures/panel"
    curves = "panel=val_loss*steps*s0"
    figure = client.get(f"{panel}.json?{curves}").json()
    assert [(trace["x"], trace["y"][0]) for trace in figure["data"]] == [([0.0, 100.0], 5.0)] * 4
    assert all("<b>" not in trace["name"] for trace in figure["data"])
    assert client.get(f"{panel}.svg?{curves}").text.startswith("<?xml")
    assert client.get(f"{panel}.json?{curves}&workload=none").json()["data"] == []
    tag = client.get(f"{panel}.json?{curves}").headers["ETag"]
    assert client.get(f"{panel}.json?{curves}", headers={"If-None-Match": tag}).status_code == 304
    assert client.get(f"/experiments/{study.id}/figures/breakdown.json").status_code == 404

    for path, kind in (("/profiles", "performance profile"), ("/fits", "scaling law")):
        refused = client.get(path, params={"experiments": study.id})
        assert refused.status_code == 409 and f"No {kind}" in refused.text
        assert "a study has logged or imported runs" in refused.text.lower()
        assert client.get(path, params={"experiments": "none"}).status_code == 404

    form = {"edit": "0", "p_metric": "val_loss", "p_smooth": "0", "p_by": "candidate", "p_across": "tokens"}
    view = {"metric": "val_loss"}
    edited = client.get(address, params=view | form, follow_redirects=False).headers["Location"]
    assert "metric=val_loss&panel=val_loss*tokens*s0*by-candidate" in edited
    assert 'id="figure-panel-0"' in client.get(edited).text
    removal = 'aria-label="Remove the panel'
    assert removal not in client.get(edited).text, "the first panel would be back"
    assert client.get(f"{address}?{curves}&panel=val_loss").text.count(removal) == 2
    means = client.get(f"{panel}.json?panel=val_loss*steps*s0*by-candidate").json()["data"]
    named = {trace["name"]: trace for trace in means if "name" in trace}
    assert set(named) == {"&lt;b&gt;muon&lt;/b&gt; · logged (n = 2)", "adamw · logged (n = 2)"}
    assert named["adamw · logged (n = 2)"]["y"] == pytest.approx([5.0, 3.0 + 0.002 + 0.015])
    assert client.get(f"{panel}.svg?panel=val_loss*steps*s0").text.startswith("<?xml")
    assert len(client.get(f"{panel}.json?panel=none").json()["data"]) == 4, "the first metric in place of none"

    assert "deleted permanently" in client.get(f"/experiments/{study.id}/delete").text
    response = client.post(f"/experiments/{study.id}/delete", follow_redirects=False)
    assert (response.status_code, response.headers["Location"]) == (303, "/")
    for suffix in ("", "/delete", "/figures/panel.json"):
        assert client.get(f"/experiments/{study.id}{suffix}").status_code == 404
    assert client.post(f"/experiments/{study.id}/delete").status_code == 404


def test_a_run_that_diverged_has_its_curve_though_no_rate_was_judged(client: TestClient, services: Services) -> None:
    run = header("adamw", lr=1.0, seed=1)
    lines_batch = batch({0: 5.0, 50: 9.0, 100: float("nan")}, run=run)
    end = SpoolLine(at=BEGAN + 101, state=ExternalState.FINISHED)
    services.external_runs.append("run-1", lines_batch.model_copy(update={"lines": (*lines_batch.lines, end)}))
    study = services.external_runs.experiment("a study")
    page = client.get(f"/experiments/{study.id}").text
    assert "1 of 1 run" in page
    figure = client.get(f"/experiments/{study.id}/figures/panel.json?panel=val_loss*steps*s0").json()
    assert [trace["x"] for trace in figure["data"]] == [[0.0, 50.0]]


def test_the_list_of_experiments_has_the_verdicts_of_logged_runs(client: TestClient, services: Services) -> None:
    end = SpoolLine(at=BEGAN + 101, state=ExternalState.FINISHED)
    for seed, noise in ((1, 0.0), (2, 0.01), (3, 0.03)):
        for name, loss in (("adamw", 3.0 - noise), ("muon", 2.5 + noise)):
            run = header(name, lr=0.01, seed=seed)
            lines_batch = batch({0: 5.0, 100: loss}, run=run)
            lines = (*lines_batch.lines, end)
            services.external_runs.append(f"{name}-{seed}", lines_batch.model_copy(update={"lines": lines}))
    home = client.get("/").text.split("<main")[1]
    assert ">better</span>" in home and ">baseline</span>" in home and "judged on its page" not in home
    assert "2.5133" in home and "2.9867" in home
    services.external_runs.append(
        "other", batch({0: 5.0}, run=header("lion", experiment="unfinished")).model_copy(update={"part": "a"})
    )
    assert "judged on its page" in client.get("/").text
