"""The reading verbs: `ls`, `runs`, `show`, `compare`, `diff`, `fit`, `logs`."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from api.cli.answer_tables import comparison_table, fit_view, profile_view
from api.cli.console import Json, console, fail, plain, print_json, refuse, text_table
from api.cli.listings import NONE_SUCH, NONE_YET, experiment_view, experiments_table, run_view, runs_table
from api.cli.service import Url, open_client
from api.client.client import Client
from dashboards.files.publication import TableFormat, run_table_csv
from dashboards.text import formats, words
from optim.nearest import unknown
from orchestrator.jobs import Outcome, RunStatus
from orchestrator.log_lines import SEARCHED_BYTES, LogLevel
from orchestrator.records import ExperimentRecord, RunRecord
from orchestrator.run_table.fields import DEFAULT_COLUMNS, find_field

AnyId = Annotated[str, typer.Argument(help="The id of an experiment or a run, or its first characters.", metavar="ID")]
Id = Annotated[str, typer.Argument(help="An experiment's id, or its first characters.", metavar="ID")]
Ids = Annotated[
    list[str],
    typer.Argument(help="An experiment's id; several compare their optimizers over all workloads.", metavar="ID..."),
]


class Layout(StrEnum):
    """How `compare` prints."""

    TABLE = "table"
    JSON = "json"
    LATEX = "latex"
    MARKDOWN = "markdown"
    CSV = "csv"


class LawFormChoice(StrEnum):
    """The forms of scaling laws by name, as `orchestrator/analysis/laws/model.py` knows them."""

    N = "n"
    N0 = "n0"
    D = "d"
    D0 = "d0"
    ND = "nd"


FILES: dict[Layout, "TableFormat"] = {Layout.LATEX: "latex", Layout.MARKDOWN: "markdown", Layout.CSV: "csv"}

FormatOption = Annotated[
    Layout, typer.Option("--format", help="How to print it; LaTeX is a booktabs table, ready to paste.")
]
CellOption = Annotated[
    str | None,
    typer.Option("--cell", help="For a scaling experiment: the cell to compare; default: the largest."),
]
LimitOption = Annotated[
    int | None, typer.Option(min=1, max=1000, help="List at most this many; default: 20 experiments, all runs.")
]
ExperimentOption = Annotated[str | None, typer.Option("--experiment", help="List the runs of this experiment.")]
STATES = tuple(dict.fromkeys((*(each.value for each in Outcome), *(each.value for each in RunStatus))))
"""What `ls` calls the state of a run, with `_` for a space; `succeeded` is every run with a result."""
Status = Annotated[
    str | None, typer.Option("--status", help=f"List the runs in this state: {', '.join(STATES)}.", metavar="STATE")
]

WithLabels = Annotated[
    list[str] | None,
    typer.Option("--label", help="List the experiments with this label; repeat it for several labels."),
]
Deleted = Annotated[bool, typer.Option("--deleted", help="List the deleted experiments that can be restored.")]
FitIds = Annotated[list[str], typer.Argument(help="A scaling experiment, or several experiments.", metavar="ID...")]
FormChoice = Annotated[
    LawFormChoice | None,
    typer.Option(
        "--form",
        help="n: E + A N^-alpha; n0: without E; d, d0: in tokens; nd: both. Default: the richest that fits.",
    ),
]
Predict = Annotated[
    list[str] | None,
    typer.Option(
        "--predict",
        help="Predict loss and memory for this model or number of parameters (1.5e9); repeatable.",
    ),
]
TargetLoss = Annotated[
    float | None,
    typer.Option(
        "--target-loss",
        help="Critical batches are about the tokens to this loss; default: the highest final loss, which all reach.",
        min=0.0,
    ),
]
RunIds = Annotated[list[str], typer.Argument(help="A run's id, or its first characters.", metavar="RUN...")]
EveryField = Annotated[bool, typer.Option("--all", help="List the fields that are the same in all of them, too.")]
RunIdArgument = Annotated[str, typer.Argument(help="A run's id, or its first characters.", metavar="RUN")]
Attempt = Annotated[int | None, typer.Option(min=1, help="The attempt to show; default: the newest.")]
Lines = Annotated[int, typer.Option("--tail", min=1, help="How many lines to show.")]
SearchedText = Annotated[str, typer.Option("--search", help="Only lines with this text, in upper or lower case.")]
Level = Annotated[LogLevel, typer.Option("--level", help="Only lines of this level, or worse.")]

WhereOption = Annotated[
    str, typer.Option("--where", help="A filter, such as 'lr<0.01 and optimizer=adapm'.", metavar="FILTER")
]
ColumnsOption = Annotated[
    str, typer.Option("--columns", help="Fields, with commas between them: lr,val_loss,spec.workload.model.")
]
SortOption = Annotated[
    str | None,
    typer.Option("--sort", help="Any field; -FIELD puts the largest first. Default: -created_at.", metavar="FIELD"),
]
GroupOption = Annotated[
    str | None, typer.Option("--group", help="List the groups that share this field.", metavar="FIELD")
]
RowsOption = Annotated[
    int | None, typer.Option("--limit", min=1, help="List at most so many; default: 50, of a file all.")
]
Csv = Annotated[bool, typer.Option("--csv", help="Print a CSV file.")]
ROWS_LISTED = 50

LINE_BYTES = 400
"""So long a line of a log may be on average, tracebacks included."""


def ls(
    experiment: ExperimentOption = None,
    status: Status = None,
    label: WithLabels = None,
    deleted: Deleted = False,
    limit: LimitOption = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """List experiments, newest first; with --experiment or --status, runs."""
    of_runs = [name for name, given in (("--experiment", experiment), ("--status", status)) if given is not None]
    of_experiments = [name for name, given in (("--label", label), ("--deleted", deleted)) if given]
    if status is not None and status not in STATES:
        refuse(unknown("state", status, STATES))
    if of_runs and of_experiments:
        refuse(f"{of_runs[0]} lists runs, {of_experiments[0]} experiments; give one of the two")
    with open_client(url) as client:
        if of_runs:
            if experiment is not None:
                client.experiment(experiment)  # an id that does not exist is an error, not an empty list
            with_result = status is not None and status not in list(RunStatus)  # an outcome
            asked = RunStatus.SUCCEEDED if with_result else RunStatus(status) if status else None
            runs = client.runs(experiment_id=experiment, status=asked)
            runs = tuple(run for run in runs if not with_result or run.outcome() == status)[:limit]
            print_json(runs) if json else console().print(runs_table(runs))
        else:
            experiments = client.experiments(limit=limit or 20, labels=label or (), deleted=deleted)
            nothing = NONE_SUCH if label or deleted else NONE_YET
            print_json(experiments) if json else console().print(experiments_table(experiments, nothing))


def runs(
    where: WhereOption = "",
    columns: ColumnsOption = "",
    sort: SortOption = None,
    group: GroupOption = None,
    limit: RowsOption = None,
    csv: Csv = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """List runs of all experiments, external ones too: filtered, sorted, grouped, any field as a column."""
    if csv and (json or group):
        refuse(f"--csv writes the table of runs; leave out {'--json' if json else '--group'}")
    if group and (sort or limit):
        refuse("--group lists the largest groups first; leave out --sort and --limit")
    names = tuple(dict.fromkeys(each.strip() for each in columns.split(",") if each.strip())) or DEFAULT_COLUMNS
    with open_client(url) as client:
        if group:
            groups = client.run_groups(group, where=where)
            lines = [
                (
                    words.field_value(find_field(group), each.value),
                    str(each.runs),
                    *map(formats.loss, (each.best, each.mean)),
                )
                for each in groups
            ]
            head = (group, "runs", "lowest val_loss", "mean val_loss")
            print_json(groups) if json else console().print(text_table(head, lines))
            return
        most = limit or (None if csv or json else ROWS_LISTED)
        found = client.run_table(where=where, columns=names, sort=sort or "-created_at", limit=most and most + 1)
    is_cut = most is not None and len(found) > most
    found = found[:most]
    if json:
        print_json(found)
    elif csv:
        cells = ((row.id, str(row.is_external).lower(), row.experiment_id, *row.values.values()) for row in found)
        sys.stdout.writelines(run_table_csv(names, cells))
    elif not found:
        print("no runs match")
    else:
        fields = [find_field(name) for name in names]
        rows = [(row.id, *(words.field_value(each, row.values[each.name]) for each in fields)) for row in found]
        console().print(text_table(("run", *names), rows))
        if is_cut:
            print(f"the first {most}; --limit lists more")


def show(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Show an experiment with its runs, or a run with its result and history."""
    with open_client(url) as client:
        found = find(client, id)
        if isinstance(found, ExperimentRecord):
            runs = client.runs(experiment_id=found.id)
            view = {"experiment": found, "runs": runs}
            print_json(view) if json else console().print(experiment_view(found, runs))
            return
        attempts, events, standing = client.attempts(found.id), client.events(found.id), client.standing(found.id)
        story = {"run": found, "attempts": attempts, "events": events, "standing": standing}
        print_json(story) if json else console().print(run_view(found, attempts, events, standing))


