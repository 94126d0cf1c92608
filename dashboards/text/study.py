"""Studies in words: effects for pages, reports and the command line, and the reproduction report. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from orchestrator.analysis.verdicts import interval_words
from orchestrator.studies.claims import ClaimVerdict, Finding, Measure
from orchestrator.studies.records import ScaleReport, StudySummary
from worker.words import pluralize

SUMMARY_LINES = 9
"""Of the report's summary, beside the one that counts."""


def figure_text(value: float | None) -> str:
    """Three decimals, or as many as show two digits of a small figure; a dash for none."""
    if value is None:
        return "—"
    return f"{value:.2g}" if abs(value) < 0.01 else f"{value:.3f}" if abs(value) < 1000 else f"{value:.4g}"


def cost_words(report: ScaleReport) -> str:
    """What a scale costs, roughly: `about 450 GPU-hours`, `about 12 core-minutes`."""
    if not report.experiments:
        return "seconds"
    if any(part.spec.resources.gpus for part in report.experiments):
        return f"about {report.estimated_device_hours:,.0f} GPU-hours"
    return f"about {max(60 * report.estimated_device_hours, 1):.0f} core-minutes"


def scale_words(study: StudySummary, report: ScaleReport) -> str:
    """`tiny scale`; what trains nothing has no scale."""
    return "computed" if study.is_computed() else f"{report.scale.value} scale"


def origin(study: StudySummary, report: ScaleReport) -> str:
    """`tiny scale, published`; of an own result also that it deviates from the published one."""
    own = "own result, deviates" if report.deviations else "own result"
    return f"{scale_words(study, report)}, {'published' if report.best() is report.published else own}"


def answer_tone(answer: ClaimVerdict) -> str:
    """The tone of a chip."""
    return {
        ClaimVerdict.SUPPORTED: "good",
        ClaimVerdict.CONTRADICTED: "bad",
        ClaimVerdict.UNDECIDED: "warn",
        ClaimVerdict.BEYOND: "wait",
        ClaimVerdict.MISSING: "wait",
    }[answer]


def effect_sentence(measure: Measure) -> str:
    """The effect in a sentence: `AdaPM ends 0.060 nats lower than AdamW (95 %: 0.020 to 0.100, n = 10)`.

    A figure of a study's own reads `share near zero, embedding: 0.733 (95 %: 0.678 to 0.788, n = 3)`.
    """
    value = measure.value
    if value is None:
        return f"{measure.name}: {measure.note or 'not measured'}"
    if measure.metric == "loss_difference":
        lower = value < 0
        text = f"{measure.candidate} ends {figure_text(abs(value))}{measure.unit} {'lower' if lower else 'higher'}"
        text += f" than {measure.against}"
        ends = (measure.low, measure.high)
        if lower:  # as a size
            ends = tuple(None if end is None else -end for end in reversed(ends))  # type: ignore[assignment]  # still two
        return _append_interval(text, *ends, measure)
    if measure.metric == "speed_up":
        text = f"{measure.candidate} is {figure_text(value)} times as fast to {measure.against}'s final loss"
        return _append_interval(text, measure.low, measure.high, measure)
    if measure.metric == "state_share":
        text = f"{measure.candidate} keeps {value:.1%} of {measure.against}'s optimizer state"
        return _append_interval(text, None, None, measure)
    return _append_interval(
        f"{measure.metric}, {measure.candidate}: {figure_text(value)}", measure.low, measure.high, measure
    )


def _append_interval(text: str, low: float | None, high: float | None, measure: Measure) -> str:
    interval = interval_words(low, high, figure_text)
    details = [f"95 %: {interval}"] if interval else []
    details += [f"n = {measure.n}"] if measure.n else []
    text = f"{text} ({', '.join(details)})" if details else text
    return f"{text}, {measure.part}" if measure.part else text


def bound_text(measure: Measure) -> str:
    """`at most 0.01`; empty where nothing is claimed."""
    bounds = (("at least", measure.at_least), ("at most", measure.at_most))
    return " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)


MEASURE_HEADS = ("measured", "claimed", "verdict", "the paper's figure", "")


def measure_cells(measure: Measure) -> tuple[str, ...]:
    """A row of a table: the effect with its interval, the claim's bound, the word, and the paper's figure."""
    paper = "" if measure.claimed is None else figure_text(measure.claimed)
    note = "" if measure.value is None else measure.note
    return (effect_sentence(measure), bound_text(measure), measure.verdict or "", paper, note)


