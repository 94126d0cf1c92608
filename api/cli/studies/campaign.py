"""`adapm-bench campaign`: many tries at improving on a baseline, with one error for all claims."""

import json as json_text
from collections.abc import Iterable
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError
from rich.console import RenderableType

from api.campaigns import ledger
from api.campaigns.campaign import Campaign
from api.campaigns.ledger import LedgerEntry, StepResult
from api.cli.console import Json, complain, console, print_json, refuse, text_table
from api.cli.experiments.specs import SpecFile, read_spec
from api.cli.service import Url, open_client
from dashboards.text import formats
from orchestrator.specs.faults import validation_faults
from orchestrator.specs.text import SpecLoader

OptionValues = Annotated[
    list[str] | None, typer.Option(help="An option that differs from the optimizer's default.", metavar="NAME=VALUE")
]

verbs = typer.Typer(
    name="campaign", help="Tries at improving on a baseline, with one error for all claims.", no_args_is_help=True
)


@verbs.command("try")
def try_candidate(
    file: SpecFile,
    optimizer: Annotated[str, typer.Argument(help="A name of the catalog.")],
    lr: Annotated[float, typer.Option("--lr", help="Its learning rate.")],
    option: OptionValues = None,
    note: Annotated[str, typer.Option(help="The idea, for people.")] = "",
    url: Url = None,
    json: Json = False,
) -> None:
    """Compare a candidate with the baseline on a few seeds. Claims nothing and uses no error budget."""
    campaign, options = read_campaign(file), dict(map(_option, option or ()))
    with open_client(url) as client:
        entry = ledger.try_candidate(client, campaign, optimizer, lr, options, note)
    print_json(entry) if json else console().print(entries_table([entry]))


@verbs.command()
def confirm(
    file: SpecFile,
    number: Annotated[int, typer.Argument(help="The try's number.", min=1, metavar="TRY")],
    url: Url = None,
    json: Json = False,
) -> None:
    """Compare a try's candidate with the baseline on new seeds of every workload. Uses up error budget."""
    campaign = read_campaign(file)
    with open_client(url) as client:
        entry = ledger.confirm(client, campaign, number)
    print_json(entry) if json else console().print(entries_table([entry]))


@verbs.command("ledger")
def show(file: SpecFile, url: Url = None, json: Json = False) -> None:
    """List tries and confirmations with their verdicts, from stored results."""
    campaign = read_campaign(file)
    with open_client(url) as client:
        answer = ledger.read_ledger(client, campaign)
    print_json(answer) if json else console().print(entries_table([*answer.tries, *answer.confirmations]))
    if answer.faults:
        complain("\n".join(answer.faults))


def read_campaign(file: SpecFile) -> Campaign:
    """Return the campaign in a file; faults end the command, with their lines."""
    text = read_spec(file)
    try:
        return Campaign.model_validate_json(json_text.dumps(text.fields))
    except ValidationError as error:
        return text.refuse(f"{text.source} is not a campaign", validation_faults(error, Campaign))


def entries_table(entries: Iterable[LedgerEntry]) -> RenderableType:
    """Return a line for each workload of each try and confirmation."""
    rows = (_cells(entry, result) for entry in entries for result in entry.results)
    return text_table(("step", "workload", "candidate", "lr", "difference", "verdict", "error", "experiment"), rows)


def _cells(entry: LedgerEntry, result: StepResult) -> Iterable[str]:
    (lr,) = entry.candidate.learning_rates
    options = ", ".join(f"{name}={value}" for name, value in entry.candidate.options.items())
    return (
        f"{entry.stage} {entry.number}",
        f"held-out {result.workload}" if result.workload else "own",
        f"{entry.candidate.optimizer} {options}".rstrip(),
        formats.rate(lr),
        formats.difference(result.difference.mean if result.difference else None),
        (entry.state or result.conclusion).value.replace("_", " "),
        "" if entry.level is None else f"{entry.level:.2%}",
        result.experiment_id,
    )


def _option(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        refuse(f"--option {text!r} must be NAME=VALUE, as --option beta2=0.95")
    try:
        return name, yaml.load(value, SpecLoader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError:
        return name, value
