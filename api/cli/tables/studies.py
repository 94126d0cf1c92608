"""Studies and their findings as tables for people."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from api.cli.console import plain, plain_table, text_table
from dashboards.text import formats
from dashboards.text.study import answer_tone, cost_words, figure_text, interval_text, measured_words, origin
from orchestrator.studies.findings import ClaimVerdict, Finding
from orchestrator.studies.results import StoredFinding, best
from orchestrator.studies.study import Study

STYLES = {"good": "green", "warn": "yellow", "bad": "red", "wait": "dim"}
"""The colour of a verdict by its tone."""


def list_table(rows: Iterable[tuple[Study, tuple[StoredFinding, ...]]]) -> RenderableType:
    """One line a study."""
    lines = []
    for study, findings in rows:
        found = best(findings)
        verdict = ("no result yet", "", "")
        if found is not None:
            verdict = (found.finding.answer.value, measured_words(found.finding), origin(study, found))
        lines.append((study.name, study.question, *verdict))
    return text_table(("study", "question", "the claim", "what was run", "from"), lines)


def study_view(study: Study, findings: tuple[StoredFinding, ...]) -> RenderableType:
    """Everything about a study."""
    scales = text_table(
        ("scale", "runs", "estimated", "experiments"),
        [
            (
                scale.value,
                str(plan.run_count()),
                cost_words(plan.device_hours(), plan.specs()),
                ", ".join(part.name for part in plan.parts) or "computed without training",
            )
            for scale, plan in study.plans.items()
        ],
    )
    head = Group(
        Text(f"{study.title} ({study.name})", style="bold"),
        Text(study.question),
        Text(f"Claim ({study.source}): {study.claim}"),
        *(Text(f"Caveat: {each}") for each in study.caveats),
    )
    parts: list[RenderableType] = [head, Padding(scales, (1, 0))]
    parts += [finding_view(study, each) for each in findings] or [Text("no result yet")]
    return Group(*parts)


def finding_view(study: Study, stored: StoredFinding) -> RenderableType:
    """A verdict with its figures."""
    finding = stored.finding
    head = Text(f"{study.name}, {origin(study, stored)}: ", style="bold")
    head.append(finding.answer.value, style=STYLES[answer_tone(finding.answer)])
    if finding.answer is ClaimVerdict.BEYOND:
        head.append(f" (on what was run: {finding.measured.value})")
    lines: list[RenderableType] = [head, Text(plain(formats.sentence(finding.sentence)))]
    if finding.measures:
        lines.append(Padding(_measures(finding, study.axis), (1, 0)))
    lines += [Text(f"Note: {plain(formats.sentence(each))}") for each in finding.notes]
    lines += [Text(f"Deviates: {plain(formats.sentence(each))}") for each in stored.deviations]
    if stored.compared and not stored.deviations and finding.answer is not ClaimVerdict.MISSING:
        lines.append(Text("All of it lies within the published intervals."))
    lines += [Text(f"Measured on {plain(each)}", style="dim") for each in finding.machines]
    return Padding(Group(*lines), (1, 0, 0, 0))


def _measures(finding: Finding, axis: str) -> RenderableType:
    table = plain_table(axis, "measured", "95 % interval", "n", "the paper's")
    table.add_column("", overflow="fold")
    for each in finding.measures:
        claimed = figure_text(each.claimed) if each.claimed is not None else ""
        cells = (plain(each.name), figure_text(each.value), interval_text(each), str(each.n or ""), claimed, each.note)
        table.add_row(*(Text(formats.sentence(cell)) for cell in cells))
    return table