def find(client: Client, id: str) -> ExperimentRecord | RunRecord:
    """The experiment or the run of an id, or of a short one: a run's has a number behind a hyphen."""
    return client.run(id) if "-" in id else client.experiment(id)


def compare(
    ids: Ids,
    form: FormatOption = Layout.TABLE,
    cell: CellOption = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Compare the optimizers of an experiment: losses with intervals, memory, time, verdicts. Several: profiles."""
    as_profile = len(ids) > 1
    if as_profile and cell is not None:
        refuse("a profile takes every cell of a scaling experiment; leave --cell out")
    if as_profile and form not in (Layout.TABLE, Layout.JSON) and not json:
        refuse(f"--format {form.value} writes the table of one experiment; give one ID, or json for several")
    with open_client(url) as client:
        if as_profile:
            report = client.profile(ids)
            print_json(report) if json or form is Layout.JSON else console().print(profile_view(report))
        elif json or form is Layout.JSON:
            print_json(client.compare(ids[0], cell))
        elif form is Layout.TABLE:
            console().print(comparison_table(client.compare(ids[0], cell)))
        else:
            # The file as it is, which no terminal may wrap: it goes into another program.
            sys.stdout.write(client.comparison_table(ids[0], FILES[form], cell))


def diff(runs: RunIds, every_field: EveryField = False, url: Url = None, json: Json = False) -> None:
    """Tell in which fields the specifications of runs differ."""
    with open_client(url) as client:
        found = client.run_differences(runs)
    if json:
        print_json(found)
        return
    rows = [(each.field, *map(formats.json_value, each.values_of(found.readable_runs()))) for each in found.different]
    if rows:
        console().print(text_table(("field", *found.readable_runs()), rows))
    else:
        print(f"no difference in {len(found.equal)} fields")
    if every_field:
        equal = [(each.field, formats.json_value(each.value)) for each in found.equal]
        console().print(text_table(("field", "equal in all"), equal))
    if found.unreadable:
        print(f"left out, since their specifications cannot be read: {', '.join(found.unreadable)}")


def fit(
    ids: FitIds,
    form: FormChoice = None,
    predict: Predict = None,
    target_loss: TargetLoss = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Fit each optimizer's scaling law: exponents with intervals, predictions, verdicts. Over experiments of one model
    with several batches: its critical batch."""
    with open_client(url) as client:
        report = client.fit(ids, form=form.value if form else None, predict=predict or [], target_loss=target_loss)
    print_json(report) if json else console().print(fit_view(report))


def logs(
    run: RunIdArgument,
    attempt: Attempt = None,
    tail: Lines = 100,
    search: SearchedText = "",
    level: Level = LogLevel.INFO,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show the last lines that a run printed, or the last of those that are searched."""
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
