"""The words of a comparison: a sentence on each candidate, and at most three notes on what a fair reader must know.

A sentence gives the effect first, the interval second, what to do third. It is made from a verdict's figures last, and
is never parsed.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from orchestrator.design import ComparisonDesign
from orchestrator.jobs import TERMINAL, Outcome
from orchestrator.records import SIGNIFICANCE, CandidateRow, Conclusion, Difference, Instability, RunRecord
from worker.words import pluralize

FAIR_SEEDS = 3
"""Fewer leave a t-interval of 12.7 standard errors."""
LEAST_P = 0.001
"""Smaller p-values are said to be below it."""
MOST_NOTES = 3
TINY_PARAMETERS = 10_000_000
"""Below this a model is tiny: a quarter of the smallest model (40 M) that the AdaPM paper reports."""
WORDS: dict[Conclusion, str] = {
    Conclusion.BASELINE: "baseline",
    Conclusion.BETTER: "better",
    Conclusion.WORSE: "worse",
    Conclusion.AS_GOOD: "as good",
    Conclusion.UNDECIDED: "undecided",
    Conclusion.UNSTABLE: "unstable",
    Conclusion.NO_LOSS: "no loss yet",
}
"""The name of each verdict, wherever people read it."""


def verdict(row: CandidateRow, baseline: CandidateRow, unit: str, sample: str = "seed") -> str:
    """Return the verdict on a candidate as a sentence; `unit` follows a loss: " nats", or nothing. `sample`: what is
    paired, a seed or a replicate."""
    difference = row.difference
    effect = "" if difference is None else _effect(difference, row, baseline, unit, sample)
    match row.conclusion:
        case Conclusion.BASELINE:
            lost = "" if not row.lost_runs() else f" {_lost(row, None)}."
            best = row.best()
            rate = f"learning rate {best.lr:.4g}" if best and best.lr else "a learning rate that was not logged"
            return f"The baseline: {_loss(row, unit, sample)} at {rate if best else 'no setting'}.{lost}"
        case Conclusion.BETTER | Conclusion.WORSE if difference is not None:
            return f"{row.conclusion.value.capitalize()}: {effect}."
        case Conclusion.AS_GOOD if difference is not None:
            return f"As good as {baseline.title} within {difference.margin:g}{unit}: {effect}."
        case Conclusion.UNSTABLE:
            return f"Unstable: {_lost(row, baseline)}." + (f" {effect} on the others." if effect else "")
        case Conclusion.UNDECIDED if difference is not None:
            return f"Undecided: {effect}. {_way_to_decide(difference, row, baseline, sample)}"
        case Conclusion.UNDECIDED:
            return f"Undecided: no seed has a loss both here and for {baseline.title}."
    return _no_loss(row)


def interval_words(low: float | None, high: float | None, text: Callable[[float], str]) -> str:
    """Return `0.31 to 0.35`; with one bound `from 0.31` or `up to 0.35`, and an empty text without any."""
    if low is None or high is None:
        return f"from {text(low)}" if low is not None else f"up to {text(high)}" if high is not None else ""
    return f"{text(low)} to {text(high)}"


def signed_text(value: float) -> str:
    """Return a difference with its sign and four decimals, or as many as show that it is not zero: `-0.0124`."""
    digits = 4
    if value and abs(value) < 0.5e-4:
        digits = math.ceil(-math.log10(abs(value)))
    return f"{value:+.{digits}f}" if digits <= 9 else f"{value:+.0e}"


def p_number(value: float) -> str:
    """Return `0.034`, `< 0.001`; `< 0.05` where two digits would round it up to that."""
    if value < LEAST_P:
        return f"< {LEAST_P:g}"
    text = f"{value:.2g}"
    return f"< {SIGNIFICANCE:g}" if value < SIGNIFICANCE <= float(text) else text


def p_text(value: float) -> str:
    """Return `p = 0.034` or `p < 0.001`."""
    number = p_number(value)
    return f"p {number}" if number.startswith("<") else f"p = {number}"


def stability_text(candidate: Instability | None, baseline: Instability | None, baseline_title: str) -> str:
    """Return `2 of 10 runs were lost (95 %: 3 to 56 %), 0 of 10 of AdamW's (p = 0.5)`."""
    if candidate is None:
        return "no run has ended"
    have = "was" if candidate.lost == 1 else "were"
    interval = f"{100 * candidate.low:.0f} to {100 * candidate.high:.0f} %"
    sentence = f"{candidate.lost} of {pluralize(candidate.runs, 'run')} {have} lost (95 %: {interval})"
    if baseline is None or candidate.p_value is None:
        return sentence
    return f"{sentence}, {baseline.lost} of {baseline.runs} of {baseline_title}'s ({p_text(candidate.p_value)})"


def effect_text(difference: Difference, unit: str) -> str:
    """Return `0.0351 nats lower`, `0.0012 higher`, `at the same loss`."""
    if difference.mean == 0:
        return "at the same loss"
    return f"{signed_text(abs(difference.mean))[1:]}{unit} {'lower' if difference.mean < 0 else 'higher'}"


def interval_of_effect(difference: Difference) -> str:
    """Return the interval in the direction of the effect: `0.0080 to 0.0610`, `-0.0130 to 0.0210`; empty if there is
    none."""
    if difference.low is None or difference.high is None:
        return ""
    low, high = (-difference.high, -difference.low) if difference.mean < 0 else (difference.low, difference.high)
    return f"{_plain(low)} to {_plain(high)}"


def notes(design: ComparisonDesign, runs: Sequence[RunRecord], rows: Sequence[CandidateRow]) -> tuple[str, ...]:
    """Return at most three notes, the gravest first."""
    return tuple(islice(_all_notes(design, runs, rows), MOST_NOTES))


def _all_notes(design: ComparisonDesign, runs: Sequence[RunRecord], rows: Sequence[CandidateRow]) -> Iterator[str]:
    results = [run.result for run in runs if run.result]
    if open_runs := sum(run.status not in TERMINAL for run in runs):
        have = "has" if open_runs == 1 else "have"
        yield f"{open_runs} of {pluralize(len(runs), 'run')} {have} not ended: everything here may still change."
    if damaged := sum(run.damaged is not None for run in runs):
        yield (
            f"{pluralize(damaged, 'run')} cannot be read because what is stored is damaged; `adapm-bench db check` "
            "names them."
        )
    if len({result.data_hash for result in results}) > 1:
        yield "The runs did not read the same data: their losses do not compare."
    if design.equal == "device_hours":
        steps = {run.candidate: run.steps_total for run in runs if run.seed in design.seeds}
        allowed = ", ".join(f"{row.title} {steps[row.candidate]:,}" for row in rows if row.candidate in steps)
        yield f"At equal device-hours, by each one's pace in tuning; steps: {allowed or 'not known yet'}."
    yield from loss_notes(design, rows)
    if missing := sum(run.outcome() in (Outcome.FAILED, Outcome.CANCELLED) for run in runs):
        yield f"{pluralize(missing, 'run')} failed or {'was' if missing == 1 else 'were'} cancelled, without a result."
    if rivalled := next((row.difference for row in rows if _rivals_evaluation(row.difference)), None):
        yield (
            f"The choice of the validation text adds an error of about {rivalled.evaluation_error:.4f} nats, which the "
            "intervals include. Raise `evaluation.sequences` to reduce it; more seeds do not."
        )
    devices = {(result.environment.device, result.environment.device_name) for result in results}
    if len(devices) > 1:
        yield "Measured on several kinds of device: times and memory do not compare."
    elif micro_batches := _micro_batch_note(design, runs, rows):
        yield micro_batches
    largest = max((result.parameters for result in results), default=TINY_PARAMETERS)
    if largest < TINY_PARAMETERS:
        on_cpu = ", on a CPU" if any(device == "cpu" for device, _ in devices) else ""
        size = f"{largest / 1e6:.1f} M" if largest >= 100_000 else f"{largest:,}"
        yield f"A model of {size} parameters{on_cpu}: no evidence for large models."


def _micro_batch_note(design: ComparisonDesign, runs: Sequence[RunRecord], rows: Sequence[CandidateRow]) -> str:
    """Return the effect of different micro-batches on times and memory; empty if all runs took the same."""
    sizes: dict[str, list[int]] = {}
    for run in runs:
        if run.result is not None and run.result.micro_batch_sequences is not None:
            sizes.setdefault(run.candidate, []).append(run.result.micro_batch_sequences)
    if len({size for of_candidate in sizes.values() for size in of_candidate}) < 2:
        return ""
    executions = {run.spec.workload.execution for run in runs if run.spec is not None}
    execution = executions.pop() if len(executions) == 1 else None
    if execution is None or execution.memory_cap_gib is None or execution.micro_batch_sequences != "auto":
        return "Measured with different micro-batches: times and memory do not compare."
    batches = ", ".join(f"{row.title} {min(sizes[row.candidate])}" for row in rows if row.candidate in sizes)
    at_equal = (
        f"At equal memory: micro-batches of as many sequences as fit into {execution.memory_cap_gib:g} GiB ({batches})."
    )
    return f"{at_equal} Times compare, at equal tokens." if design.equal == "tokens" else at_equal


def loss_notes(design: ComparisonDesign, rows: Sequence[CandidateRow]) -> Iterator[str]:
    """Yield the notes on losses, settings and seeds, of any source."""
    if not design.is_tuned and any(len(row.learning_rates) > 1 for row in rows):
        yield "The same seeds chose and judged the learning rates, so the losses look too good: tune on other seeds."
    if design.searched and design.replicates == 1:
        yield "A search has luck, which the intervals leave out: `tuning.replicates` includes it."
    if at_edge := [row for row in rows if row.edge_of_grid and row.val_loss is not None]:
        edge_candidates = [row for row in at_edge if not row.is_baseline]
        limits = [f"{'it is' if len(edge_candidates) == 1 else 'they are'} not called worse"] if edge_candidates else []
        limits += [f"nothing is called better than {row.title}" for row in at_edge if row.is_baseline]
        yield (
            f"The best learning rate of {' and of '.join(row.title for row in at_edge)} is at an end of those tried, "
            f"so {' and '.join(limits)}. Start nearer to it, or try more rates."
        )
    for row in rows:
        if row.lost_runs():
            yield f"{row.title}: {stability_text(row.instability, None, '')}, so its loss covers the others."
    if not design.is_tuned and len(rows) > 1 and all(len(row.learning_rates) == 1 for row in rows):
        yield "Nothing was tuned here: the verdicts apply to these learning rates alone."


def note_on_baseline(design: ComparisonDesign, baseline: str, without_choice: str) -> str:
    """Return a note on a baseline that is not the design's. `without_choice`: which one that is."""
    planned, tested = design.comparisons, design.hold_against(baseline).comparisons
    wider = "" if planned == tested else f", so intervals are corrected for {tested} comparisons instead of {planned}"
    return f"The baseline {baseline} was chosen after the fact ({without_choice}){wider}."


