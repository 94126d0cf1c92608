"""The reading verbs: `ls`, `show`, `compare`."""

from typing import Annotated

import typer

from api.cli.console import console, print_json
from api.cli.service import Json, Url, connected
from orchestrator.jobs import RunStatus

Id = Annotated[str, typer.Argument(help="An experiment's id.", metavar="ID")]
AnyId = Annotated[str, typer.Argument(help="The id of an experiment or of a run.", metavar="ID")]
Limit = Annotated[
    int | None, typer.Option(min=1, max=1000, help="How many at most; default: 20 experiments, all runs.")
]
Experiment = Annotated[str | None, typer.Option("--experiment", help="List the runs of this experiment.")]
Status = Annotated[RunStatus | None, typer.Option("--status", help="List the runs in this state.")]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    app.command()(ls)
    app.command()(show)
    app.command()(compare)


def ls(
    experiment: Experiment = None, status: Status = None, limit: Limit = None, url: Url = None, json: Json = False
) -> None:
    """List experiments, newest first; with --experiment or --status, runs."""
    from api.cli.listings import experiments_table, runs_table

    with connected(url) as client:
        if experiment is not None or status is not None:
            if experiment is not None:
                client.experiment(experiment)  # an id that does not exist is an error, not an empty list
            runs = client.runs(experiment_id=experiment, status=status)[:limit]
            print_json(runs) if json else console().print(runs_table(runs))
        else:
            experiments = client.experiments(limit=limit or 20)
            print_json(experiments) if json else console().print(experiments_table(experiments))


def show(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Show an experiment with its runs, or a run with its result and history."""
    from api.cli.listings import experiment_view, run_view
    from api.client import ClientError

    with connected(url) as client:
        try:
            experiment = client.experiment(id)
        except ClientError as error:
            if error.status != 404:
                raise
        else:
            runs = client.runs(experiment_id=id)
            view = {"experiment": experiment, "runs": runs}
            print_json(view) if json else console().print(experiment_view(experiment, runs))
            return
        run = client.run(id)
        attempts, events, standing = client.attempts(id), client.events(id), client.standing(id)
        story = {"run": run, "attempts": attempts, "events": events, "standing": standing}
        print_json(story) if json else console().print(run_view(run, attempts, events, standing))


def compare(id: Id, url: Url = None, json: Json = False) -> None:
    """Compare the optimizers of an experiment: the leaderboard with losses, intervals, memory, time and verdicts."""
    from api.cli.tables import comparison_table

    with connected(url) as client:
        comparison = client.compare(id)
    print_json(comparison) if json else console().print(comparison_table(comparison))
