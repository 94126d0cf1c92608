"""Studies in words: their figures for pages, reports and the command line, and the reproduction report. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.analysis.verdicts import interval_words
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.studies.evidence import StudyScale
from orchestrator.studies.findings import ClaimVerdict, Finding, Measure
from orchestrator.studies.results import StoredFinding, best
from orchestrator.studies.study import Plan, Study
from worker.words import pluralize


def figure_text(value: float | None) -> str:
    """Four significant digits; a dash for none."""
    return "—" if value is None else f"{value:.4g}"


def interval_text(measure: Measure) -> str:
    """`0.31 to 0.35`; empty without one."""
    return interval_words(measure.low, measure.high, lambda value: f"{value:.4g}")


def cost_words(device_hours: float, specs: Sequence[ExperimentSpec]) -> str:
    """What these experiments cost together, roughly: `about 450 GPU-hours`, `about 12 core-minutes`."""
    if not specs:
        return "seconds"
    if any(each.resources.gpus for each in specs):
        return f"about {device_hours:,.0f} GPU-hours"
    return f"about {max(60 * device_hours, 1):.0f} core-minutes"


def scale_words(plan: Plan, scale: StudyScale) -> str:
    """`Tiny scale`; what trains nothing has no scale."""
    return f"{scale.value.capitalize()} scale" if plan.parts else "Computed"


def origin(study: Study, stored: StoredFinding) -> str:
    """`tiny scale, published`; of an own result also that it deviates from the published one."""
    words = scale_words(study.plans[stored.scale], stored.scale)
    own = "own result, deviates" if stored.deviations else "own result"
    return f"{words.lower()}, {'published' if stored.published else own}"


def measured_words(finding: Finding) -> str:
    """What was run, in a word; of a withdrawn result the reason."""
    return finding.sentence if finding.answer is ClaimVerdict.WITHDRAWN else finding.measured.value


def answer_tone(answer: ClaimVerdict) -> str:
    """The tone of a chip."""
    return _TONES[answer]


_TONES = {
    ClaimVerdict.HOLDS: "good",
    ClaimVerdict.IN_PART: "warn",
    ClaimVerdict.FAILS: "bad",
    ClaimVerdict.UNDECIDED: "warn",
    ClaimVerdict.BEYOND: "wait",
    ClaimVerdict.MISSING: "wait",
    ClaimVerdict.WITHDRAWN: "bad",
}


HEAD = """# What was reproduced

Made by `adapm-bench study report` from stored results; do not edit it. Each study holds a claim of AdaPM's paper
(arXiv 2510.09103) or of another, or a question of ours, against what was measured here. `adapm-bench study run NAME`
repeats one, and says where its result lies outside of the intervals below.

*The claim* says whether what the paper claims holds, as far as the scale can tell; *what was run* says what the runs
show by themselves. The tiny scale trains models of about a million parameters for a moment: it shows the mechanism, and
is no evidence for a large model. The middle scale trains models below a million parameters on 20 tokens for each: what
it shows holds for such models. A *withdrawn* result said what its runs do not show, for the reason that stands with it;
it has no verdict until it is run anew. What earlier results said and does not hold stands [at the end](#withdrawn)."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A study with all of its findings."""

    study: Study
    findings: tuple[StoredFinding, ...]


def reproduction(entries: Sequence[Entry], withdrawn: str) -> str:
    """The whole report; `withdrawn`: the section of what earlier results said and does not hold."""
    lines = [HEAD, "", *_overview(entries), "", *_machines(entries)]
    for entry in entries:
        lines += ["", *_section(entry)]
    return "\n".join([*lines, "", withdrawn])


def _overview(entries: Iterable[Entry]) -> Iterator[str]:
    yield "| study | question | scale | the claim | what was run |"
    yield "|---|---|---|---|---|"
    for entry in entries:
        found = best(entry.findings)
        study = entry.study
        link = f"[`{study.name}`](#{study.name})"
        if found is None:
            yield f"| {link} | {_cell(study.question)} | – | {ClaimVerdict.MISSING.value} | |"
        else:
            finding = found.finding
            scale = found.scale.value if study.plans[found.scale].parts else "any"
            yield (
                f"| {link} | {_cell(study.question)} | {scale} | {finding.answer_words()} | {measured_words(finding)} |"
            )


def _machines(entries: Iterable[Entry]) -> Iterator[str]:
    found = dict.fromkeys(
        machine for entry in entries for stored in entry.findings for machine in stored.finding.machines
    )
    if found:
        yield "Measured on:"
        yield ""
        yield from (f"* {machine}" for machine in found)


def _section(entry: Entry) -> Iterator[str]:
    study = entry.study
    yield f"## {study.name}"
    yield ""
    yield f"**{study.title}.** {study.question}"
    yield ""
    yield f"Claim ({study.source}): {study.claim}"
    for caveat in study.caveats:
        yield ""
        yield f"Setting: {caveat}"
    if not entry.findings:
        tiny = study.plans[StudyScale.TINY]
        yield ""
        yield (
            f"No result yet. `adapm-bench study run {study.name}` has {pluralize(tiny.run_count(), 'run')}, "
            f"{cost_words(tiny.device_hours(), tiny.specs())}."
        )
    for stored in entry.findings:
        yield ""
        yield from _finding(stored, study)


def _finding(stored: StoredFinding, study: Study) -> Iterator[str]:
    finding = stored.finding
    ran = f" On what was run: {finding.measured.value}." if finding.answer is ClaimVerdict.BEYOND else ""
    said = finding.judged or finding.sentence
    yield f"**{scale_words(study.plans[stored.scale], stored.scale)}: {finding.answer_words()}.**{ran} {said}"
    if finding.measures:
        yield ""
        yield f"| {_cell(study.axis)} | measured | 95 % interval | n | the paper's | |"
        yield "|---|--:|---|--:|--:|---|"
        yield from (_row(each) for each in finding.measures)
    for note in (*finding.notes, *(f"Deviates from the published result: {each}" for each in stored.deviations)):
        yield ""
        yield note


def _row(measure: Measure) -> str:
    claimed = "" if measure.claimed is None else figure_text(measure.claimed)
    cells = (
        measure.name,
        figure_text(measure.value),
        interval_text(measure),
        str(measure.n or ""),
        claimed,
        measure.note,
    )
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