def _rivals_evaluation(difference: Difference | None) -> bool:
    return (
        difference is not None
        and difference.low is not None
        and 4 * difference.evaluation_error > max(abs(difference.mean), difference.mean - difference.low)
    )


def _effect(difference: Difference, row: CandidateRow, baseline: CandidateRow, unit: str, sample: str) -> str:
    """Return `AdaPM ends 0.0600 nats lower than AdamW (95 %: 0.0200 to 0.1000, 5 seeds, p = 0.012)`."""
    compared = f"as {baseline.title}" if difference.mean == 0 else f"than {baseline.title}"
    interval = interval_of_effect(difference)
    evidence = [*([f"95 %: {interval}"] if interval else []), pluralize(difference.n, sample)]
    if difference.p_value is not None:
        evidence.append(p_text(difference.p_value))
    return f"{row.title} ends {effect_text(difference, unit)} {compared} ({', '.join(evidence)})"


def _way_to_decide(difference: Difference, row: CandidateRow, baseline: CandidateRow, sample: str) -> str:
    higher = row if difference.mean > 0 else baseline
    if difference.decides() and higher.edge_of_grid:
        return f"{higher.title}'s best learning rate is the last one tried, so a better one may lie beyond."
    if difference.decides() or difference.is_within_margin:
        return f"{baseline.title} lost more runs, so neither is called better: find out why."
    if difference.seeds_to_decide is not None:
        return f"A new experiment on about {pluralize(difference.seeds_to_decide, f'fresh {sample}')} would decide."
    if difference.low is None:
        return f"Add {sample}s."
    if 2 * difference.evaluation_error > max(abs(difference.mean), difference.margin or 0.0):
        return f"More {sample}s would not decide: raise `evaluation.sequences`."
    return f"Even a thousand {sample}s would not decide so small a difference."


