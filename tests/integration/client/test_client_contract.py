"""The client's contract with the service: each verb asks for an operation of the OpenAPI document, with parameters that
it knows, and reads what the real service answers."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.client.client import Client
from orchestrator.external_runs import LinesBatch
from orchestrator.jobs import RunAction
from orchestrator.keys import KeyRequest, Scope
from orchestrator.webhooks.policy import WebhookPolicy
from orchestrator.webhooks.records import WebhookRequest
from tests.factories.openapi import operations
from tests.factories.scaling import scaling_fields
from tests.factories.serving import Site, served
from tests.factories.sweep import add_trials, sweep_fields, sweep_spec
from tests.integration.api_service import comparison_fields
from worker.reporting.log import log_path

OTHER_VERBS = frozenset({"watch", "watch_run", "dataframe", "series_dataframe", "points_dataframe"})
"""They are made of the others."""
NOT_FOR_THE_CLIENT = {
    *(f"POST /v1/attempts/{{run_id}}/{{attempt}}/{verb}" for verb in ("hello", "heartbeat", "points", "checkpoint")),
    *(f"POST /v1/attempts/{{run_id}}/{{attempt}}/{verb}" for verb in ("finish", "stopped", "fail")),
    "GET /v1/experiments/{experiment_id}/stream",  # `watch` asks again and again
    "GET /v1/runs/{run_id}/exports/{name}",  # `points_dataframe` has the same
    "GET /metrics",
}
TRANSPORT_HEADERS = {"accept", "accept-encoding", "connection", "user-agent", "host", "content-length", "content-type"}


class Requests:
    """The operations that a client asked for, each request checked against the document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.routes: set[str] = set()
        self._operations = [
            (route, re.compile(re.sub(r"\{\w+\}", "[^/]+", route.replace(".", r"\."))), operation)
            for route, operation in sorted(operations(document), key=lambda item: "{" in item[0])
        ]

    def check(self, request: httpx2.Request) -> None:
        """Note the operation of a request. Fails where the document has none, or not with such parameters."""
        call = f"{request.method} {request.url.path}"
        route, operation = next((route, op) for route, pattern, op in self._operations if pattern.fullmatch(call))
        parameter_names = {parameter["name"].lower() for parameter in operation.get("parameters", ())}
        assert set(request.url.params) <= parameter_names, route
        assert set(request.headers) - TRANSPORT_HEADERS <= parameter_names | {"authorization"}, route
        self.routes.add(route)


class NotedClient(Client):
    """A client that notes which of its verbs were called."""

    verbs: set[str]

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name != "verbs":
            self.verbs.add(name)
        return super().__getattribute__(name)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with served(tmp_path_factory.mktemp("contract")) as running:
        running.webhooks.policy = WebhookPolicy.parse("https://hooks.example.org/", "")
        yield running


