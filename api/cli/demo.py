"""`adapm-bench demo`: the main job, end to end: start the service, submit the built-in comparison, watch, compare.

It goes on where an interrupted one ended, and shows the stored answer where one is complete.
"""

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Annotated, Never

import typer

from api.cli.console import complain, console, print_json, told_beside
from api.cli.follow import follow
from api.cli.own_service import service
from api.cli.service import FAILED, Json, fail
from api.cli.tables import comparison_table
from api.cli.up import Data, Port, Slots, read_settings
from api.client import Client, ClientError
from orchestrator.errors import OrchestratorError
from orchestrator.jobs import RunStatus
from orchestrator.records import Comparison, ExperimentRecord
from orchestrator.studies.demo import DEMO

Fresh = Annotated[bool, typer.Option("--fresh", help="Run it again although its results are in the data folder.")]


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(demo)


def demo(data: Data = None, port: Port = None, slots: Slots = None, fresh: Fresh = False, json: Json = False) -> None:
    """Compare AdaPM, AdaPM-mini and AdamW on a tiny GPT-2 and real text, end to end, in minutes on a CPU."""
    with told_beside(as_json=json):
        experiment, comparison = _run(data, port, slots, fresh)
        if not json:
            _say_what_next(experiment)
    if json:
        print_json({"experiment": experiment, "comparison": comparison})
    if experiment.counts.by_status.get(RunStatus.SUCCEEDED, 0) < experiment.counts.total:
        complain("not every run succeeded; `adapm-bench show` says why, --fresh runs the comparison again")
        raise typer.Exit(FAILED)


def _run(data: Data, port: Port, slots: Slots, fresh: bool) -> tuple[ExperimentRecord, Comparison]:
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


def _say_what_next(experiment: ExperimentRecord) -> None:
    out = console()
    out.print("\nNext, on these results:")
    for command, purpose in (
        ("make up", "the service and its dashboard"),
        (f"adapm-bench compare {experiment.id} --json", "the figures for a script (while the service is up)"),
        (f"adapm-bench ls --experiment {experiment.id}", "every run"),
        ("adapm-bench optimizers", "what else can be compared, with its options"),
        ("adapm-bench submit my.yaml", "your own comparison; docs/specs.md has one to start from"),
    ):
        out.print(f"  {command:<44} {purpose}")


def _interrupt(_number: int, _frame: FrameType | None) -> Never:
    raise KeyboardInterrupt