def _lost(row: CandidateRow, baseline: CandidateRow | None) -> str:
    baseline_instability = baseline.instability if baseline else None
    return stability_text(row.instability, baseline_instability, baseline.title if baseline else "")


def _no_loss(row: CandidateRow) -> str:
    ended = sum(rate.runs_ended for rate in row.learning_rates)
    total = sum(rate.runs_total for rate in row.learning_rates)
    if row.tuning and row.best_lr is not None and ended:
        return (
            f"Tuning: {ended} of {pluralize(total, 'run')} ended; the best learning rate so far is {row.best_lr:.4g}."
        )
    if row.final is not None and not row.final.runs_ended:
        return f"Tuned: learning rate {row.final.lr:.4g}; no judged run has ended yet."
    if row.verdicts:
        counts = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in sorted(row.outcomes.items()))
        return f"No finite validation loss: {counts}."
    return "No run has ended yet." if not ended else "No run ended with a result."


def _loss(row: CandidateRow, unit: str, sample: str) -> str:
    if row.val_loss is None:
        return "no loss"
    half = row.val_loss.half_width()
    spread = "" if half is None else f" ± {half:.4f}"
    return f"{row.val_loss.mean:.4f}{spread}{unit} ({pluralize(row.val_loss.n, sample)})"


def _plain(value: float) -> str:
    text = signed_text(value)
    return text[1:] if text.startswith("+") else text
