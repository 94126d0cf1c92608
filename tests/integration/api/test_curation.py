"""Labels, notes, delete with undo and clones: over REST, with both clients and by the command line."""

import json
import math
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from typer.testing import Result as Printed

from api.client.client import Client, ClientError
from orchestrator.jobs import RunAction
from tests.factories.stores import result
from tests.integration.api_service import Service, comparison_fields, end_all, submitted
from worker.records.result import Result
from worker.spec.run import RunSpec

Cli = Callable[..., Printed]


@pytest.fixture
def cancelled(service: Service) -> str:
    """The id of an experiment that has ended."""
    experiment_id = submitted(service)
    service.experiments.apply(experiment_id, RunAction.CANCEL)
    return experiment_id


def test_labels_and_note_are_changed_under_the_tag_that_was_read(http: httpx2.Client, service: Service) -> None:
    path = f"/v1/experiments/{submitted(service)}"
    tag = http.get(path).headers["ETag"]
    assert tag == '"0"'
    changed = http.patch(path, json={"labels": ["paper"], "note": "one\r\ntwo"}, headers={"If-Match": tag})
    assert (changed.status_code, changed.headers["ETag"]) == (200, '"1"')
    assert (changed.json()["labels"], changed.json()["note"]["text"]) == (["paper"], "one\ntwo")
    lost = http.patch(path, json={"labels": ["other"]}, headers={"If-Match": tag})
    assert (lost.status_code, lost.json()["type"]) == (412, "urn:adapm-bench:problem:changed-meanwhile")
    as_a_proxy_writes_it = {"If-Match": 'W/"1"'}
    assert http.patch(path, json={"labels": []}, headers=as_a_proxy_writes_it).json()["labels"] == []
    unconditional = http.patch(path, json={"note": None})
    assert (unconditional.json()["note"], unconditional.headers["ETag"]) == (None, '"3"')
    assert http.patch(path, json={"labels": ["any"]}, headers={"If-Match": "*"}).json()["labels"] == ["any"]


@pytest.mark.parametrize(
    ("body", "headers", "pointer"),
    [
        ({"labels": ["a,b"]}, {}, "/labels/0"),
        ({"labels": ["x" * 61]}, {}, "/labels/0"),
        ({"labels": ["\u202eevil"]}, {}, "/labels/0"),
        ({"labels": [" "]}, {}, "/labels/0"),
        ({"labels": [f"{number}" for number in range(21)]}, {}, "/labels"),
        ({"note": "\x1b[31m"}, {}, "/note"),
        ({"note": "x" * 10_001}, {}, "/note"),
        ({"name": "another"}, {}, "/name"),
        ({}, {"If-Match": 'V/"0"'}, "/if-match"),
    ],
)
def test_what_is_no_label_and_no_note_is_refused_by_its_place(
    http: httpx2.Client, service: Service, body: dict[str, Any], headers: dict[str, str], pointer: str
) -> None:
    path = f"/v1/experiments/{submitted(service)}"
    answer = http.patch(path, json=body, headers=headers)
    assert answer.status_code == 422
    assert [fault["pointer"].lower() for fault in answer.json()["errors"]] == [pointer]
    assert http.get(path).json()["revision"] == 0


def test_a_deletion_is_refused_done_seen_and_undone(http: httpx2.Client, service: Service) -> None:
    experiment_id = submitted(service)
    path = f"/v1/experiments/{experiment_id}"
    refused = http.delete(path)
    assert (refused.status_code, "cancel" in refused.json()["detail"]) == (409, True)
    http.post(f"{path}/cancel")
    deleted = http.delete(path).json()
    assert deleted["undo_until"] == pytest.approx(deleted["deleted_at"] + 7 * 86_400)
    refusal = http.get(path)
    assert (refusal.status_code, refusal.json()["type"]) == (404, "urn:adapm-bench:problem:deleted")
    for resource in ("comparison", "document.json", "report", "exports/results.csv", "figures/curves.svg", "stream"):
        assert http.get(f"{path}/{resource}").status_code == 404
    assert http.get(f"/v1/runs/{experiment_id}-0000").status_code == 404
    assert http.post(f"/v1/runs/{experiment_id}-0000/retry").status_code == 404
    assert experiment_id in [
        experiment["id"] for experiment in http.get("/v1/experiments?deleted=true").json()["items"]
    ]
    assert experiment_id not in http.get("/v1/experiments").text
    assert http.post(f"{path}/restore").json()["deleted_at"] is None
    assert http.get(path).status_code == 200
    entries = [(line.action, line.outcome) for line in service.audit.page(limit=3)]
    assert entries[0] == ("POST /v1/experiments/{experiment_id}/restore", 200)
    assert ("DELETE /v1/experiments/{experiment_id}", 200) in entries


