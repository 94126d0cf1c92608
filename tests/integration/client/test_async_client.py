"""The asynchronous client has every verb of the other one; DataFrames hold what records hold; waiting when asked to."""

import asyncio
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from api.client.client import AsyncClient, Client, ClientError
from orchestrator.jobs import RunStatus
from orchestrator.records import Conclusion
from tests.architecture.tree import REPOSITORY
from tests.factories.answering import answering
from tests.factories.stores import batch, claim
from tests.integration.api_service import Service, comparison_fields

DOCUMENT = REPOSITORY / "docs" / "client.md"


def verbs(client: Client | AsyncClient) -> dict[str, Any]:
    return {name: verb for name, verb in inspect.getmembers(client, callable) if not name.startswith("_")}


def test_both_clients_have_the_same_verbs_with_the_same_arguments():
    own, others = verbs(AsyncClient("http://127.0.0.1:1")), verbs(Client("http://127.0.0.1:1"))
    assert own.keys() == others.keys()
    for name, verb in own.items():
        assert inspect.signature(verb) == inspect.signature(others[name]), name
        assert inspect.isasyncgenfunction(verb) if name in ("watch", "watch_run") else inspect.iscoroutinefunction(verb)


def test_awaited_verbs_give_the_records_of_the_service(service: Service):
    async def use() -> None:
        async with AsyncClient(service.url) as client:
            submission = await client.submit(comparison_fields(), key="once")
            experiment = submission.experiment
            assert (await client.submit(comparison_fields(), key="once")).created is False
            assert await client.experiment(experiment.id) == service.experiments.get(experiment.id)
            runs = await client.runs(experiment_id=experiment.id)
            assert await asyncio.gather(*(client.run(run.id) for run in runs)) == list(runs)
            watched = client.watch(experiment.id, pause_seconds=0.01)
            assert not (await anext(watched)).counts.done()
            watched_run = client.watch_run(runs[0].id, pause_seconds=0.01)
            assert (await anext(watched_run)).status is RunStatus.QUEUED
            await client.cancel_experiment(experiment.id)
            assert [now.status async for now in watched_run] == [RunStatus.CANCELLED]
            assert [now.counts.done() async for now in watched] == [True]
            with pytest.raises(ClientError, match="nothing"):
                await client.run("nothing")

    asyncio.run(use())


def test_dataframes_have_a_row_a_run_and_a_row_a_point(service: Service, client: Client):
    experiment = client.submit(comparison_fields()).experiment
    results = client.dataframe(experiment.id)
    assert list(results["id"]) == [run.id for run in client.runs(experiment_id=experiment.id)]
    assert len(client.series_dataframe(experiment.id)) == 0
    (lease,) = claim(service.queue, cpus=1, limit=1)
    service.attempts.hello(lease.run_id, 1, lease.token)
    service.attempts.append_points(lease.run_id, 1, lease.token, batch(0, range(5)))
    points = client.points_dataframe(lease.run_id)
    assert list(points["step"]) == [point.step for point in client.points(lease.run_id)] == list(range(5))
    assert set(client.series_dataframe(client.run(lease.run_id).experiment_id)["run_id"]) == {lease.run_id}
    with pytest.raises(ClientError):
        client.dataframe("nothing")


def test_without_pandas_the_way_out_is_told(client: Client, monkeypatch: pytest.MonkeyPatch):
    experiment = client.submit(comparison_fields()).experiment
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        client.dataframe(experiment.id)


@contextmanager
def busy(refusals: int, status: int, wait: str) -> Iterator[tuple[str, list[str]]]:
    """A server that refuses so many requests, then answers that it is healthy; and the methods that it was asked."""
    methods: list[str] = []

    def answer(method: str, _: str) -> tuple[int, str]:
        methods.append(method)
        return (status if len(methods) <= refusals else 200), '{"status": "ok"}'

    with answering(answer, Retry_After=wait) as url:
        yield url, methods


@pytest.mark.parametrize(("status", "wait", "requests"), [(429, "0", 3), (503, "0", 3), (429, "60", 1), (500, "0", 1)])
def test_a_service_that_asks_to_wait_is_asked_again(status: int, wait: str, requests: int):
    with busy(2, status, wait) as (url, methods), Client(url) as client:
        if requests == 1:
            with pytest.raises(ClientError) as refused:
                client.health()
            assert refused.value.status == status
        else:
            client.health()
        assert methods == ["GET"] * requests


def test_what_may_not_be_repeated_is_sent_once():
    with busy(2, 503, "0") as (url, methods), Client(url) as client:
        with pytest.raises(ClientError):
            client.cancel_run("r")
        assert methods == ["POST"]


def test_the_examples_of_the_document_work(service: Service, client: Client):
    experiment = client.submit(comparison_fields()).experiment
    client.cancel_experiment(experiment.id)
    run = client.runs(experiment_id=experiment.id)[0]
    namespace = {"spec": comparison_fields(), "experiment": experiment, "run": run}
    blocks = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), flags=re.MULTILINE | re.DOTALL)
    for block in blocks:
        exec(block.replace("http://127.0.0.1:8321", service.url), namespace)
    namespace["client"].close()  # type: ignore[attr-defined]
    assert len(blocks) == 7
    assert len(namespace["results"]) == 4  # type: ignore[arg-type]
    assert set(namespace["verdicts"]["conclusion"]) == {Conclusion.NO_LOSS}  # type: ignore[index]
    assert namespace["last"] == run
    assert "/workload" in namespace["refused"]  # type: ignore[operator]
