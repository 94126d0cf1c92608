"""The reading verbs: `ls`, `runs`, `show`, `logs`."""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Literal, TypeVar

import typer

from api.cli.console import Json, console, fail, plain, print_json, refuse, text_table
from api.cli.listings import NONE_SUCH, NONE_YET, experiment_view, experiments_table, external_view, run_view
from api.cli.service import Url, open_client
from api.client.client import Client, ClientError
from dashboards.files.publication import run_table_csv
from dashboards.text import words
from orchestrator.external_runs import ExternalExperiment, ExternalRun, Listed
from orchestrator.records import ExperimentRecord, RunRecord
from orchestrator.run_table.fields import DEFAULT_COLUMNS, find_field
from orchestrator.services.log_lines import SEARCHED_BYTES, LogLevel

AnyId = Annotated[
    str,
    typer.Argument(
        help="An experiment's or a run's id, or its first characters; the name of a logged experiment.", metavar="ID"
    ),
]
Id = Annotated[
    str, typer.Argument(help="An experiment's id, or its first characters; the name of a logged one.", metavar="ID")
]
CellOption = Annotated[
    str | None, typer.Option(help="For a scaling experiment: the cell to compare; default: the largest.")
]
LimitOption = Annotated[int, typer.Option(min=1, max=1000, help="List at most this many.")]
WithLabels = Annotated[list[str] | None, typer.Option(help="List the experiments with this label; repeatable.")]


Record = TypeVar("Record")
External = TypeVar("External")


SourceOption = Annotated[
    Literal["all", "bench", "logged", "imported"], typer.Option(help="List experiments with runs of this origin.")
]
Deleted = Annotated[bool, typer.Option("--deleted", help="List deleted experiments.")]
RunIdArgument = Annotated[str, typer.Argument(help="A run's id, or its first characters.", metavar="RUN")]
Attempt = Annotated[int | None, typer.Option(min=1, help="The attempt to show; default: the newest.")]
Lines = Annotated[int, typer.Option(min=1, help="How many lines to show.")]
SearchedText = Annotated[str, typer.Option(help="Only lines with this text; case does not matter.")]
Level = Annotated[LogLevel, typer.Option(help="Only lines of this level, or worse.")]

WhereOption = Annotated[str, typer.Option(help="A filter, such as 'lr<0.01 and optimizer=adapm'.", metavar="FILTER")]
ColumnsOption = Annotated[str, typer.Option(help="Fields, with commas between them: lr,val_loss,spec.workload.model.")]
SortOption = Annotated[str, typer.Option(help="Any field; -FIELD puts the largest first.", metavar="FIELD")]
RowsOption = Annotated[int | None, typer.Option(min=1, help="List at most this many; default: 50, with --csv all.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print a CSV file.")]
ROWS_LISTED = 50

LINE_BYTES = 400
"""The average length of a log's line, tracebacks included."""


def ls(
    label: WithLabels = None,
    deleted: Deleted = False,
    source: SourceOption = "all",
    limit: LimitOption = 20,
    url: Url = None,
    json: Json = False,
) -> None:
    """List experiments, newest first; `show` lists the runs of one, `runs` those of all."""
    if deleted and source in ("logged", "imported"):
        refuse("logged and imported runs are deleted for good; give one of --source and --deleted")
    experiments: list[Listed] = []
    with open_client(url) as client:
        if source in ("all", "bench"):
            experiments += client.experiments(limit=limit, labels=label or (), deleted=deleted)
        if source != "bench" and not deleted:
            chosen = None if source == "all" else source
            experiments += client.external_experiments(label or (), source=chosen, limit=limit)
    experiments = sorted(experiments, key=lambda experiment: experiment.created_at, reverse=True)[:limit]
    nothing = NONE_SUCH if label or deleted else NONE_YET
    print_json(experiments) if json else console().print(experiments_table(experiments, nothing))