def test_a_clone_is_made_once_for_each_key(http: httpx2.Client, service: Service) -> None:
    experiment_id = submitted(service)
    path, key = f"/v1/experiments/{experiment_id}/clone", {"Idempotency-Key": f"clone-of-{experiment_id}"}
    creation = http.post(path, json={"name": "again"}, headers=key)
    repeat = http.post(path, json={"name": "again"}, headers=key)
    assert (creation.status_code, repeat.status_code) == (201, 200)
    clone = creation.json()["experiment"]
    assert repeat.json()["experiment"]["id"] == clone["id"]
    assert creation.headers["Location"] == f"/v1/experiments/{clone['id']}"
    assert (clone["name"], clone["cloned_from"], clone["counts"]["total"]) == ("again", experiment_id, 4)
    conflict = http.post(path, json={"name": "a third one"}, headers=key)
    assert (conflict.status_code, conflict.json()["type"]) == (409, "urn:adapm-bench:problem:idempotency-key-reused")
    assert http.post(path).json()["experiment"]["name"] == "small"
    assert http.post(path, json={"name": "two\nlines"}).status_code == 422
    provenance = http.get(f"/v1/experiments/{clone['id']}/document.json").json()["provenance"]
    assert provenance["cloned_from"] == experiment_id


def played(spec: RunSpec) -> Result:
    """Return a result by which 0.002 is the best rate of all, and AdamW's seeds are the better ones."""
    slope = 0.01 * (1 + (spec.optimizer.name == "adapm"))
    return result(final_val_loss=3.0 + math.log2(spec.optimizer.lr / 0.002) ** 2 + slope * spec.seed)


def test_more_seeds_train_each_candidate_at_its_judged_setting(http: httpx2.Client, service: Service, cli: Cli) -> None:
    """Without another tuning, once the settings are known; by REST, command line and page. The verdict is about these
    seeds alone."""
    fields = comparison_fields(
        candidates=[{"optimizer": name, "learning_rates": [0.002]} for name in ("adamw", "adapm")],
        tuning={"seeds": [7], "trials": 5},
        seeds=[1, 2],
    )
    experiment_id = http.post("/v1/experiments", json=fields).json()["experiment"]["id"]
    path = f"/experiments/{experiment_id}/clone"
    wanted = {"fresh_seeds": 2, "keep_rates": True}
    early = http.post(f"/v1{path}", json=wanted)
    assert early.status_code == 409
    end_all(service, played)
    clone = http.post(f"/v1{path}", json=wanted).json()["experiment"]
    assert [candidate["learning_rates"] for candidate in clone["spec"]["candidates"]] == [[0.002], [0.002]]
    assert (clone["spec"]["seeds"], clone["spec"]["tuning"], clone["counts"]["total"]) == ([8, 9], None, 4)
    end_all(service, played)
    answer = http.get(f"/v1/experiments/{clone['id']}/comparison").json()
    assert {row["difference"]["n"] for row in answer["rows"] if row["difference"]} == {2}
    assert f'href="{path}?more_seeds=2"' in http.get(f"/experiments/{experiment_id}").text
    form = http.get(path, params={"more_seeds": "2"}).text
    assert 'name="more_seeds" value="2"' in form
    shown = json.loads(cli("clone", experiment_id, "--more-seeds", "2", "--json").stdout)["experiment"]
    assert shown["spec"] == clone["spec"] | {"seeds": [10, 11]}
    assert "with 5 seeds" in cli("clone", experiment_id, "--more-seeds", "5").stdout
    page = http.post(path, data={"nonce": "c", "more_seeds": "2"})
    assert http.get(f"/v1{page.headers['Location']}").json()["spec"] == clone["spec"] | {"seeds": [17, 18]}
    refused = http.post(path, data={"nonce": "d", "more_seeds": "many"})
    assert (refused.status_code, "1 to 256" in refused.text) == (422, True)
    rate_refusal = http.post(f"/v1{path}", json={"keep_rates": True})
    assert (rate_refusal.status_code, "needs fresh_seeds" in rate_refusal.text) == (409, True)


