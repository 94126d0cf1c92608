"""The demo itself: a service, the built-in comparison submitted or found, followed to its end, and its answer."""

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Never

import typer

from api.cli.console import complain, console
from api.cli.follow import follow
from api.cli.own_service import service
from api.cli.service import FAILED, fail
from api.cli.tables import comparison_table
from api.cli.up import Data, Port, Slots, read_settings
from api.client import Client, ClientError
from orchestrator.errors import OrchestratorError
from orchestrator.records import Comparison, ExperimentRecord
from orchestrator.studies.demo import DEMO


def run(data: Data, port: Port, slots: Slots, fresh: bool) -> tuple[ExperimentRecord, Comparison]:
    """The experiment at its end, and its answer."""
    settings = read_settings(data=data, port=port, slots=slots)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with service(settings, port_given=port is not None) as (url, check):
            return _compare(url, fresh, check)
    except ClientError as error:
        fail(error)
    except OrchestratorError as error:
        complain(f"error: {error}")
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt:
        print("stopped. What was trained is kept; the same command goes on from there.", flush=True)
        raise typer.Exit(130) from None


def _compare(url: str, fresh: bool, check: Callable[[], None]) -> tuple[ExperimentRecord, Comparison]:
    """Submit the built-in comparison (or find it), follow it to its end, and print its answer."""
    key = f"demo-{DEMO.content_hash()[:16]}" + (f"-{time.time_ns()}" if fresh else "")
    with Client(url, retries=4) as client:
        submission = client.submit(DEMO, key=key)
        experiment = submission.experiment
        _announce(url, experiment, created=submission.created)
        if not experiment.counts.done():
            experiment = follow(client, experiment.id, check)
        comparison = client.compare(experiment.id)
    out = console()
    out.print()
    out.print(comparison_table(comparison))
    return experiment, comparison


def _announce(url: str, experiment: ExperimentRecord, *, created: bool) -> None:
    counts = experiment.counts
    if created:
        grid = f"{len(DEMO.candidates)} optimizers × {len(DEMO.seeds)} seeds × {len(DEMO.candidates[0].learning_rates)}"
        print(f"submitted {experiment.id}: {grid} learning rates = {counts.total} runs")
    elif counts.done():
        print(f"{experiment.id} is complete from an earlier call (--fresh runs it again)")
    else:
        print(f"going on with {experiment.id}: {counts.ended()} of {counts.total} runs are done")
    print(f"dashboard: {url}/experiments/{experiment.id}", flush=True)


def _interrupt(_number: int, _frame: FrameType | None) -> Never:
    raise KeyboardInterrupt