HEAD = """# What was reproduced

{summary}

A claim is *supported* if its whole interval lies within the claim's bounds, *contradicted* if it lies outside, and
*undecided* otherwise. Intervals have 95 % for all comparisons of an experiment together; studies share runs and are not
corrected for each other. Each word is about models of its scale: 0.08 to 1 million parameters for a moment at the tiny
one, which is no evidence for large models. `adapm-bench study run NAME`
repeats a study, `adapm-bench study ls NAME` shows every figure and caveat ([studies](studies.md)).

Written by `adapm-bench study report`."""


def reproduction(studies: Sequence[StudySummary]) -> str:
    """The whole report."""
    summary = "\n".join(
        f"* {text}" if study is None else f"* [{study.title}](#{study.name}), {text}"
        for study, text in summary_lines(studies)
    )
    lines = [HEAD.format(summary=summary), "", *_overview(studies), "", *_machines(studies)]
    for study in studies:
        if study.best() is not None:
            lines += ["", *_section(study)]
    return "\n".join(lines) + "\n"


def summary_lines(studies: Sequence[StudySummary]) -> list[tuple[StudySummary | None, str]]:
    """What one would say to a colleague: how many claims are decided, and the first claim of each study, in the paper's
    order, with the study that it is of."""
    best = [(study, *found) for study in studies if (found := study.best()) is not None]
    judged = [measure for _, _, finding in best for measure in finding.measures if measure.verdict is not None]
    counts = Counter(measure.verdict for measure in judged)
    words = [f"{counts[verdict]} {verdict.value}" for verdict in ClaimVerdict if counts[verdict]]
    measured = sum(finding.answer is not ClaimVerdict.MISSING for _, _, finding in best)
    head = f"{measured} of {len(studies)} studies have a result; of {pluralize(len(judged), 'claim')} measured "
    effects = [
        (
            study,
            f"{scale_words(study, study.scale(scale))}: {effect_sentence(measure)}; {measure.verdict}"
            f"{'' if measure.verdict is finding.answer else f' (the study: {finding.answer})'}.",
        )
        for study, scale, finding in best
        if (measure := _headline(finding)) is not None
    ]
    return [(None, f"{head}{', '.join(words) or 'none'}."), *effects[:SUMMARY_LINES]]


def _headline(finding: Finding) -> Measure | None:
    """The study's first claim of those that were measured."""
    return next((measure for measure in finding.measures if measure.verdict is not None), None)


def _overview(studies: Sequence[StudySummary]) -> Iterator[str]:
    yield "| study | scale | answer |"
    yield "|---|---|---|"
    for study in studies:
        if (found := study.best()) is not None:
            scale, finding = found
            where = "any" if study.is_computed() else scale.value
            yield f"| [`{study.name}`](#{study.name}) | {where} | {finding.answer.value} |"
    if without := [f"`{study.name}`" for study in studies if study.best() is None]:
        yield ""
        yield f"No result yet: {', '.join(without)}."


def _machines(studies: Iterable[StudySummary]) -> Iterator[str]:
    found = dict.fromkeys(
        machine
        for study in studies
        for report in study.scales
        if (finding := report.best()) is not None
        for machine in finding.machines
    )
    if found:
        yield "Measured on:"
        yield ""
        yield from (f"* {machine}" for machine in found)


def _section(study: StudySummary) -> Iterator[str]:
    """The claim, and of each scale with a result the figures that are claimed; `study ls` shows the others."""
    yield f"## {study.name}"
    yield ""
    yield f"**{study.question}** Claim ({study.source}): {study.claim}"
    for report in study.scales:
        if (finding := report.best()) is not None:
            yield ""
            yield from _finding(study, report, finding)
    if study.caveats:
        yield ""
        yield from (f"* {caveat}" for caveat in study.caveats)


def _finding(study: StudySummary, report: ScaleReport, finding: Finding) -> Iterator[str]:
    yield f"**{scale_words(study, report).capitalize()}: {finding.answer.value}.** {finding.sentence}"
    if claimed := [measure for measure in finding.measures if measure.verdict is not None]:
        yield ""
        yield f"| {' | '.join(MEASURE_HEADS[:-1])} |"
        yield "|---|---|---|--:|"
        yield from (f"| {' | '.join(map(_cell, measure_cells(measure)[:-1]))} |" for measure in claimed)
    for note in (*finding.notes, *(f"Deviates from the published result: {text}" for text in report.deviations)):
        yield ""
        yield note


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
