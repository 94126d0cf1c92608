"""Sweeps over REST and by the command line: submitted, shown, compared, and refused in sentences."""

import json
import re
from collections.abc import Callable

import pytest
from typer.testing import Result

from api.client.client import Client, ClientError
from orchestrator.store.queue import trials
from tests.architecture.tree import REPOSITORY
from tests.factories.stores import claim, result
from tests.factories.sweep import add_trial, sweep_spec
from tests.integration.api_service import Service

DOCS = REPOSITORY / "docs"


@pytest.fixture(scope="module")
def swept(service: Service) -> str:
    """A sweep of four trials that has ended: AdaPM's second one is the best."""
    spec = sweep_spec()
    sweep_id = service.experiments.submit(spec).experiment.id
    database = service.database
    for number, loss in enumerate((2.7, 2.6, 2.8, 2.5)):
        add_trial(database, sweep_id, spec, number)
        (lease,) = claim(service.queue, cpus=1, limit=1)
        service.attempts.hello(lease.run_id, 1, lease.token)
        service.attempts.finish(lease.run_id, 1, lease.token, result(final_val_loss=loss))
    trials.close(database, sweep_id)
    return sweep_id


def test_other_kinds_are_refused_in_sentences(client: Client, swept: str) -> None:
    with pytest.raises(ClientError, match="is a sweep") as refusal:
        client.compare(swept)
    assert refusal.value.status == 409
    comparison = client.submit(client.sweep_comparison(swept)).experiment.id
    with pytest.raises(ClientError, match="is a comparison"):
        client.sweep(comparison)


def test_the_command_line_shows_a_sweep(cli: Callable[..., Result], swept: str) -> None:
    shown = cli("compare", swept)
    assert shown.exit_code == 0 and "4 of 4" in shown.output and "2.5000" in shown.output
    assert "4 trials" in cli("show", swept).output
    assert json.loads(cli("compare", swept, "--json").output)["experiment_id"] == swept


def test_the_command_line_compares_the_best_once(cli: Callable[..., Result], swept: str) -> None:
    first = cli("clone", swept, "--more-seeds", "2").output
    assert first.startswith("submitted ") and "4 runs" in first
    repeat = cli("clone", swept, "--more-seeds", "2")
    assert repeat.exit_code == 0 and repeat.output.startswith("was already submitted: ")
    id = repeat.output.split(":")[1].split()[0]
    assert id in first and "(4 queued)" in repeat.output and f"adapm-bench watch {id}" in repeat.output
    assert cli("cancel", id).exit_code == 0
    output = cli("clone", swept, "--more-seeds", "2").output
    assert "(4 cancelled)" in output and f"adapm-bench retry {id}" in output
    clone = json.loads(cli("clone", swept, "--more-seeds", "3", "--name", "the best", "--json").output)["experiment"]
    assert (clone["name"], clone["spec"]["seeds"]) == ("the best", [1, 2, 3])


@pytest.mark.parametrize("document", ["sweeps.md", "index.md"])
def test_the_client_does_what_the_documents_show(service: Service, client: Client, swept: str, document: str) -> None:
    compared = client.submit(client.sweep_comparison(swept, seeds=2)).experiment.id
    (code,) = re.findall(r"^```python\n(.*?)^```", (DOCS / document).read_text(), flags=re.MULTILINE | re.DOTALL)
    code = code.replace("http://127.0.0.1:8321", service.url).replace('"ID"', f'"{compared}"')
    names: dict[str, object] = {"sweep_id": swept}
    exec(compile(code, document, "exec"), names)  # the document's own code
    if document == "index.md":
        assert names["answer"] == client.compare(compared)
    else:
        assert len(client.experiments()) > 1 and client.experiments()[0].id != compared
