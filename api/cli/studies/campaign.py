"""`adapm-bench campaign`: many tries at improving on a baseline, with one error for all of them."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
import yaml
from rich.console import Group, RenderableType
from rich.text import Text

from api.cli.console import (
    FAILED,
    Json,
    complain,
    console,
    plain,
    plain_table,
    print_json,
    refuse,
    sentences,
    text_table,
)
from api.cli.experiments.specs import SpecFile, read_spec
from api.cli.service import Url, open_client
from api.client.client import Client
from api.client.messages import ClientError
from dashboards.text import formats
from orchestrator.campaigns.ledger import (
    AnyCampaign,
    CampaignRecord,
    DamagedCampaign,
    HeldOutWorkloads,
    Ledger,
    TryRecord,
)
from orchestrator.specs.text import SpecLoader
from worker.words import pluralize

Id = Annotated[str, typer.Argument(help="A campaign's id.", metavar="ID")]
Place = Annotated[int, typer.Argument(help="The try's place, from 1.", min=1, metavar="TRY")]
OptionValues = Annotated[
    list[str] | None, typer.Option("--option", help="What differs from the optimizer's defaults.", metavar="NAME=VALUE")
]

verbs = typer.Typer(
    name="campaign", help="Tries at improving on a baseline, with one error for all of them.", no_args_is_help=True
)


@verbs.command()
def new(file: SpecFile, url: Url = None, json: Json = False) -> None:
    """Open a campaign as a file says; nothing of it changes again. For admins."""
    spec = read_spec(file)
    with open_client(url, listed_by="campaign ls") as client:
        try:
            opened = client.open_campaign(spec.fields)
        except ClientError as error:
            if not error.faults:
                raise
            spec.refuse(str(error).partition("\n")[0], error.faults)
        print_json(opened) if json else print(
            f"opened {opened.id}: {plain(opened.name)}\n{client.url}/campaigns/{opened.id}"
        )


@verbs.command()
def ls(url: Url = None, json: Json = False) -> None:
    """List the campaigns, newest first."""
    with open_client(url, listed_by="campaign ls") as client:
        found = client.campaigns()
    print_json(found) if json else console().print(_campaigns_table(found))


@verbs.command()
def show(campaign_id: Id, url: Url = None, json: Json = False) -> None:
    """Show a campaign with its tries and their verdicts."""
    with open_client(url, listed_by="campaign ls") as client:
        found, tries = client.campaign(campaign_id), client.tries(campaign_id)
    print_json({"campaign": found, "tries": tries}) if json else console().print(campaign_view(found, tries))


@verbs.command("try")
def register(
    campaign_id: Id,
    optimizer: Annotated[str, typer.Argument(help="A name of the catalog.")],
    lr: Annotated[float, typer.Option("--lr", help="Its learning rate.")],
    option: OptionValues = None,
    note: Annotated[str, typer.Option(help="What the idea is.")] = "",
    key: Annotated[str | None, typer.Option(help="Idempotency key: the same key gives the same try.")] = None,
    submit: Annotated[bool, typer.Option("--submit", help="Queue its runs, too.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Register a try before any run of it; its level is spent, whatever becomes of it."""
    tried = {"optimizer": optimizer, "lr": lr, "options": dict(map(_option, option or ())), "note": note}
    with open_client(url, listed_by="campaign ls") as client:
        found = client.register_try(campaign_id, tried, key=key)
        if submit:
            found = client.submit_try(campaign_id, found.place)
    _print_try(found, as_json=json)


@verbs.command()
def submit(campaign_id: Id, place: Place, url: Url = None, json: Json = False) -> None:
    """Queue the runs of a registered try."""
    _apply(Client.submit_try, campaign_id, place, url, json)


@verbs.command()
def verdict(campaign_id: Id, place: Place, url: Url = None, json: Json = False) -> None:
    """Say what became of a try: improved, not shown, or undecided yet."""
    _apply(Client.verdict, campaign_id, place, url, json)


@verbs.command()
def retry(campaign_id: Id, place: Place, url: Url = None, json: Json = False) -> None:
    """Let a try go on that a failed, cancelled or paused run holds up."""
    _apply(Client.retry_try, campaign_id, place, url, json)


