"""`adapm-bench study ls|show|run|report`: does the paper hold? Each study answers one question, at two scales."""

import signal
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Never

import typer

from api.cli.admin.up import Data, Slots, read_settings
from api.cli.console import complain, console, messages_on_stderr, plain, print_json
from api.cli.service import BAD_INPUT, FAILED, INTERRUPTED, Json, environment_settings, fail
from orchestrator.errors import OrchestratorError
from orchestrator.studies.evidence import Scale

if TYPE_CHECKING:
    from api.cli.studies.run import Runner
    from orchestrator.settings import Settings
    from orchestrator.studies.results import StoredFinding
    from orchestrator.studies.study import Study

Names = Annotated[list[str] | None, typer.Argument(help="Studies by name; `study ls` lists them.", metavar="[NAME]...")]
Name = Annotated[str, typer.Argument(help="A study by name.", metavar="NAME")]
ScaleOption = Annotated[Scale, typer.Option("--scale", help="tiny: minutes on a CPU; paper: its setting, for GPUs.")]
All = Annotated[bool, typer.Option("--all", help="Every study; ends with the reproduction report.")]
Again = Annotated[bool, typer.Option("--again", help="Train anew although finished experiments are there.")]
Compare = Annotated[
    bool, typer.Option("--compare-with-published", help="End with exit code 1 where a result deviates.")
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", help="A service to use; default: the one on the data folder, or one for as long as this lasts."
    ),
]
Out = Annotated[Path | None, typer.Option("-o", "--out", help="Write the report into this file.")]
Results = Annotated[
    Path | None, typer.Option("--results", help="Folder of results; default: studies in the data folder.")
]

study_verbs = typer.Typer(name="study", help="Does the paper hold? Studies with a verdict each.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    app.add_typer(study_verbs)


@study_verbs.command(name="ls")
def list_studies(json: Json = False, data: Data = None) -> None:
    """List the studies with the best verdict that there is for each: yours, or the published one."""
    from api.cli.tables.study import list_table
    from orchestrator.studies.registry import all_studies
    from orchestrator.studies.results import stored_findings

    folder = _results_folder(None, data)
    rows = [(each, stored_findings(each, folder)) for each in all_studies()]
    if json:
        told = [{"name": each.name, "question": each.question, "findings": findings} for each, findings in rows]
        print_json(told)
        return
    console().print(list_table(rows))


@study_verbs.command()
def show(name: Name, json: Json = False, data: Data = None) -> None:
    """Show a study: question, claim, what each scale runs and costs, and its findings."""
    from api.cli.tables.study import study_view
    from orchestrator.studies.results import stored_findings

    each = _known([name])[0]
    found = stored_findings(each, _results_folder(None, data))
    if json:
        print_json(_fields(each, found))
        return
    console().print(study_view(each, found))


@study_verbs.command()
def run(
    names: Names = None,
    scale: ScaleOption = Scale.TINY,
    everything: All = False,
    again: Again = False,
    compare_with_published: Compare = False,
    url: Url = None,
    data: Data = None,
    slots: Slots = None,
    json: Json = False,
) -> None:
    """Run studies: finished experiments are used again, interrupted ones go on. Each ends with its verdict."""
    from api.cli.studies.run import Runner
    from orchestrator.studies.registry import names as all_names

    if bool(names) == everything:
        complain("name the studies to run, or give --all")
        raise typer.Exit(BAD_INPUT)
    chosen = _known(all_names() if everything else names or ())
    settings = read_settings(data=data, slots=slots)
    runner = Runner(scale=scale, folder=settings.data_folder / "studies", again=again)
    with messages_on_stderr(as_json=json):
        _run(runner, chosen, settings, url)
        deviating = runner.tell_deviations(chosen)
        if everything:
            path = runner.folder / "reproduction.md"
            path.write_text(_report(runner.folder), encoding="utf-8")
            print(f"report: {path}")
    if json:
        print_json([{"study": each.name, "scale": scale, "finding": runner.stored(each)} for each in chosen])
    if runner.unanswered(chosen) or (compare_with_published and deviating):
        raise typer.Exit(FAILED)


def _run(runner: "Runner", chosen: "list[Study]", settings: "Settings", url: str | None) -> None:
    """Compute and train what the studies need, on the service at `url`, or on one of our own."""
    from api.cli.admin.own_service import service
    from api.client.client import Client, ClientError

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        runner.compute(chosen)
        trained = [each for each in chosen if each.plans[runner.scale].parts]
        if trained and url:
            with Client(url, retries=4) as client:
                runner.train(client, trained)
        elif trained:
            with service(settings, port_given=False) as (own, check), Client(own, retries=4) as client:
                runner.train(client, trained, check)
    except ClientError as error:
        fail(error)
    except OrchestratorError as error:
        complain(f"error: {error}")
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt:
        print("stopped. What was trained is kept; the same command goes on from there.", flush=True)
        raise typer.Exit(INTERRUPTED) from None


@study_verbs.command()
def report(out: Out = None, results: Results = None, data: Data = None) -> None:
    """Write what was reproduced as Markdown: every study's claim, figures, verdict, and the machine."""
    text = _report(_results_folder(results, data))
    if out is None:
        print(text, end="")
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        complain(f"cannot write {out}: {error.strerror}; choose another file with -o")
        raise typer.Exit(BAD_INPUT) from error
    print(f"{out}  {len(text.encode()):,} bytes")


def _report(folder: Path) -> str:
    from dashboards.text.study import Entry, reproduction
    from orchestrator.studies.registry import all_studies
    from orchestrator.studies.results import stored_findings

    return reproduction([Entry(study=each, findings=stored_findings(each, folder)) for each in all_studies()])


def _fields(each: "Study", findings: "tuple[StoredFinding, ...]") -> dict[str, object]:
    """A study for a script."""
    scales = {
        scale.value: {
            "runs": plan.run_count(),
            "estimated_device_hours": plan.device_hours(),
            "experiments": [{"part": part.name, "key": part.key(), "spec": part.spec} for part in plan.parts],
        }
        for scale, plan in each.plans.items()
    }
    told = {name: getattr(each, name) for name in ("name", "title", "question", "claim", "source", "caveats")}
    return {**told, "scales": scales, "findings": findings}


def _known(names: Sequence[str]) -> "list[Study]":
    from orchestrator.errors import NotFoundError
    from orchestrator.studies.registry import study

    try:
        return [study(name) for name in dict.fromkeys(names)]
    except NotFoundError as error:
        complain(plain(str(error)))
        raise typer.Exit(BAD_INPUT) from None


def _results_folder(given: Path | None, data: Path | None) -> Path:
    return given or (data or environment_settings().data_folder) / "studies"


def _interrupt(_number: int, _frame: FrameType | None) -> Never:
    raise KeyboardInterrupt
