"""Studies in words: effects for pages, reports and the command line, and the reproduction report. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from orchestrator.analysis.verdicts import interval_words
from orchestrator.studies.claims import ClaimVerdict, Finding, Measure
from orchestrator.studies.records import ScaleReport, StudySummary


def figure_text(value: float | None) -> str:
    """Return three decimals, or as many as show two digits of a small figure; a dash for None."""
    if value is None:
        return "—"
    return f"{value:.2g}" if abs(value) < 0.01 else f"{value:.3f}" if abs(value) < 1000 else f"{value:.4g}"


def cost_words(report: ScaleReport) -> str:
    """Return the rough cost of a scale: `about 450 GPU-hours`, `about 12 core-minutes`."""
    if not report.experiments:
        return "seconds"
    if any(part.spec.resources.gpus for part in report.experiments):
        return f"about {report.estimated_device_hours:,.0f} GPU-hours"
    return f"about {max(60 * report.estimated_device_hours, 1):.0f} core-minutes"


def scale_words(study: StudySummary, report: ScaleReport) -> str:
    """Return `tiny scale`, or `computed` for a study that trains nothing."""
    return "computed" if study.is_computed() else f"{report.scale.value} scale"


def origin(study: StudySummary, report: ScaleReport) -> str:
    """Return `tiny scale, published`; an own result that deviates from the published one says so."""
    own_words = "own result, deviates" if report.deviations else "own result"
    return f"{scale_words(study, report)}, {'published' if report.best() is report.published else own_words}"


def answer_tone(answer: ClaimVerdict) -> str:
    """Return the tone of a chip."""
    return {
        ClaimVerdict.SUPPORTED: "good",
        ClaimVerdict.CONTRADICTED: "bad",
        ClaimVerdict.UNDECIDED: "warn",
        ClaimVerdict.MISSING: "wait",
    }[answer]


def effect_sentence(measure: Measure) -> str:
    """Return the effect in a sentence: `AdaPM ends 0.060 nats lower than AdamW (95 %: 0.020 to 0.100, n = 10)`.

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
        text = f"{measure.candidate} keeps {figure_text(value)} of {measure.against}'s optimizer state"
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
    """Return `at most 0.01`, for a difference `not lower`, `at most 0.01 higher` or `within 0.01`; empty without a
    claim."""
    bounds = (("at least", measure.at_least), ("at most", measure.at_most))
    if measure.metric != "loss_difference":
        return " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
    if measure.at_most and measure.at_least == -measure.at_most:
        return f"within {measure.at_most:g}"
    return " and ".join(_difference_bound(word == "at least", bound) for word, bound in bounds if bound is not None)


def _difference_bound(is_least: bool, bound: float) -> str:
    if bound == 0:
        return "not lower" if is_least else "not higher"
    word = "at least" if is_least == (bound > 0) else "at most"
    return f"{word} {abs(bound):g} {'higher' if bound > 0 else 'lower'}"


MEASURE_HEADS = ("measured", "claimed", "verdict", "the paper's figure", "")


def measure_cells(measure: Measure) -> tuple[str, ...]:
    """Return a row of a table: the effect with its interval, the claim's bound, the word, and the paper's figure."""
    paper = "" if measure.claimed is None else figure_text(measure.claimed)
    note = "" if measure.value is None else measure.note
    return (effect_sentence(measure), bound_text(measure), measure.verdict or "", paper, note)


HEAD = """# What was reproduced

{counts}

In short, for models of 0.08 to 0.9 million parameters on two CPU cores, which is no evidence for large models. Losses
are in nats.

1. **Memory.** AdaPM keeps 57 % of AdamW's optimizer state and AdaPM-mini 7 % (the paper: 54 to 56 and 4 to 6).
2. **Short training** (1 token per parameter). AdaPM ends 0.045 lower than AdamW. AdaPM-mini is undecided.
3. **Longer training** (20 tokens per parameter). AdaPM's defaults end 0.021 higher than AdamW, and 0.019 lower
   without the update clip ([AdaPM](adapm.md)).
4. **Tuning.** With warm-up, betas, weight decay and gradient clipping tuned as well, AdamW gains in short
   training as much as SCALE, GaLore and Adafactor lead it by, and AdaPM a third of that: it is undecided, 0.060
   higher.
5. **Bias correction** lowers the loss by 0.437 at a rank of 5 % and by 0.067 at 50 % in longer training: 2.9 and 1.3
   times as fast, where the paper has 1.96 at 50 %.
6. **Partition.** Embeddings and attention output do without momentum: 0.038 lower than full momentum in longer
   training. Low rank for queries, keys and MLPs costs 0.049 on top of that (the paper: 0.033).
7. **Rank, interval and other constants.** No single change is decided in short training. In longer training rank 50 %
   ends 0.061 lower than rank 5 %, and two solver iterations 0.017 lower than one.
8. **Rivals.** In longer training the four that were tried with less state end above AdaPM: AdaPM-mini 0.033, SCALE
   0.076, APOLLO 0.102 and Lion 0.292 (in short training SCALE 0.113 and APOLLO 0.073 below); 8-bit AdamW was not tried.
   With more state Schedule-Free AdamW ends 0.038, Muon 0.174 and SOAP 0.193 below it. Against AdamW, Adam-mini ends
   0.068 higher and GaLore 0.093.
9. **Fine-tuning.** AdaPM ends 0.050 lower than AdamW; in ReMax it is within 0.05 of AdamW's reward.
10. **Time.** Less state admits larger micro-batches; whether that saves device-hours is undecided.

{table}

A claim is *supported* if its interval lies within the claim's bounds (0.01 nats for "on par" is ours), *contradicted*
if outside, *undecided* otherwise. Intervals have 95 % for all comparisons of an experiment together; studies share
runs and are not corrected for each other. The scale `paper` is AdaPM's paper's. `adapm-bench study run NAME` repeats a
study, `adapm-bench study ls NAME` shows every figure and caveat ([studies](studies.md))."""


