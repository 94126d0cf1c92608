"""The typed client against the real service: records in and out, one readable error, retries that change nothing."""

from datetime import date
from typing import Any

import numpy
import pytest

from api.client.client import Client, ClientError, InputError
from orchestrator.kinds.comparison import ComparisonSpec
from tests.factories.answering import answering
from tests.integration.api_service import Service, comparison_fields, submitted
from tests.integration.cut_connections import relay


@pytest.mark.parametrize(
    ("model", "fields", "fault"),
    [
        ("gpt2-nothing", {}, "unknown model"),
        ("gpt2-nano", {"ranks": 5}, "5 ranks"),
        ("gpt2-nano", {"ranks": 2, "card_gib": 24}, "one process"),
    ],
)
def test_memory_that_cannot_be_counted_is_refused(client: Client, model: str, fields: dict[str, Any], fault: str):
    with pytest.raises(ClientError, match=fault):
        client.memory(model, **fields)


def test_a_submission_whose_answer_was_lost_is_sent_again_and_made_once(service: Service):
    experiment_count = len(service.experiments.page(limit=1000))
    with relay(service.url) as line, Client(line.url) as client:
        line.lost_answers = 2
        submission = client.submit(comparison_fields(name="once"))
    assert submission.created is False
    assert len(service.experiments.page(limit=1000)) == experiment_count + 1


def test_runs_and_points_are_read_to_the_last_page(service: Service, client: Client, monkeypatch):
    monkeypatch.setattr("api.client.client.PAGE_LIMIT", 3)
    id = submitted(service, seeds=list(range(5)))
    assert client.runs(experiment_id=id) == service.runs.page(experiment_id=id)


def test_a_refused_specification_is_one_error_with_every_fault_in_a_line(client: Client):
    with pytest.raises(ClientError) as refused:
        client.submit(comparison_fields(seeds=[], candidates=[{"optimizer": "x", "learning_rates": [float("nan")]}]))
    assert refused.value.status == 422
    lines = str(refused.value).splitlines()
    assert lines[1] == f'  /candidates/0/optimizer: "x": {refused.value.faults[0].allowed}'
    assert [line.split(": ")[0].strip() for line in lines[2:]] == ["/candidates/0/learning_rates/0", "/seeds"]


@pytest.mark.parametrize("identifier", ["none", "a/b", "..", "?x=1", "ü"])
def test_whatever_is_typed_as_an_id_is_not_found(client: Client, identifier: str):
    with pytest.raises(ClientError) as refused:
        client.experiment(identifier)
    # With a slash it is the address of what is done to an experiment.
    assert refused.value.status == (405 if "/" in identifier else 404)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda client: client.experiment(""), "id is empty"),
        (lambda client: next(client.watch("")), "id is empty"),
        (lambda client: client.submit(None), "not NoneType"),
        (lambda client: client.submit({"name": len}), "builtin_function_or_method"),
    ],
)
def test_what_cannot_be_sent_is_an_error_of_ours_and_no_service_is_asked(call: Any, named: str):
    with Client("http://127.0.0.1:9", retries=0) as client, pytest.raises(InputError) as refused:
        call(client)
    assert named in str(refused.value) and refused.value.status is None


def test_what_holds_itself_cannot_be_sent():
    fields: dict[str, Any] = {}
    fields["a"] = fields
    with Client("http://127.0.0.1:9", retries=0) as client, pytest.raises(InputError, match="Circular"):
        client.submit(fields)


def test_a_single_id_is_one_id(service: Service, client: Client):
    with pytest.raises(ClientError, match="nothing"):
        client.fit("nothing")
    with pytest.raises(ClientError, match="nothing"):
        client.charts("nothing", "train_loss")
    client.add_labels(submitted(service), "whole")
    assert [experiment.labels for experiment in client.experiments(labels="whole")] == [("whole",)]


def test_numbers_of_numpy_are_numbers(client: Client):
    seeds = [numpy.int64(3), numpy.uint8(4)]
    candidates = [{"optimizer": "adamw", "learning_rates": [numpy.float32(0.25), numpy.float64(0.5)]}]
    spec = client.submit(comparison_fields(seeds=seeds, candidates=candidates)).experiment.spec
    assert isinstance(spec, ComparisonSpec)
    assert (spec.seeds, spec.candidates[0].learning_rates) == ((3, 4), (0.25, 0.5))


def test_what_yaml_takes_for_dates_and_numbers_is_sent_as_before(client: Client):
    assert client.submit(comparison_fields(name=date(2026, 1, 2))).experiment.name == "2026-01-02"
    mixed: dict[Any, Any] = {**comparison_fields(), 1: 2}
    with pytest.raises(ClientError) as refused:
        client.submit(mixed)
    assert [fault.pointer for fault in refused.value.faults] == ["/1"]


@pytest.mark.parametrize("url", ["localhost:8321", "http://", ""])
def test_what_is_no_url_is_refused_with_the_way_out(url: str):
    with pytest.raises(ClientError, match=r"http://127\.0\.0\.1:8321"):
        Client(url)


def test_an_answer_of_something_else_is_not_mistaken_for_ours():
    def answer(_: str, path: str) -> tuple[int, str]:
        return (200 if path == "/v1/runs/one" else 418), "<html>hello</html>"

    with answering(answer) as url, Client(url) as client:
        with pytest.raises(ClientError, match="cannot read the answer"):
            client.run("one")
        with pytest.raises(ClientError, match="answered 418"):
            client.run("two")
