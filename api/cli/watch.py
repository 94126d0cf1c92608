"""`adapm-bench watch ID`: follow an experiment to its end."""

import typer

from api.cli.console import complain, plain, print_json
from api.cli.look import Id
from api.cli.service import FAILED, INTERRUPTED, Json, Url, connected
from orchestrator.jobs import RunStatus

UNHAPPY = (RunStatus.FAILED, RunStatus.CANCELLED)
SHOWN = 5
"""Runs without a result that are named at the end."""


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(watch)


def watch(id: Id, url: Url = None, json: Json = False) -> None:
    """Show progress until every run has ended; exit code 0 if all of them succeeded. Ctrl-C stops the watching only."""
    from api.cli.follow import follow

    try:
        with connected(url, retries=4) as client:
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
        verb = "sweep show" if experiment.kind == "sweep" else "compare"
        print(f"ended; next: adapm-bench {verb} {experiment.id}")
    if experiment.counts.by_status.get(RunStatus.SUCCEEDED, 0) < experiment.counts.total:
        raise typer.Exit(FAILED)