PLACES = ("appendix", "assumption", "figure", "section", "table", "theorem")
"""First words of the sources of claims of AdaPM's paper; another paper's source has its arXiv number."""


def reproduction(studies: Sequence[StudySummary]) -> str:
    """Return the whole report."""
    head = HEAD.format(counts=claim_counts(studies), table="\n".join(_overview(studies)))
    lines = [head, "", *_machines(studies)]
    for study in studies:
        if study.best() is not None:
            lines += ["", *_section(study)]
    return "\n".join(lines) + "\n"


def claim_counts(studies: Sequence[StudySummary]) -> str:
    """Return the number of studies with a result, and the verdicts on claims of AdaPM's paper, of other papers and of
    ours."""
    findings: dict[str, list[Finding]] = {"claims of AdaPM's paper": [], "of other papers": [], "our own": []}
    for study in studies:
        if (best_pair := study.best()) is not None:
            is_adapms = study.source.startswith(PLACES)
            source_kind = "of other papers" if "arXiv" in study.source else "our own"
            findings["claims of AdaPM's paper" if is_adapms else source_kind].append(best_pair[1])
    every = [finding for group in findings.values() for finding in group]
    measured = sum(finding.answer is not ClaimVerdict.MISSING for finding in every)
    counts = [f"{owner}: {counts}" for owner, group in findings.items() if (counts := verdict_counts(group))]
    return f"{measured} of {len(studies)} studies have a result; {'; '.join(counts) or 'no claim is measured'}."


def verdict_counts(findings: Iterable[Finding]) -> str:
    """Return the number of claims by verdict: `3 supported, 4 contradicted, 1 undecided`."""
    counts = Counter(measure.verdict for finding in findings for measure in finding.measures)
    return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in ClaimVerdict if counts[verdict])


def first_effect(finding: Finding) -> str:
    """Return the study's first claim, as it was measured; empty if none was."""
    claimed = (measure for measure in finding.measures if measure.verdict is not None)
    return next(map(effect_sentence, claimed), "")


def _overview(studies: Sequence[StudySummary]) -> Iterator[str]:
    yield "| question | scale | claims |"
    yield "|---|---|---|"
    for study in studies:
        if (best_pair := study.best()) is not None:
            scale, finding = best_pair
            scale_text = "any" if study.is_computed() else scale.value
            yield f"| [{study.question}](#{study.name}) | {scale_text} | {verdict_counts([finding])} |"
    if unmeasured_studies := [f"`{study.name}`" for study in studies if study.best() is None]:
        yield ""
        yield f"No result yet: {', '.join(unmeasured_studies)}."


def _machines(studies: Iterable[StudySummary]) -> Iterator[str]:
    machine_names = dict.fromkeys(
        machine
        for study in studies
        for report in study.scales
        if (finding := report.best()) is not None
        for machine in finding.machines
    )
    if machine_names:
        yield f"Measured on: {'; '.join(machine_names)}. Each stored result has its commit."


def _section(study: StudySummary) -> Iterator[str]:
    """Yield the claim, then the claimed figures of each scale with a result; `study ls` shows the others."""
    yield f"## {study.name}"
    yield ""
    yield f"Claim ({study.source}): {study.claim}"
    for report in study.scales:
        if (finding := report.best()) is not None:
            yield ""
            yield from _finding(study, report, finding)
    if study.caveats:
        yield ""
        yield from (f"* {caveat}" for caveat in study.caveats)


def _finding(study: StudySummary, report: ScaleReport, finding: Finding) -> Iterator[str]:
    claimed = [measure for measure in finding.measures if measure.verdict is not None]
    answer = f"**{scale_words(study, report).capitalize()}: {finding.answer.value}.**"
    yield answer if claimed else f"{answer} {finding.sentence}"
    if claimed:
        yield ""
        yield f"| {' | '.join(MEASURE_HEADS[:-1])} |"
        yield "|---|---|---|--:|"
        yield from (f"| {' | '.join(map(_cell, measure_cells(measure)[:-1]))} |" for measure in claimed)
    for note in (*finding.notes, *(f"Deviates from the published result: {text}" for text in report.deviations)):
        yield ""
        yield note


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
