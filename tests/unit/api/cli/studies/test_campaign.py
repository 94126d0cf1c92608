"""`adapm-bench campaign`: a file from its first try to a claim; what becomes of deleted and cancelled experiments."""

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from api.campaigns import ledger as ledgers
from api.campaigns.campaign import Stage, Step
from api.cli import main
from api.client.client import Client
from orchestrator.kinds.comparison import Candidate
from tests.factories.campaigns import campaign
from tests.factories.serving import served


def test_a_candidate_is_tried_confirmed_and_improved(tmp_path: Path) -> None:
    with served(tmp_path) as site:

        def cli(verb: str, *options: object) -> Result:
            arguments = ["campaign", verb, str(file), *map(str, options), "--url", site.url]
            return CliRunner().invoke(main, arguments, catch_exceptions=False)

        file = tmp_path / "campaign.yaml"  # JSON is YAML
        file.write_text(campaign(try_seeds=2, confirmation_seeds=8).model_dump_json(), encoding="utf-8")
        idea = ("adapm", "--lr", 2e-3, "--option", "rank_ratio=2e-1", "--note", "low rank", "--json")
        first = json.loads(cli("try", *idea).stdout)
        assert first["candidate"]["options"] == {"rank_ratio": 0.2} and first["note"] == "low rank"
        assert (first["number"], first["state"], first["level"]) == (1, None, None)
        assert json.loads(cli("try", *idea).stdout) == first, "the same candidate is tried once"

        site.player.finish()
        confirmed = json.loads(cli("confirm", 1, "--json").stdout)
        assert (confirmed["state"], confirmed["level"]) == ("undecided", 0.025)
        assert len(site.experiments.page()) == 3, "a try, and a confirmation on two workloads"
        site.player.finish()
        ledger = json.loads(cli("ledger", "--json").stdout)
        (improved,) = ledger["confirmations"]
        assert improved["state"] == "improved" and ledger["faults"] == []
        assert [result["difference"]["n"] for result in improved["results"]] == [8, 8]
        assert json.loads(cli("confirm", 1, "--json").stdout) == improved
        assert "confirmation 1" in cli("ledger").stdout

        assert "adamw?" in cli("try", "adamv", "--lr", 2e-3).stderr
        wrong = cli("try", "adapm", "--lr", 2e-3, "--option", "rank_ratio")
        assert wrong.exit_code == 2 and "must be NAME=VALUE" in wrong.stderr
        assert "try 9" in cli("confirm", 9).stderr
        assert len(site.experiments.page()) == 3, "a refused try is none"
        file.write_text('{"name": "no campaign"}', encoding="utf-8")
        assert cli("ledger").exit_code == 2


def test_a_number_is_taken_once_and_a_deleted_or_foreign_experiment_is_named(tmp_path: Path) -> None:
    plan = campaign(held_out=(), try_seeds=2, confirmation_seeds=3)
    with served(tmp_path) as site, Client(site.url) as client:
        for lr in (1e-3, 2e-3):
            ledgers.try_candidate(client, plan, "adapm", lr, {})
        rival = Candidate(optimizer="adapm", learning_rates=(3e-3,))
        step = Step(Stage.CONFIRMATION, 1)
        key = f"{plan.label()}.confirmation.1.0"
        unlabelled = client.submit(plan.comparison(step, rival), key=key).experiment  # by a process that was killed
        assert ledgers.confirm(client, plan, 2).number == 2
        assert ledgers.confirm(client, plan, 1).number == 3
        ledgers.try_candidate(client, plan, "adapm", 3e-3, {})
        assert ledgers.confirm(client, plan, 3).number == 1, "what was killed before its label is found, not repeated"
        assert client.experiment(unlabelled.id).labels == (plan.label(),)
        site.player.finish()

        foreign = client.submit({**plan.comparison(step, rival).model_dump(mode="json"), "name": "mine"}).experiment
        client.cancel_experiment(foreign.id)
        for experiment_id in (unlabelled.id, foreign.id):
            client.add_labels(experiment_id, plan.label())
        deleted = ledgers.read_ledger(client, plan).confirmations[-1]
        client.delete_experiment(deleted.results[0].experiment_id)
        ledger = ledgers.read_ledger(client, plan)
        assert [entry.number for entry in ledger.confirmations] == [1, 2, 3]
        assert ledger.confirmations[-1].state is ledgers.State.UNDECIDED
        assert [fault.split()[1].rstrip(",") for fault in ledger.faults] == [
            deleted.results[0].experiment_id,
            foreign.id,
        ]
        assert ledger.next_level == 0.05 / 20


def test_a_confirmation_with_a_cancelled_run_stays_undecided(tmp_path: Path) -> None:
    plan = campaign(held_out=(), try_seeds=2, confirmation_seeds=6)
    with served(tmp_path) as site, Client(site.url) as client:
        ledgers.try_candidate(client, plan, "adapm", 2e-3, {})
        site.player.finish()
        experiment_id = ledgers.confirm(client, plan, 1).results[0].experiment_id
        client.cancel_run(client.runs(experiment_id=experiment_id)[0].id)
        site.player.finish()
        (entry,) = ledgers.read_ledger(client, plan).confirmations
        assert entry.state is ledgers.State.UNDECIDED and not entry.results[0].complete
        client.retry_experiment(experiment_id)
        site.player.finish()
        (entry,) = ledgers.read_ledger(client, plan).confirmations
        assert entry.state is not ledgers.State.UNDECIDED
