"""`adapm-bench demo`: the main job, end to end: start the service, submit the built-in comparison, watch, compare.

It goes on where an interrupted one ended, and shows the stored answer where one is complete.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.admin.up import Data, Port, Slots
from api.cli.console import complain, console, messages_on_stderr, print_json
from api.cli.service import FAILED, Json
from orchestrator.jobs import RunStatus

if TYPE_CHECKING:
    from orchestrator.records import ExperimentRecord

Fresh = Annotated[bool, typer.Option("--fresh", help="Run it again although its results are in the data folder.")]


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(demo)


def demo(data: Data = None, port: Port = None, slots: Slots = None, fresh: Fresh = False, json: Json = False) -> None:
    """Compare AdaPM, AdaPM-mini and AdamW on a tiny GPT-2 and real text, end to end, in minutes on a CPU."""
    from api.cli.studies.demo_run import run

    with messages_on_stderr(as_json=json):
        ended = run(data, port, slots, fresh)
        experiment = ended.experiment
        if not json:
            print(f"Its page: {ended.page}" + ("" if ended.is_up else " (once `make up` has started the service)"))
            _say_what_next(experiment)
    if json:
        print_json({"experiment": experiment, "comparison": ended.comparison})
    if experiment.counts.by_status.get(RunStatus.SUCCEEDED, 0) < experiment.counts.total:
        complain("not every run succeeded; `adapm-bench show` says why, --fresh runs the comparison again")
        raise typer.Exit(FAILED)


def _say_what_next(experiment: "ExperimentRecord") -> None:
    out = console()
    out.print("\nNext:")
    for command, purpose in (
        ("make up", "the service and its dashboard"),
        (f"adapm-bench compare {experiment.id} --json", "the figures for a script (while the service is up)"),
        (f"adapm-bench ls --experiment {experiment.id}", "every run"),
        ("adapm-bench optimizers", "what else can be compared, with its options"),
        ("adapm-bench submit my.yaml", "your own comparison; docs/specs.md has one to start from"),
    ):
        out.print(f"  {command:<44} {purpose}")