def test_every_verb_asks_for_what_the_document_has_and_reads_what_the_service_answers(site: Site, tmp_path: Path):
    document = httpx2.get(f"{site.url}/v1/openapi.json", timeout=120).json()
    requests = Requests(document)
    NotedClient.verbs = set()
    with NotedClient(site.url) as client:
        client._http.event_hooks = {"request": [requests.check]}
        comparison = trained_comparison(client, site, tmp_path)
        curation(client, comparison, tmp_path)
        scaling_and_sweep(client, site)
        external_runs(client)
        administration(client)
    public = {name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    assert public - NotedClient.verbs == OTHER_VERBS
    assert {route for route, _ in operations(document)} - requests.routes == NOT_FOR_THE_CLIENT


def trained_comparison(client: Client, site: Site, folder: Path) -> str:
    """A comparison from its submission to its figures; its id."""
    fields = comparison_fields(seeds=[1, 2, 3])
    fields["workload"] |= {"probes": {"kinds": ["gradient-sparsity"], "every_steps": 5}}
    fields["workload"]["evaluation"] = {"every_steps": 5, "samples": {"prompts": ["def "], "tokens": 16}}
    assert client.validate(fields).faults == ()
    experiment_id = client.submit(fields).experiment.id
    first, last = f"{experiment_id}-0000", f"{experiment_id}-0005"
    assert client.standing(last)
    for verb in ("pause", "resume", "cancel", "retry"):
        getattr(client, f"{verb}_run")(last)
        getattr(client, f"{verb}_experiment")(experiment_id)
    client.apply_to_run(last, RunAction.PAUSE)
    client.apply_to_experiment(experiment_id, RunAction.RESUME)
    log = log_path(site.storage.runs_folder() / first, 1)
    log.parent.mkdir(parents=True)
    log.write_text("step 5 of 10: loss 2.9314\n")
    site.player.finish()
    assert client.experiment(experiment_id).counts.total == len(client.runs(experiment_id=experiment_id)) == 6
    assert client.run(first).id == first
    for read in (client.points, client.observations, client.samples, client.events, client.attempts, client.files):
        assert read(first), read
    assert client.log(first, 1).startswith("step 5")
    client.file(first, "attempt-1.log", folder / "log")
    assert client.charts([first], "train_loss")
    assert client.run_table(columns=["lr", "val_loss"])
    return experiment_id


def curation(client: Client, experiment_id: str, folder: Path) -> None:
    """Read an ended comparison, and curate it."""
    client.annotate(experiment_id, {"labels": ["paper"]})
    client.add_labels(experiment_id, "tiny")
    client.remove_labels(experiment_id, "paper")
    assert client.write_note(experiment_id, "The first look.").labels == ("tiny",)
    assert client.compare(experiment_id)
    assert client.comparison_table(experiment_id, "csv") and client.profile([experiment_id])
    for name in ("report", "document.json", "references.bib"):
        assert client.document(experiment_id, name)
    assert client.figure(experiment_id, client.figure_names(experiment_id)[0], "csv")
    client.export(experiment_id, "results.csv", folder / "results.csv")
    assert client.experiments()[0].id == experiment_id
    clone = client.clone_experiment(experiment_id, "Once more").experiment.id
    client.cancel_experiment(clone)
    client.delete_experiment(clone)
    client.restore_experiment(clone)


def scaling_and_sweep(client: Client, site: Site) -> None:
    """A law, a sweep, and what several experiments say together."""
    law = client.submit(scaling_fields(seeds=[1, 2, 3])).experiment.id
    site.player.finish()
    assert client.cells(law) and client.fit([law])
    sweep, sweep_id = sweep_spec(), client.submit(sweep_fields()).experiment.id
    add_trials(site.database, sweep_id, sweep)
    site.player.finish()
    assert client.sweep(sweep_id) and client.sweep_comparison(sweep_id)
    assert client.study(client.studies()[0].name)


def external_runs(client: Client) -> None:
    """Two candidates that somebody trained with a loop of their own, over three seeds."""
    for candidate, gain in (("muon", 0.05), ("adamw", 0.0)):
        for seed in (1, 2, 3):
            run = {"experiment": "Muon against AdamW", "candidate": candidate, "lr": 0.002, "seed": seed}
            lines: list[dict[str, Any]] = [
                {"at": 1.0, "state": "running"},
                {"at": 2.0, "step": 100, "metrics": {"val_loss": 3.2 + seed / 100 - gain * (1 + seed / 50)}},
                {"at": 3.0, "state": "finished"},
            ]
            batch = LinesBatch.model_validate({"run": run, "part": "first", "lines": lines})
            assert client.send_lines(f"{candidate}-{seed}", batch).lines == 3
    experiment_id = client.external_experiments()[0].id
    client.label_external_experiment(experiment_id, add=["paper"])
    assert client.external_experiment(experiment_id).labels == ("paper",)
    assert len(client.external_runs(experiment_id)) == 6
    assert client.judge(experiment_id, baseline="adamw")
    assert client.external_run("muon-1").candidate == "muon" and client.external_series("muon-1")
    client.delete_external_run("adamw-3")
    client.delete_external_experiment(experiment_id)


def administration(client: Client) -> None:
    """Catalogs, webhooks; a key last, because the service is closed from then on."""
    assert client.optimizers() and client.models() and client.datasets() and client.health()
    assert client.memory("gpt2-nano", ranks=2) and client.block_plan("gpt2-nano")
    webhook = client.add_webhook(WebhookRequest(url="https://hooks.example.org/bench")).webhook.id
    assert client.test_webhook(webhook) and client.webhook_deliveries(webhook)
    assert client.webhooks()[0].id == client.remove_webhook(webhook).id
    new_key = client.create_key(KeyRequest(label="CI", scope=Scope.ADMIN))
    client._http.headers["Authorization"] = f"Bearer {new_key.secret}"
    assert client.audit() and not client.audit(key_id=new_key.key.id)
    assert client.api_keys()[0].id == client.revoke_key(new_key.key.id).id
