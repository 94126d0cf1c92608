"""`adapm-bench compare ID...`: the answer of an experiment of any kind, or over several; `fit ID...`: scaling laws."""

import sys
from typing import Annotated, Literal

import typer

from api.cli.answer_tables import comparison_table, fit_view, judgement_view, profile_view, sweep_view
from api.cli.console import Json, console, print_json, refuse
from api.cli.experiments.show import CellOption, find_experiment
from api.cli.service import Url, open_client
from orchestrator.analysis.laws.records import FormName
from orchestrator.external_runs import ExternalExperiment
from orchestrator.kinds.sweep import SweepSpec

Ids = Annotated[
    list[str],
    typer.Argument(
        help="An experiment's id, or the name of a logged one.",
        metavar="ID...",
    ),
]


FormatOption = Annotated[
    Literal["table", "latex", "markdown", "csv"],
    typer.Option("--format", help="How to print the table; LaTeX needs booktabs."),
]
EXTERNAL_RUNS = "Of logged and imported runs"
MetricOption = Annotated[
    str | None,
    typer.Option(
        help="The metric to judge by, lower is better; default: the validation loss.", rich_help_panel=EXTERNAL_RUNS
    ),
]
BaselineOption = Annotated[
    str | None,
    typer.Option(help="Compare the others with this candidate; default: the first one.", rich_help_panel=EXTERNAL_RUNS),
]
WorkloadOption = Annotated[
    str | None,
    typer.Option(help="Judge the runs of this workload, if there are several.", rich_help_panel=EXTERNAL_RUNS),
]
MarginOption = Annotated[
    float | None,
    typer.Option(min=0.0, help="The largest difference that does not matter.", rich_help_panel=EXTERNAL_RUNS),
]


FitIds = Annotated[list[str], typer.Argument(help="A scaling experiment, or several experiments.", metavar="ID...")]
FormChoice = Annotated[
    FormName | None,
    typer.Option(help="n: E + A N^-alpha; n0: without E; d, d0: in tokens; nd: both. Default: the richest that fits."),
]
Predict = Annotated[
    list[str] | None, typer.Option(help="Predict the loss of this model or number of parameters (1.5e9); repeatable.")
]


def compare(
    ids: Ids,
    form: FormatOption = "table",
    cell: CellOption = None,
    metric: MetricOption = None,
    baseline: BaselineOption = None,
    workload: WorkloadOption = None,
    margin: MarginOption = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Show an experiment's verdicts with losses, memory and time; of a sweep its best trials; of several experiments
    scores."""
    as_profile = len(ids) > 1
    is_chosen = any(value is not None for value in (metric, baseline, workload, margin))
    if as_profile and cell is not None:
        refuse("a profile takes every cell of a scaling experiment; leave --cell out")
    if as_profile and form != "table" and not json:
        refuse(f"--format {form} writes the table of one experiment; give one ID")
    with open_client(url) as client:
        experiment = None if as_profile else find_experiment(client, ids[0])
        if isinstance(experiment, ExternalExperiment):
            if cell is not None or form != "table":
                refuse("logged and imported runs have one table and no cells; leave --format and --cell out")
            judged = client.judge(
                experiment.id, metric=metric, baseline=baseline, workload=workload, margin=margin or None
            )
            print_json(judged) if json else console().print(judgement_view(judged))
        elif is_chosen:
            refuse("--metric, --baseline, --workload and --margin are about logged and imported runs")
        elif experiment is None:
            report = client.profile(ids)
            print_json(report) if json else console().print(profile_view(report))
        elif isinstance(experiment.spec, SweepSpec):
            if form != "table" or cell is not None:
                refuse("a sweep has one table and no cells; leave --format and --cell out")
            sweep = client.sweep(experiment.id)
            print_json(sweep) if json else console().print(sweep_view(sweep))
        elif form == "table" or json:
            comparison = client.compare(experiment.id, cell)
            print_json(comparison) if json else console().print(comparison_table(comparison))
        else:
            # The file as it is, which no terminal may wrap: it goes into another program.
            sys.stdout.write(client.comparison_table(experiment.id, form, cell))


def fit(ids: FitIds, form: FormChoice = None, predict: Predict = None, url: Url = None, json: Json = False) -> None:
    """Fit each optimizer's scaling law: exponents with intervals, predictions, verdicts."""
    with open_client(url) as client:
        report = client.fit(ids, form=form, predict=predict or [])
    print_json(report) if json else console().print(fit_view(report))
