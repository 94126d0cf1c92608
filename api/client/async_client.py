"""The asynchronous client: the same verbs as `Client`, to be awaited.

async with AsyncClient("http://127.0.0.1:8321") as client:
    experiment = (await client.submit(spec)).experiment
    print(await client.compare(experiment.id))

Each call is one of `Client`'s on a thread of this client's own: one description of every request, one way of trying
again, one set of tests. A call is a few milliseconds of waiting for the service; the thread costs microseconds of it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from api.client.client import RETRIES, Client
from api.client.streams import Line, awaited_changes, listener
from orchestrator.jobs import TERMINAL
from orchestrator.records import ExperimentRecord, RunRecord

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

CONCURRENCY = 8
"""Calls of one client that wait for the service at once; others wait for them."""


def _awaited(
    verb: Callable[Concatenate[Client, Arguments], Answer],
) -> "Callable[Concatenate[AsyncClient, Arguments], Coroutine[Any, Any, Answer]]":
    """The verb as a coroutine."""

    @wraps(verb)
    async def call(self: "AsyncClient", /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Answer:
        return await self._call(partial(verb, self._client, *arguments, **named))

    return call


class AsyncClient:
    """Everything that `Client` does, without blocking the event loop; close it, or use it as a context.

    A call that is cancelled is no longer waited for; its request may reach the service all the same, so that a
    submission which matters should have an idempotency key.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout_seconds: float = 30.0,
        retries: int = RETRIES,
        concurrency: int = CONCURRENCY,
    ) -> None:
        """`key`: default is that of the environment, as for `Client`."""
        self._client = Client(url, key=key, timeout_seconds=timeout_seconds, retries=retries)
        self._retries = retries
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="adapm-bench-client")
        self.url = self._client.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._call(self._client.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def watch(self, experiment_id: str, *, pause_seconds: float = 1.0) -> AsyncIterator[ExperimentRecord]:
        """Yield the experiment now and whenever it has changed, until all of its runs have ended; the last one is done.

        A connection that breaks is made again after `pause_seconds`, and goes on after the last change that was told.
        """
        line = Line(experiment_id, retries=self._retries, pause_seconds=pause_seconds)
        async with listener(self._client._http) as http, aclosing(awaited_changes(http, line)) as turns:
            told: ExperimentRecord | None = None
            async for _ in turns:
                now = await self.experiment(experiment_id)
                if now != told:
                    yield now
                if now.counts.done():
                    return
                told = now

    async def watch_run(self, run_id: str, *, pause_seconds: float = 1.0) -> AsyncIterator[RunRecord]:
        """Yield a run now and after every pause, until it has ended; the last one has its result, if there is any."""
        while True:
            run = await self.run(run_id)
            yield run
            if run.status in TERMINAL:
                return
            await asyncio.sleep(pause_seconds)

    health = _awaited(Client.health)
    submit = _awaited(Client.submit)
    validate = _awaited(Client.validate)
    experiments = _awaited(Client.experiments)
    experiment = _awaited(Client.experiment)
    compare = _awaited(Client.compare)
    cells = _awaited(Client.cells)
    comparison_table = _awaited(Client.comparison_table)
    sweep = _awaited(Client.sweep)
    sweep_comparison = _awaited(Client.sweep_comparison)
    profile = _awaited(Client.profile)
    fit = _awaited(Client.fit)
    studies = _awaited(Client.studies)
    study = _awaited(Client.study)
    cancel_experiment = _awaited(Client.cancel_experiment)
    pause_experiment = _awaited(Client.pause_experiment)
    resume_experiment = _awaited(Client.resume_experiment)
    retry_experiment = _awaited(Client.retry_experiment)
    wish_experiment = _awaited(Client.wish_experiment)
    annotate = _awaited(Client.annotate)
    add_labels = _awaited(Client.add_labels)
    remove_labels = _awaited(Client.remove_labels)
    write_note = _awaited(Client.write_note)
    delete_experiment = _awaited(Client.delete_experiment)
    restore_experiment = _awaited(Client.restore_experiment)
    clone_experiment = _awaited(Client.clone_experiment)
    runs = _awaited(Client.runs)
    run = _awaited(Client.run)
    standing = _awaited(Client.standing)
    attempts = _awaited(Client.attempts)
    events = _awaited(Client.events)
    points = _awaited(Client.points)
    observations = _awaited(Client.observations)
    charts = _awaited(Client.charts)
    export = _awaited(Client.export)
    document = _awaited(Client.document)
    figure_names = _awaited(Client.figure_names)
    figure = _awaited(Client.figure)
    log = _awaited(Client.log)
    cancel_run = _awaited(Client.cancel_run)
    pause_run = _awaited(Client.pause_run)
    resume_run = _awaited(Client.resume_run)
    retry_run = _awaited(Client.retry_run)
    wish_run = _awaited(Client.wish_run)
    optimizers = _awaited(Client.optimizers)
    models = _awaited(Client.models)
    datasets = _awaited(Client.datasets)
    create_key = _awaited(Client.create_key)
    api_keys = _awaited(Client.api_keys)
    revoke_key = _awaited(Client.revoke_key)
    audit = _awaited(Client.audit)
    add_webhook = _awaited(Client.add_webhook)
    webhooks = _awaited(Client.webhooks)
    webhook = _awaited(Client.webhook)
    remove_webhook = _awaited(Client.remove_webhook)
    test_webhook = _awaited(Client.test_webhook)
    webhook_deliveries = _awaited(Client.webhook_deliveries)
    dataframe = _awaited(Client.dataframe)
    series_dataframe = _awaited(Client.series_dataframe)
    points_dataframe = _awaited(Client.points_dataframe)

    async def _call(self, verb: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, verb)
