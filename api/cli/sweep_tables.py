"""A sweep's answer as a table: the best trial of each optimizer, which hyperparameters mattered, every trial."""

from collections.abc import Iterable, Mapping

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from api.cli.console import plain, text_table
from dashboards.text import formats
from dashboards.text.answers import outcome, value_text
from orchestrator.sweeps.records import SweepFinding, SweepReport, TrialRow


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