def runs(
    where: WhereOption = "",
    columns: ColumnsOption = "",
    sort: SortOption = "-created_at",
    limit: RowsOption = None,
    csv: Csv = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """List runs of all experiments: filtered, sorted, any field as a column."""
    if csv and json:
        refuse("give one of --csv and --json")
    names = tuple(dict.fromkeys(column.strip() for column in columns.split(",") if column.strip())) or DEFAULT_COLUMNS
    with open_client(url) as client:
        row_limit = limit or (None if csv or json else ROWS_LISTED)
        table_rows = client.run_table(where=where, columns=names, sort=sort, limit=row_limit and row_limit + 1)
    is_cut = row_limit is not None and len(table_rows) > row_limit
    table_rows = table_rows[:row_limit]
    if json:
        print_json(table_rows)
    elif csv:
        cells = ((row.id, str(row.is_external).lower(), row.experiment_id, *row.values.values()) for row in table_rows)
        sys.stdout.writelines(run_table_csv(names, cells))
    elif not table_rows:
        print("no runs match")
    else:
        fields = [find_field(name) for name in names]
        rows = [(row.id, *(words.field_value(field, row.values[field.name]) for field in fields)) for row in table_rows]
        console().print(text_table(("run", *names), rows))
        if is_cut:
            print(f"the first {row_limit}; --limit lists more")


def show(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Show an experiment with its runs, or a run with its result and history."""
    with open_client(url) as client:
        record = find(client, id)
        if isinstance(record, ExperimentRecord):
            runs = client.runs(experiment_id=record.id)
            view = {"experiment": record, "runs": runs}
            print_json(view) if json else console().print(experiment_view(record, runs))
            return
        if isinstance(record, ExternalRun):
            print_json(record) if json else console().print(
                external_view(client.external_experiment(record.experiment_id), [record])
            )
            return
        if isinstance(record, ExternalExperiment):
            external_runs = client.external_runs(record.id)
            print_json({"experiment": record, "runs": external_runs}) if json else console().print(
                external_view(record, external_runs)
            )
            return
        attempts, events, standing = client.attempts(record.id), client.events(record.id), client.standing(record.id)
        story = {"run": record, "attempts": attempts, "events": events, "standing": standing}
        print_json(story) if json else console().print(run_view(record, attempts, events, standing))


def find_experiment(client: Client, id: str) -> ExperimentRecord | ExternalExperiment:
    """Return the experiment of an id; of runs that were logged or imported also by its name."""
    return _first(id, client.experiment, client.external_experiment)


def _first(id: str, read: Callable[[str], Record], read_other: Callable[[str], External]) -> Record | External:
    """Return what either finds by the id; if neither does, the error is that of `read`."""
    try:
        return read(id)
    except ClientError as error:
        if error.status not in (404, 422):
            raise
        with suppress(ClientError):
            return read_other(id)
        raise


def find(client: Client, id: str) -> ExperimentRecord | RunRecord | ExternalExperiment | ExternalRun:
    """Return the experiment or the run of an id, or of a short one: a run's has a number behind a hyphen."""
    read: Callable[[str], ExperimentRecord | RunRecord] = client.run if "-" in id else client.experiment
    return _first(id, read, lambda name: _first(name, client.external_experiment, client.external_run))


def logs(
    run: RunIdArgument,
    attempt: Attempt = None,
    tail: Lines = 100,
    search: SearchedText = "",
    level: Level = LogLevel.INFO,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show the last lines that a run printed, or the last ones that match a search."""
    with open_client(url) as client:
        record = client.run(run)
        run, attempt = record.id, attempt or record.attempt
        if record.attempt == 0:
            fail(f"run {run} has not begun, so it has printed nothing yet")
        most_bytes = min(tail * LINE_BYTES, SEARCHED_BYTES)
        text = client.log(run, attempt, tail_bytes=most_bytes, search=search, level=level)
    lines = text.splitlines()[-tail:]
    if json:
        print_json({"run": run, "attempt": attempt, "lines": lines})
        return
    for line in lines:
        print(plain(line))