def test_a_grid_is_cloned_as_it_stands(http: httpx2.Client, service: Service) -> None:
    """A whole specification has the default of `trials`, which a grid does not ask for."""
    rates = [0.001, 0.002, 0.004]
    fields = comparison_fields(
        candidates=[{"optimizer": name, "learning_rates": rates} for name in ("adamw", "adapm")],
        tuning={"seeds": [7], "method": "grid"},
    )
    source = http.post("/v1/experiments", json=fields).json()["experiment"]
    answer = http.post(f"/v1/experiments/{source['id']}/clone", json={})
    assert (answer.status_code, answer.json()["experiment"]["spec"]) == (201, source["spec"])
    refused = http.post("/v1/experiments", json=fields | {"tuning": {"seeds": [7], "method": "grid", "trials": 5}})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/tuning/trials")


def test_the_client_adds_and_removes_labels_whoever_else_edits(client: Client, cancelled: str) -> None:
    assert client.add_labels(cancelled, "b", "a").labels == ("a", "b")
    annotate = client.annotate
    overtaken: list[Any] = []

    def annotate_second(experiment_id: str, change: Any, *, revision: int | None = None) -> Any:
        if not overtaken:
            their_change = {"labels": [*client.experiment(experiment_id).labels, "theirs"]}
            overtaken.append(annotate(experiment_id, their_change))
        return annotate(experiment_id, change, revision=revision)

    client.annotate = annotate_second  # type: ignore[method-assign]
    assert client.add_labels(cancelled, "mine").labels == ("a", "b", "mine", "theirs")
    assert client.remove_labels(cancelled, "a", " b ", "nothing").labels == ("mine", "theirs")
    with pytest.raises(ClientError) as refused:
        client.annotate(cancelled, {"note": "late"}, revision=0)
    assert refused.value.status == 412
    noted = client.write_note(cancelled, "words").note
    assert noted is not None and noted.text == "words"
    assert client.experiments(labels=["mine", "theirs"])[0].id == cancelled


def test_the_command_line_labels_and_notes(cli: Cli, cancelled: str) -> None:
    added = cli("edit", cancelled, "--label", "second try", "--label", "cli")
    assert added.stdout == f"experiment {cancelled}: cli, second try\n"
    assert cli("edit", cancelled, "--unlabel", "second try").stdout == f"experiment {cancelled}: cli\n"
    assert cancelled in cli("ls", "--label", "cli").stdout
    assert cancelled not in cli("ls", "--label", "cli", "--label", "none").stdout
    refused = cli("edit", cancelled, "--label", "a,b")
    assert (refused.exit_code, "comma" in refused.stderr) == (2, True)
    assert cli("edit", cancelled).exit_code == 2
    cli("edit", cancelled, "--note", "what we saw\nand why")
    assert "\nwhat we saw\nand why\n" in cli("show", cancelled).stdout
    answer = json.loads(cli("edit", cancelled, "--note", "another", "--json").stdout)
    assert (answer["note"]["text"], answer["labels"]) == ("another", ["cli"])
    for empty in ("", " "):
        refused = cli("edit", cancelled, "--note", empty)
        assert (refused.exit_code, refused.stdout, "--clear-note" in refused.stderr) == (2, "", True)
    view = cli("show", cancelled).stdout
    assert "labels            cli" in view and "\nanother\n" in view
    assert cli("edit", cancelled, "--note", "x", "--clear-note").exit_code == 2
    assert cli("edit", cancelled, "--clear-note").exit_code == 0
    assert "another" not in cli("show", cancelled).stdout


def test_the_command_line_deletes_restores_and_clones(cli: Cli, service: Service, cancelled: str) -> None:
    unasked = cli("delete", cancelled)
    assert (unasked.exit_code, "give --yes" in unasked.stderr) == (2, True)
    active = cli("delete", submitted(service), "--yes")
    assert (active.exit_code, "cancel" in active.stderr) == (1, True)
    assert f"adapm-bench delete {cancelled} --undo" in cli("delete", cancelled, "--yes").stdout
    assert cancelled in cli("ls", "--deleted").stdout
    assert "was deleted" in cli("show", cancelled).stderr
    assert cli("delete", cancelled, "--undo").stdout == f"experiment {cancelled}: 4: 4 cancelled\n"
    receipt = json.loads(cli("clone", cancelled, "--name", "named", "--json").stdout)
    assert (receipt["experiment"]["name"], receipt["experiment"]["cloned_from"]) == ("named", cancelled)
    assert cli("clone", cancelled).stdout.startswith("submitted ")
    assert f"clone of          {cancelled}" in cli("show", receipt["experiment"]["id"]).stdout
    assert json.loads(cli("delete", cancelled, "--yes", "--json").stdout)["deleted_at"] > 0
