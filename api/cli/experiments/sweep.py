"""`adapm-bench sweep show|compare ID`: what a sweep found, and its best trials over fresh seeds."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from api.cli.console import Json, console, plain, print_json, refuse, text_table
from api.cli.experiments.show import Id
from api.cli.experiments.submit import print_power, print_submission
from api.cli.service import Url, open_client, print_hindrance
from dashboards.text import formats
from dashboards.text.answers import outcome, value_text
from orchestrator.sweeps.records import SweepFinding, SweepReport, TrialRow

Seeds = Annotated[int, typer.Option("--seeds", min=1, max=256, help="How many fresh seeds each optimizer gets.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write the comparison into this YAML file instead of submitting it."),
]


verbs = typer.Typer(help="Show a sweep, and compare its best trials.", no_args_is_help=True)


@verbs.command()
def show(id: Id, url: Url = None, json: Json = False) -> None:
    """Show the best trial of each optimizer, which hyperparameters mattered, and every trial."""
    with open_client(url) as client:
        report = client.sweep(id)
    print_json(report) if json else console().print(sweep_view(report))


@verbs.command()
def compare(id: Id, seeds: Seeds = 3, output: Output = None, url: Url = None, json: Json = False) -> None:
    """Submit a comparison of a sweep's best trials over fresh seeds, once it has ended; again, and nothing changes."""
    with open_client(url) as client:
        spec = client.sweep_comparison(id, seeds=seeds)
        if output is not None:
            try:
                fields = spec.model_dump(mode="json")
                output.write_text(yaml.safe_dump(fields, sort_keys=False, allow_unicode=True), encoding="utf-8")
            except OSError as error:
                refuse(f"cannot write {output}: {error.strerror}; choose another file with -o")
            if json:
                print_json({"kind": "comparison", "file": output})
            else:
                print(f"wrote {output}; next: adapm-bench submit {output}")
            return
        # The key holds the specification: with other seeds, or a trial that was retried, this is another comparison.
        submission = client.submit(spec, key=f"sweep-{id}-{spec.content_hash()[:32]}")
        if json:
            print_json(submission)
        else:
            print_submission(submission, client.url)
            print_power(client.validate(spec))
        print_hindrance(client)


def sweep_view(report: SweepReport) -> RenderableType:
    """The whole answer."""
    head = Text(plain(report.name), style="bold")
    head.append(f"  {report.algorithm}, {len(report.trials)} of {report.trials_planned} trials", style="dim")
    notes = Text("\n".join(f"• {plain(note)}" for note in report.notes))
    return Group(head, Text(), _findings(report.findings), Padding(notes, (1, 0)), _trials(report))


def _findings(findings: Iterable[SweepFinding]) -> RenderableType:
    rows = [
        (
            finding.candidate,
            formats.loss(finding.best.objective if finding.best else None),
            _parameters(finding.best.parameters) if finding.best else "no trial has finished its budget and learned",
            ", ".join(f"{each.parameter} {formats.percent(each.share)}" for each in finding.importance) or "—",
            _counts(finding),
        )
        for finding in findings
    ]
    return text_table(("optimizer", "best loss", "at", "importance", "trials"), rows)


def _trials(report: SweepReport) -> RenderableType:
    rows = [
        (
            str(trial.number),
            trial.candidate,
            _parameters(trial.parameters),
            outcome(trial),
            f"{trial.steps}/{trial.steps_total}",
            _loss(trial),
            formats.duration(trial.device_seconds) if trial.device_seconds else formats.UNKNOWN,
        )
        for trial in report.trials
    ]
    if not rows:
        return Text("no trial has begun yet")
    return text_table(("trial", "optimizer", "hyperparameters", "outcome", "steps", "loss", "device time"), rows)


def _loss(trial: TrialRow) -> str:
    """The objective; in parentheses the newest loss of a trial that does not rank."""
    if trial.objective is not None or trial.last_val_loss is None:
        return formats.loss(trial.objective)
    return f"({formats.loss(trial.last_val_loss)})"


def _parameters(parameters: Mapping[str, bool | int | float | str | None]) -> str:
    return ", ".join(f"{name} {value_text(value)}" for name, value in parameters.items())


def _counts(finding: SweepFinding) -> str:
    named = {
        "stopped early": finding.stopped_early,
        "diverged": finding.diverged,
        "out of memory": finding.out_of_memory,
    }
    return "; ".join([str(finding.trials), *(f"{count} {word}" for word, count in named.items() if count)])
