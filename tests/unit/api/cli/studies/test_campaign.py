"""`adapm-bench campaign`: a campaign from its file to a verdict, as a terminal shows it; what a wrong word gives."""

import json
from pathlib import Path

import sqlalchemy as sa
from typer.testing import CliRunner, Result

from api.cli import main
from orchestrator.store.tables import results
from tests.factories.campaigns import campaign_spec
from tests.factories.serving import served


def test_a_campaign_is_opened_tried_and_judged_and_its_ledger_follows(tmp_path: Path) -> None:
    with served(tmp_path) as site:

        def cli(*words: object) -> Result:
            return CliRunner().invoke(main, ["campaign", *map(str, words), "--url", site.url], catch_exceptions=False)

        file = tmp_path / "campaign.yaml"  # JSON is YAML
        file.write_text(campaign_spec(gain=0.05).model_dump_json(), encoding="utf-8")
        assert "no campaigns yet" in cli("ls").stdout
        opened = cli("new", file).stdout
        id = opened.split()[1].rstrip(":")
        assert opened == f"opened {id}: better than AdamW\n{site.url}/campaigns/{id}\n"

        told = cli("try", id, "adapm", "--lr", 2e-3, "--option", "rank_ratio=2e-1", "--note", "low rank").stdout
        assert told.split("\n")[0] == f"try 1 of {id}: registered" and "not submitted yet" in told
        (registered,) = json.loads(cli("show", id, "--json").stdout)["tries"]
        assert registered["tried"]["options"] == {"rank_ratio": 0.2} and registered["runs"] == 0
        assert f"try 1 of {id}: running" in cli("submit", id, 1).stdout
        site.player.finish()
        assert cli("verdict", id, 1).stdout.startswith(f"try 1 of {id}: improved\nImproved: the mean difference")
        assert "shown" in cli("held-out", id).stdout.split("\n")[2]
        assert "1 of 20" in cli("ls").stdout and "error 0.05" in cli("show", id).stdout
        ledger = cli("ledger", id)
        assert (ledger.exit_code, ledger.stdout.rstrip().split("\n")[-1]) == (
            0, "The ledger follows from the stored results."
        )  # fmt: skip

        with site.database.writing() as connection:
            connection.execute(
                sa.update(results).values(result=sa.func.replace(results.c.result, '"converged"', '"diverged"'))
            )
        ledger = cli("ledger", id)
        assert ledger.exit_code == 1 and "does not follow from what is stored" in ledger.stdout
        assert "try 1" in ledger.stderr

        wrong = cli("try", id, "adapm", "--lr", 2e-3, "--option", "rank_ratio")
        assert wrong.exit_code == 2 and "must be NAME=VALUE" in wrong.stderr
        assert "did you mean adamw?" in cli("try", id, "adamv", "--lr", 2e-3).stderr
        assert len(json.loads(cli("show", id, "--json").stdout)["tries"]) == 1, "a refused try spends no level"
