"""`adapm-bench watch ID`: follow an experiment to its end."""

from typing import Annotated

import typer

from api.cli.console import complain, plain, print_json
from api.cli.experiments.show import Id
from api.cli.service import FAILED, INTERRUPTED, Json, Url, open_client
from orchestrator.jobs import RunStatus

UNHAPPY = (RunStatus.FAILED, RunStatus.CANCELLED)
SHOWN = 5
"""Runs without a result that are named at the end."""


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    app.command()(watch)
    app.command()(logs)


def watch(id: Id, url: Url = None, json: Json = False) -> None:
    """Show progress until every run has ended; exit code 0 if all of them succeeded. Ctrl-C stops the watching only."""
    from api.cli.experiments.follow import follow

    try:
        with open_client(url, retries=4) as client:
            experiment = list(client.watch(id))[-1] if json else follow(client, id)
            unhappy = [] if json else [run for run in client.runs(experiment_id=id) if run.status in UNHAPPY]
    except KeyboardInterrupt:
        complain(f"the runs go on; `adapm-bench cancel {id}` would stop them")
        raise typer.Exit(INTERRUPTED) from None
    if json:
        print_json(experiment)
    else:
        for run in unhappy[:SHOWN]:
            complain(f"{run.id} {run.state_word()}: {plain(run.reason or 'no reason was given')}")
        if len(unhappy) > SHOWN:
            complain(f"and {len(unhappy) - SHOWN} more; adapm-bench ls --experiment {experiment.id} lists all")
        print(f"ended; next: adapm-bench {experiment.spec.answer_verb} {experiment.id}")
    if experiment.counts.by_status.get(RunStatus.SUCCEEDED, 0) < experiment.counts.total:
        raise typer.Exit(FAILED)


# `adapm-bench logs RUN`: what a run's process printed, the newest attempt's first of all.

RunId = Annotated[str, typer.Argument(help="A run's id, or its beginning.", metavar="RUN")]
Attempt = Annotated[int | None, typer.Option(min=1, help="Which attempt; default: the newest.")]
Lines = Annotated[int, typer.Option("--tail", min=1, help="How many lines from the end.")]

LINE_BYTES = 400
"""So long a line may be on average, tracebacks included."""


def logs(run: RunId, attempt: Attempt = None, tail: Lines = 100, url: Url = None, json: Json = False) -> None:
    """Show the end of what an attempt of a run printed."""
    with open_client(url) as client:
        record = client.run(run)
        run, newest = record.id, record.attempt
        if newest == 0:
            complain(f"run {run} has not begun: nothing was printed yet")
            raise typer.Exit(FAILED)
        text = client.log(run, attempt or newest, tail_bytes=min(tail * LINE_BYTES, 2**22))
    lines = text.splitlines()[-tail:]
    if json:
        print_json({"run": run, "attempt": attempt or newest, "lines": lines})
        return
    for line in lines:
        print(plain(line))
