"""The page of all runs: its view stands in its address, externals are marked, faults say where, and it is a file."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.factories.external_runs import batch, header
from tests.factories.serving import application, open_services
from tests.factories.stores import comparison_spec


def test_the_table_of_all_runs_is_filtered_sorted_grouped_and_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_services(tmp_path) as (services, player), TestClient(application(services)) as browser:
        assert "No run matches" in browser.get("/runs").text
        experiment = services.experiments.submit(
            comparison_spec(optimizers=("adamw", "lion"), seeds=range(60))
        ).experiment
        player.finish(1)
        services.external_runs.append(
            "mine", batch({0: 5.0, 9: 2.5}, run=header("<b>muon</b>", config={"note": "=1+1"}))
        )
        page = browser.get("/runs").text
        assert "&lt;b&gt;muon" in page and "<b>muon" not in page and ">logged</span>" in page and 'rel="next"' in page
        assert 'name="runs" value="mine"' in page, "the id that the table shows is the one that /compare takes"
        narrowed = browser.get("/runs?q=candidate=lion and seed<3&sort=-seed&columns=seed,spec.workload.model").text
        assert narrowed.count('name="runs"') == 3 and "gpt2" in narrowed and 'aria-sort="descending"' in narrowed
        assert narrowed.index(">2</bdi>") < narrowed.index(">0</bdi>")
        grouped = browser.get("/runs?group=candidate").text
        assert grouped.count(">60</td>") == 2 and "candidate%22+%3D+%22lion" in grouped
        several = browser.get("/runs?group=candidate+lr").text
        assert "candidate%22+%3D+%22lion" in several and "and+%22lr%22" in several and "Mean validation loss" in several
        monkeypatch.setattr("orchestrator.store.run_table.MOST_GROUPS", 1)
        cut = browser.get("/runs?group=candidate").text
        assert cut.count(">60</td>") == 1
        faulty = browser.get("/runs?q=lr<oops")
        assert faulty.status_code == 422 and "position 4" in faulty.text and 'value="lr&lt;oops"' in faulty.text
        assert browser.get("/runs?sort=secret").status_code == 422 and browser.get("/runs.csv?q=lr<").status_code == 422
        assert browser.get("/runs?after=gone").status_code == 422
        for address in ("/runs.csv?where=lr%3D0.5", "/runs?where=(((("):
            lost = browser.get(address)
            assert lost.status_code == 422, "a filter does not vanish"
        lines = browser.get("/runs.csv?columns=config.note,state").text.splitlines()
        assert len(lines) == 1 + 120 + 1 and sum("finished" in line for line in lines) == 1
        assert next(line for line in lines if line.startswith("mine")).endswith("'=1+1,running"), "no formula"
        assert browser.get(f"/runs?q=experiment_id={experiment.id}&sort=metric.val_loss").status_code == 200