@verbs.command()
def ledger(campaign_id: Id, url: Url = None, json: Json = False) -> None:
    """Print every step of a campaign, judged again from the stored results; exit code 1 where one does not follow."""
    with open_client(url, listed_by="campaign ls") as client:
        found = client.ledger(campaign_id)
    print_json(found) if json else console().print(_ledger_view(found))
    if found.faults:
        if not json:
            complain("\n".join(found.faults))
        raise typer.Exit(FAILED)


@verbs.command("held-out")
def held_out_workloads(campaign_id: Id, url: Url = None, json: Json = False) -> None:
    """Show how tries stand on the held-out workloads. For admins."""
    with open_client(url, listed_by="campaign ls") as client:
        found = client.held_out_workloads(campaign_id)
    print_json(found) if json else console().print(_held_out_tries_table(found))


def _apply(
    ask: Callable[[Client, str, int], TryRecord], campaign_id: str, place: int, url: str | None, json: bool
) -> None:
    with open_client(url, listed_by="campaign ls") as client:
        found = ask(client, campaign_id, place)
    _print_try(found, as_json=json)


def _option(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        refuse(f"--option {text!r} must be NAME=VALUE, as --option beta2=0.95")
    try:
        return name, yaml.load(value, SpecLoader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError:
        return name, value


def _print_try(found: TryRecord, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    print(f"try {found.place} of {found.campaign_id}: {found.state.value.replace('_', ' ')}")
    console().print(Text(plain(found.verdict)))


def _campaigns_table(found: tuple[AnyCampaign, ...]) -> RenderableType:
    if not found:
        return Text("no campaigns yet; adapm-bench campaign new FILE opens one")
    rows = (
        (each.id, f"{each.name} (damaged)", "", "", "")
        if isinstance(each, DamagedCampaign)
        else (each.id, each.name, f"{each.tries} of {each.most_tries}", str(each.improved), f"{each.error_spent:.2%}")
        for each in found
    )
    return text_table(("id", "campaign", "tries", "improved", "error spent"), rows)


def campaign_view(found: CampaignRecord, tries: tuple[TryRecord, ...]) -> RenderableType:
    """The facts, the table of tries, their verdicts."""
    head = Text(plain(found.name), style="bold")
    head.append(
        f"  error {found.error:g}, of which {found.error_spent:.2g} is spent by "
        f"{pluralize(found.tries, 'try', 'tries')}; {pluralize(found.runs, 'run')}; "
        f"{pluralize(found.held_out, 'workload')} held out",
        style="dim",
    )
    table = plain_table("try", "optimizer", "lr", "state", "pairs", "difference", "level")
    for each in tries:
        improvement = each.improvement
        table.add_row(
            str(each.place),
            plain(each.tried.optimizer),
            formats.rate(each.tried.lr),
            each.state.value.replace("_", " "),
            "—" if improvement is None else str(improvement.pairs),
            "—" if improvement is None or not improvement.pairs else formats.difference(improvement.mean),
            f"{each.level:.2g}",
        )
    return Group(head, table, sentences((f"try {each.place}", each.verdict) for each in tries))


def _ledger_view(found: Ledger) -> RenderableType:
    rows = (
        (
            str(entry.number),
            formats.moment(entry.at),
            entry.kind.value.replace("_", " "),
            "" if entry.place is None else str(entry.place),
            str(entry.verdict or entry.state or (entry.tried.optimizer if entry.tried else "")).replace("_", " "),
            digest[:12],
        )
        for entry, digest in zip(found.entries, found.hashes, strict=True)
    )
    said = "does not follow from what is stored" if found.faults else "follows from the stored results"
    return Group(text_table(("entry", "at", "step", "try", "what", "hash"), rows), Text(f"The ledger {said}."))


def _held_out_tries_table(found: HeldOutWorkloads) -> RenderableType:
    rows = (
        (
            str(each.place),
            str(each.workload),
            each.improvement.state.value,
            str(each.improvement.pairs),
            formats.difference(each.improvement.mean),
            ", ".join(f"{count} {status}" for status, count in each.runs.items()),
            "; ".join(each.reasons),
        )
        for each in found.tries
    )
    return text_table(("try", "workload", "state", "pairs", "difference", "runs", "reasons"), rows)
