"""The pages of campaigns: tries, their verdicts, what is left, and a ledger that says if it does not follow."""

from pathlib import Path

import sqlalchemy as sa
from starlette.testclient import TestClient

from orchestrator.campaigns.ledger import TryRequest
from orchestrator.store.tables import results
from tests.factories.campaigns import GOOD, campaign_spec
from tests.factories.serving import application, open_services


def test_a_campaign_shows_its_tries_and_what_its_ledger_comes_to(tmp_path: Path) -> None:
    with open_services(tmp_path) as (services, player), TestClient(application(services)) as browser:
        campaigns = services.campaigns
        assert "No campaigns yet" in browser.get("/campaigns").text
        campaign = campaigns.open(campaign_spec(gain=0.05, name="<b>a name"))
        path = f"/campaigns/{campaign.id}"
        assert "No try yet" in browser.get(path).text
        campaigns.register(campaign.id, GOOD)
        campaigns.submit(campaign.id, 1)
        campaigns.register(campaign.id, TryRequest(optimizer="lion", lr=1e-4, note="<i>a note"))
        running = browser.get(path).text
        assert "No try has come to a held-out workload yet" in running and ">running<" in running
        player.finish()

        listed = browser.get("/campaigns").text
        assert f'href="{path}"' in listed and "&lt;b&gt;a name" in listed and "2 of 20" in listed
        found = campaigns.get_try(campaign.id, 1)
        assert found.improvement is not None
        page = browser.get(path).text
        assert "&lt;i&gt;a note" in page and "<i>a note" not in page and "1 improved, 0 not shown" in page
        assert page.index("2: Lion") < page.index(f'href="/experiments/{found.experiment_id}">1: AdaPM')
        assert f"−{abs(found.improvement.mean):.4f}" in page and ">improved<" in page and ">registered<" in page
        assert "every entry follows from the stored results" in page and "level 0.025" in page
        assert page.index("held-out workload 1: improved") < page.index(">opened<")

        of_try = browser.get(f"/experiments/{found.experiment_id}").text
        assert f'<a href="{path}"><bdi>&lt;b&gt;a name' in of_try and "AdaPM at 0.002 against AdamW at 0.001" in of_try
        assert "/delete" not in of_try and "More seeds" not in of_try, "the ledger follows from its results"
        clone = services.experiments.clone(str(found.experiment_id), None, None).experiment
        player.finish()
        assert f'href="/experiments/{clone.id}/delete"' in browser.get(f"/experiments/{clone.id}").text

        with services.database.writing() as connection:
            connection.execute(
                sa.update(results).values(result=sa.func.replace(results.c.result, '"converged"', '"diverged"'))
            )
        assert "does not follow from what is stored" in browser.get(path).text
        assert browser.get("/campaigns/nothing").status_code == 404
