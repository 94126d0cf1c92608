"""The words of a comparison: a conclusion on each candidate, its sentence, and notes on what a fair reader must know.

A conclusion never says more than the interval supports: better or worse is who has an interval without zero. Sentences
are made of it last, and nobody reads them back; numbers in them are rounded to the side on which they lie.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from optim.catalog import Scalar
from orchestrator.jobs import TERMINAL, Outcome, RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.coordinate_descent import SAME_PLACE, place_of
from orchestrator.kinds.tuning import Tuning
from orchestrator.kinds.tuning_search import AXES, FIELDS, Axis, Prior, axes_in_words
from orchestrator.records import (
    SIGNIFICANCE,
    CandidateRow,
    Conclusion,
    Difference,
    Instability,
    LearningRateRow,
    RunRecord,
    SeedsStatus,
)
from worker.records.result import Result, Verdict
from worker.words import pluralize

FAIR_SEEDS = 3
"""Fewer seeds leave a t-interval so wide (12.7 standard errors for two) that it decides nothing."""
LEAST_SHOWN = 0.5e-4
"""Less than this of a loss is 0.0000 in a note."""
LEAST_P = 0.001
"""Smaller p-values are said to be below it."""
MOST_P_DIGITS = 6
TINY_PARAMETERS = 10_000_000
"""Below this a model is tiny: a quarter of the smallest model (40 M) that the AdaPM paper reports."""


def conclusion(row: CandidateRow, baseline: CandidateRow) -> Conclusion:
    """What the figures of a candidate say, held against the baseline's."""
    best = row.best()
    if best is None or row.val_loss is None:
        return Conclusion.NO_LOSS
    if _lost_seeds(best):
        return Conclusion.UNSTABLE
    if row.is_baseline:
        return Conclusion.BASELINE
    if row.difference is None:
        return Conclusion.NOT_COMPARED
    if _planned_rates(row) != _planned_rates(baseline):
        return Conclusion.UNEQUALLY_TUNED
    if row.difference.spiked > row.difference.baseline_spiked:
        return Conclusion.UNSTABLE
    if row.difference.most_spiked:
        return Conclusion.NOT_COMPARED
    if not row.difference.decides():
        return Conclusion.AS_GOOD if row.difference.is_within_margin() else Conclusion.UNDECIDED
    return Conclusion.BETTER if row.difference.mean < 0 else Conclusion.WORSE


def verdict(row: CandidateRow, baseline: CandidateRow, unit: str, spec: ComparisonSpec) -> str:
    """The conclusion on a candidate as a sentence; `unit` follows a loss: " nats", or nothing. Where more than the rate
    was tuned, it says what was and what was not."""
    best, found = row.best(), row.difference
    match row.conclusion:
        case Conclusion.UNSTABLE if best is not None and (lost := _lost_seeds(best)):
            return f"No stable learning rate: at the best one, {best.lr:.4g}, {lost}."
        case Conclusion.UNSTABLE if found is not None:
            return f"Not stable, so no verdict on its loss: {_stability(row, baseline)}."
        case Conclusion.BASELINE if best is not None:
            said = f"The baseline: {_loss(row, unit)} at lr {best.lr:.4g}."
            lost = _stability(row, None) if row.instability and row.instability.lost else ""
            return f"{said} {lost[0].upper()}{lost[1:]}." if lost else said
        case Conclusion.UNEQUALLY_TUNED if found is not None:
            return _unequal(found, baseline.title, _planned_rates(row), _planned_rates(baseline), unit)
        case Conclusion.BETTER | Conclusion.WORSE | Conclusion.AS_GOOD | Conclusion.UNDECIDED if found is not None:
            said = _difference(found, row, baseline, unit, spec) + _search_phrase(spec)
            if found.spiked or found.baseline_spiked:
                return f"{said} Seeds with a spike left out: {_stability(row, baseline)}."
            return said
        case Conclusion.NOT_COMPARED if found is not None:
            return f"No verdict, for half of the seeds and more have a spike: {_stability(row, baseline)}."
        case Conclusion.NOT_COMPARED:
            return _not_compared(baseline)
    return _no_loss(row)


def interval_words(low: float | None, high: float | None, text: Callable[[float], str]) -> str:
    """`0.31 to 0.35`; of an interval with one bound `from 0.31` or `up to 0.35`, and of none nothing."""
    if low is None or high is None:
        return f"from {text(low)}" if low is not None else f"up to {text(high)}" if high is not None else ""
    return f"{text(low)} to {text(high)}"


def signed_text(value: float) -> str:
    """A difference with its sign and four decimals, or as many as it takes to tell it from zero: `-0.0124`."""
    digits = 4
    if value and abs(value) < 0.5e-4:
        digits = math.ceil(-math.log10(abs(value)))
    return f"{value:+.{digits}f}" if digits <= 9 else f"{value:+.0e}"


def p_number(value: float) -> str:
    """`0.034`, `< 0.001`; with as many digits as it takes to see on which side of 0.05 it lies."""
    if value < LEAST_P:
        return f"< {LEAST_P:g}"
    digits = 2
    while (float(f"{value:.{digits}g}") < SIGNIFICANCE) != (value < SIGNIFICANCE):
        digits += 1
    # That of a sequential interval just beside zero may be the last number before 0.05.
    return f"{value:.{digits}g}" if digits <= MOST_P_DIGITS else f"< {SIGNIFICANCE:g}"


def p_text(value: float) -> str:
    """`p = 0.034`, `p < 0.001`."""
    number = p_number(value)
    return f"p {number}" if number.startswith("<") else f"p = {number}"


def notes(
    spec: ComparisonSpec,
    runs: Sequence[RunRecord],
    rows: Sequence[CandidateRow],
    overtaken: Mapping[str, float] | None = None,
    best_tried: Mapping[str, tuple[float, float]] | None = None,
) -> tuple[str, ...]:
    """What limits the answer, the gravest first. `overtaken`: for each candidate whose grid is led by another rate now
    than that of its final runs, that other rate. `best_tried`: for each that is judged at another rate than the best
    one that it tried, that rate and the lost one beside it."""
    results = [run.result for run in runs if run.result]
    found = (
        *fairness_notes(spec, runs, rows, overtaken, best_tried),
        *_evaluation_notes(spec, rows),
        *_measurement_notes(results),
        *_peak_notes(rows),
        *_micro_batch_notes(spec, runs, rows),
    )
    return tuple(found)


def fairness_notes(
    spec: ComparisonSpec,
    runs: Sequence[RunRecord],
    rows: Sequence[CandidateRow],
    overtaken: Mapping[str, float] | None = None,
    best_tried: Mapping[str, tuple[float, float]] | None = None,
    *,
    is_external: bool = False,
) -> tuple[str, ...]:
    """The notes that rest on losses, rates and seeds alone, whoever measured them; of external runs the bench chooses
    neither rates nor seeds, and whoever trains them is told what to do."""
    found = (
        *_progress_notes(spec, runs, rows),
        *_loss_notes(rows),
        *_look_notes(spec, rows),
        *_seed_notes(spec, rows),
        *_grid_notes(spec, rows, best_tried or {}),
        *_choice_notes(spec, rows, is_external),
        *_overtaking_notes(rows, overtaken or {}),
    )
    return tuple(found)


def note_on_baseline(spec: ComparisonSpec, baseline: str, without_choice: str) -> str:
    """What a reader must know of a baseline that is not the specification's. `without_choice`: which one that is."""
    planned, tested = spec.comparison_count(), spec.hold_against(baseline).comparison_count()
    price = (
        "the intervals allow for that as they are"
        if planned == tested
        else f"any pair of candidates could have been held against each other, so that {tested} differences count as "
        f"tested instead of {planned}, and intervals are wider"
    )
    own = spec.baseline_name()
    seeds = "" if spec.sequential is None else f"; seeds are added by differences to {own}, whatever is open here"
    return f"the baseline {baseline} was chosen after the fact, {without_choice}; {price}{seeds}."


# Verdicts


def _planned_rates(row: CandidateRow) -> int:
    """The size of the grid before its edge was followed: that rule is the same for all and favours nobody."""
    return len(row.learning_rates) - row.extended_rates


def _no_loss(row: CandidateRow) -> str:
    if not any(rate.runs_ended for rate in row.learning_rates):
        return "No run has ended yet."
    if row.best_lr is not None and row.final is None and row.tuning:
        return _tuning_progress(row)
    if row.best_lr is not None and row.final is not None and not row.lost_runs():
        has_ended = "ended with a result" if _has_ended(row) else "has ended yet"
        return f"Tuned: lr {row.best_lr:.4g}; no run of the seeds that count {has_ended}."
    if row.verdicts:
        counts = ", ".join(f"{count} {_VERBS[kind]}" for kind, count in sorted(row.outcomes.items()))
        return f"No finite validation loss at any learning rate: {counts}."
    return "No run ended with a result." if _has_ended(row) else "No run has ended with a result yet."


def _has_ended(row: CandidateRow) -> bool:
    """Whether nothing more comes: a run whose result asks for further ones has them before it counts as ended."""
    return all(rate.runs_ended == rate.runs_total for rate in row.all_runs())


def _tuning_progress(row: CandidateRow) -> str:
    if _has_ended(row):
        return f"Never judged: of the runs that tuned it, those at lr {row.best_lr:.4g} ended best."
    ended = sum(rate.runs_ended for rate in row.learning_rates)
    total = sum(rate.runs_total for rate in row.learning_rates)
    have = "has" if ended == 1 else "have"
    runs = f"{ended} of {pluralize(total, 'run')} {have} ended"
    return f"Tuning: {runs}, the best learning rate so far is {row.best_lr:.4g}."


def _lost_seeds(best: LearningRateRow) -> str | None:
    """How many seeds gave no trained model, where that forbids to compare the mean over the others."""
    if best.diverged:
        return f"{best.diverged} of {pluralize(best.runs_total, 'seed')} diverged"
    if best.out_of_memory:
        return f"{best.out_of_memory} of {pluralize(best.runs_total, 'seed')} ran out of memory"
    return None


def _not_compared(baseline: CandidateRow) -> str:
    best = baseline.best()
    name = f"{baseline.title}, the baseline" if baseline.is_baseline else baseline.title
    if baseline.val_loss is None or best is None:
        return f"Not compared: {name}{',' if baseline.is_baseline else ''} has no finite validation loss."
    if lost := _lost_seeds(best):
        return f"Not compared: {lost} for {name}."
    return f"Not compared: no seed has a loss both here and for {name}."


def _single_rates_phrase(row: CandidateRow, baseline: CandidateRow) -> str:
    """At which learning rates, where neither had another: such a verdict says nothing of tuned optimizers."""
    if max(_planned_rates(row), _planned_rates(baseline)) > 1 or row.best_lr is None or baseline.best_lr is None:
        return ""
    if row.best_lr == baseline.best_lr:
        return f" at learning rate {row.best_lr:.4g} each"
    return f" at learning rates {row.best_lr:.4g} for {row.title} and {baseline.best_lr:.4g} for {baseline.title}"


def _difference(found: Difference, row: CandidateRow, of: CandidateRow, unit: str, spec: ComparisonSpec) -> str:
    baseline, rates = of.title, _single_rates_phrase(row, of)
    gap = f"{signed_text(abs(found.mean))[1:]}{unit}"
    side = "below" if found.mean < 0 else "above"
    if found.p_value is None:
        return _unproven_sentence(found, f"{gap} {side} {baseline}{rates}", row, of, spec)
    kinds = ["simultaneous"] * (found.comparisons > 1) + ["sequential"] * found.at_look
    interval = " ".join([*kinds, "95 % interval"])
    ends = interval_words(found.low, found.high, signed_text)
    evidence = f"{interval} {ends}, n = {found.n}, {p_text(found.p_value)}"
    if found.decides():
        less = f" It is shown to be less than the margin of {found.margin:g}{unit}." if found.is_within_margin() else ""
        return f"{'Better' if found.mean < 0 else 'Worse'} than {baseline} by {gap}{rates} ({evidence}).{less}"
    if found.is_within_margin():
        return f"As good as {baseline} within {found.margin:g}{unit}: {gap} {side} it on average{rates} ({evidence})."
    return f"No difference to {baseline} shown: {gap} {side} it on average{rates} ({evidence})."


def _search_phrase(spec: ComparisonSpec) -> str:
    """` Tuned: lr, beta2; 8 random trials each. Not tuned: warm-up, beta1, weight decay, clip.`; else nothing."""
    if spec.tuning is None or not spec.tuning.search:
        return ""
    untuned = [axis for axis in AXES if axis not in spec.tuning.search]
    trials = pluralize(spec.tuning.trials or 0, "random trial" if spec.draws() else "trial")
    said = f" Tuned: {axes_in_words(spec.tuning.search)}; {trials} each."
    return f"{said} Not tuned: {axes_in_words(untuned)}." if untuned else said


def _stability(row: CandidateRow, baseline: CandidateRow | None) -> str:
    return stability_text(
        row.instability, baseline.instability if baseline else None, baseline.title if baseline else ""
    )


def stability_text(mine: Instability | None, theirs: Instability | None, baseline: str) -> str:
    """`2 of 10 runs spiked or diverged (95 % interval 3 to 56 %), 0 of 10 of AdamW's (p = 0.5)`."""
    if mine is None:
        return "no run has ended"
    interval = f"{100 * mine.low:.0f} to {100 * mine.high:.0f} %"
    said = f"{mine.lost} of {pluralize(mine.runs, 'run')} spiked or diverged (95 % interval {interval})"
    if theirs is None or mine.p_value is None:
        return said
    return f"{said}, {theirs.lost} of {theirs.runs} of {baseline}'s ({p_text(mine.p_value)})"


def _unequal(found: Difference, baseline: str, rates: int, baseline_rates: int, unit: str) -> str:
    """More tries find a lower minimum by chance alone, so that no test of the two minima is fair."""
    gap = f"{signed_text(abs(found.mean))[1:]}{unit} {'below' if found.mean < 0 else 'above'} {baseline}"
    return f"Not tuned equally: {gap}, but with {rates} learning rates against {baseline_rates}; no verdict."


def _unproven_sentence(
    found: Difference, measured: str, row: CandidateRow, baseline: CandidateRow, spec: ComparisonSpec
) -> str:
    if found.rate_is_open and spec.descends():
        return (
            f"No verdict: {measured} on average, but a search did not see the loss rise along the learning rate, or "
            "saw an axis at one place only: a better setting could turn that."
        )
    if found.rate_is_open and spec.draws():
        return (
            f"No verdict: {measured} on average, but of one of the two too few random trials were trained: other draws "
            "could turn that."
        )
    if found.rate_is_open:
        return f"No verdict: {measured} on average, but {_open_rate_phrase(found, row, baseline, spec)}."
    if spec.tries_improvement():
        pairs = pluralize(found.n, "pair")
        return f"The campaign's ledger has the verdict: {measured} on average over {pairs}."
    if found.n == 1:
        return f"No difference shown: {measured} on the one common seed, and one seed proves nothing."
    if found.at_look:
        return f"No difference shown: {measured} on average, and {found.n} seeds are too few for a look."
    if found.mean == 0:
        return f"No difference shown: the same loss on all {found.n} common seeds."
    return f"No difference shown: {measured} by the same amount on all {found.n} seeds, without spread to test by."


def _open_rate_phrase(found: Difference, row: CandidateRow, baseline: CandidateRow, spec: ComparisonSpec) -> str:
    """Whose learning rate is open, so that a better one could turn a difference, and what to do about it."""
    is_small = found.mean == 0 or (found.margin is not None and abs(found.mean) < found.margin)
    could_turn = [each for each in (row, baseline) if is_small or (each is row) == (found.mean > 0)]
    if at_edge := [each for each in could_turn if each.edge_of_grid]:
        where = " and ".join(
            f"{each.title}'s best learning rate, {each.best_lr:.4g}, is the {_edge_words(each)[0]} of its grid"
            for each in at_edge
        )
        tries = " and ".join(f"{_edge_words(each)[1]} rates for {each.title}" for each in at_edge)
        return f"{where}: a better one could turn that. Try {tries}"
    if (kept := spec.kept_rates) is not None:
        names = " and ".join(each.title for each in could_turn if kept.regrets.get(each.candidate) is None)
        return (
            f"experiment {kept.experiment}, whose rates these are, left open how much better another one is for "
            f"{names}, and that could turn it. Tune {names} over more rates"
        )
    return (
        f"too few runs about the best learning rate of {' or '.join(each.title for each in could_turn)} trained "
        "to the end without a spike: a better one could turn that. Try more rates about it"
    )


def _edge_words(row: CandidateRow) -> tuple[str, str]:
    """At which edge of its grid the best rate of a candidate lies, and what other rates are beyond it."""
    is_highest = row.best_lr == max(rate.lr for rate in row.learning_rates)
    return ("highest", "higher") if is_highest else ("lowest", "lower")


def _loss(row: CandidateRow, unit: str) -> str:
    assert row.val_loss is not None
    half = row.val_loss.half_width()
    spread = "" if half is None else f" ± {half:.4f}"
    return f"{row.val_loss.mean:.4f}{spread}{unit} (n = {row.val_loss.n})"


# Notes


def _progress_notes(spec: ComparisonSpec, runs: Sequence[RunRecord], rows: Iterable[CandidateRow]) -> Iterator[str]:
    open_runs = sum(run.status not in TERMINAL for run in runs)
    if open_runs:
        have = "has" if open_runs == 1 else "have"
        yield f"{open_runs} of {pluralize(len(runs), 'run')} {have} not ended: everything here may still change."
    judged = [run for run in runs if run.seed in spec.seeds]
    if spec.sequential is None and any(run.result for run in judged) and any(map(_was_cancelled, judged)):
        yield (
            "Seeds were cancelled. Intervals are those of a number of seeds that was fixed beforehand: where it was "
            "cut because of what this table showed, they are wrong more often than they say. `sequential` allows it."
        )
    if open_runs and (tuning := [row.title for row in rows if row.tuning]):
        yield f"Still tuning, so more runs will follow: {', '.join(tuning)}."
    if count := sum(run.damaged is not None for run in runs):
        yield (
            f"{pluralize(count, 'run')} cannot be read in full: what is stored is damaged, and a damaged result does "
            "not count; `adapm-bench db check` names all of it."
        )
    for status in (RunStatus.FAILED, RunStatus.CANCELLED):
        if count := sum(run.status is status for run in runs):
            yield f"{pluralize(count, 'run')} {status} and without a result."


def _was_cancelled(run: RunRecord) -> bool:
    return run.status is RunStatus.CANCELLED


def _loss_notes(rows: Iterable[CandidateRow]) -> Iterator[str]:
    for row in rows:
        for kind in (Outcome.DIVERGED, Outcome.OUT_OF_MEMORY):
            if count := row.outcomes.get(kind, 0):
                yield f"{row.title}: {pluralize(count, 'run')} {_VERBS[kind]}; rates with such a seed rank last."


def _ranks_first_by_seeds(row: CandidateRow, other: CandidateRow) -> bool:
    """Whether a row stands before another one, of which all seeds that ended were trained, for its seeds alone."""
    if row.val_loss is None or other.val_loss is None or set(other.verdicts) - {Verdict.CONVERGED}:
        return False
    return other.val_loss.mean < row.val_loss.mean and _seeds_with_loss(other) < _seeds_with_loss(row)


def _seeds_with_loss(row: CandidateRow) -> int:
    """Those that were left out for a spike among them."""
    best = row.best()
    return (row.val_loss.n if row.val_loss else 0) + (best.left_out if best else 0)


_STATUSES = {
    SeedsStatus.WAITING: "the next look waits for runs",
    SeedsStatus.OPEN: "more could decide",
    SeedsStatus.DECIDED: "decided",
    SeedsStatus.FUTILE: "hopeless: the others would hardly decide",
    SeedsStatus.ALL_USED: "none is left",
    SeedsStatus.NO_VERDICT: "no seed can give a verdict",
}


def _look_notes(spec: ComparisonSpec, rows: Iterable[CandidateRow]) -> Iterator[str]:
    used = [(row.title, row.seeds_used) for row in rows if row.seeds_used is not None]
    if not used:
        return
    each = "; ".join(
        f"{title} {pluralize(of.seeds, 'seed')} and {pluralize(of.looks, 'look')}, {_STATUSES[of.status]}"
        for title, of in used
    )
    if spec.tries_improvement():
        yield (
            f"Seeds are added until the campaign's ledger has a verdict, up to {len(spec.seeds)}: {each}. An interval "
            "here would not hold, because the verdict decides when they end."
        )
        return
    yield (
        f"Seeds are added while verdicts are open, up to {len(spec.seeds)}: {each}. Intervals and p-values hold at all "
        "looks together, whatever the reason was to stop."
    )


def _seed_notes(spec: ComparisonSpec, rows: Sequence[CandidateRow]) -> Iterator[str]:
    if len(spec.seeds) < FAIR_SEEDS:
        yield f"{pluralize(len(spec.seeds), 'seed')}: fewer than {FAIR_SEEDS} cannot show small differences."
    for row in rows:
        best = row.best()
        if best is not None and row.val_loss is not None and _seeds_with_loss(row) < best.runs_total:
            seeds = pluralize(best.runs_total, "seed")
            yield f"{row.title} has {_seeds_with_loss(row)} of its {seeds} at its best learning rate."
    for place, row in enumerate(rows if spec.sequential is None else ()):
        if any(_ranks_first_by_seeds(other, row) for other in rows[:place]):
            yield f"{row.title} ranks behind higher means: candidates with all of their seeds rank first."
    baseline = next(row for row in rows if row.is_baseline)
    for row in rows:
        if row.difference is None or row.val_loss is None or baseline.val_loss is None:
            continue
        common = row.difference.n + row.difference.spiked + row.difference.baseline_spiked
        # Where seeds are added, the baseline has those of whoever needed most.
        theirs = 0 if spec.sequential else _seeds_with_loss(baseline)
        if common < max(_seeds_with_loss(row), theirs):
            yield f"{row.title} and {baseline.title} are paired over {pluralize(common, 'common seed')} only."
    if any((best := row.best()) is not None and best.left_out for row in rows):
        yield (
            "Seeds on which a run spiked, a candidate's own or the baseline's, are left out of its loss; candidates "
            "rank by their differences to the baseline on the seeds that both have."
        )
    comparisons = spec.comparison_count()
    if comparisons > 1 and any(row.difference is not None and row.difference.p_value is not None for row in rows):
        yield (
            f"The intervals of all {comparisons} differences hold together with 95 %; p-values are corrected alike "
            "(Bonferroni)."
        )


def _grid_notes(
    spec: ComparisonSpec, rows: Sequence[CandidateRow], best_tried: Mapping[str, tuple[float, float]]
) -> Iterator[str]:
    if (origin := spec.origin_of_rates()) is not None:
        yield origin
    if spec.tuning and spec.tuning.search:
        yield from _search_notes(spec, spec.tuning, rows)
    elif spec.tuning and any(row.final is not None for row in rows):
        if any(len(row.learning_rates) > 1 for row in rows):
            yield f"Learning rates were chosen on {_seeds_phrase(spec.tuning.seeds)}; the losses are of other seeds."
        if single := [row.title for row in rows if len(row.learning_rates) == 1]:
            yield f"Not tuned, for no second learning rate was tried: {', '.join(single)}."
    elif spec.tuning:
        none = "No learning rate was judged" if all(map(_has_ended, rows)) else "No learning rate is judged yet"
        yield f"{none}: rates are chosen on {_seeds_phrase(spec.tuning.seeds)}, and judged on other seeds."
    extended = [f"{row.title} (by {row.extended_rates})" for row in rows if row.extended_rates]
    if extended:
        yield f"Learning rates added beyond an edge of the grid or about the best one: {', '.join(extended)}."
    spiked = [
        f"{row.title} at lr {rate.lr:.4g}, {_seeds_phrase(rate.spiked_seeds)}"
        for row in rows
        for rate in row.learning_rates
        if rate.spiked_seeds
    ]
    if spiked:
        yield (
            f"Runs of a grid that spiked: {'; '.join(spiked)}. Where learning rates are chosen, such a run counts with "
            "the loss that its rate and its seed lead one to expect; a rate at which most runs spiked ranks last, as "
            "one at which a run diverged."
        )
    judged = [
        f"{row.title} at {row.final.lr:.4g} instead of {best:.4g}, a step back from {lost:.4g}, where runs "
        "diverged, spiked or scattered"
        for row in rows
        if row.final is not None and row.candidate in best_tried
        for best, lost in [best_tried[row.candidate]]
    ]
    if judged:
        yield f"Judged at another rate than the best one of its grid: {'; '.join(judged)}."
    at_edge = [row for row in rows if row.edge_of_grid]
    for row in at_edge if len(rows) > 1 else ():
        if row.is_baseline:
            yield (
                f"The best learning rate of {row.title}, the baseline, lies at the edge of its grid: it may be better "
                "than it looks here, and who is better than it may not be."
            )
    if at_edge:
        named = ", ".join(
            f"{row.title} ({row.best_lr:.4g}; try {_edge_words(row)[1]} ones)"
            for row in sorted(at_edge, key=lambda row: not row.is_baseline)
        )
        yield f"Best learning rate at the edge of the grid, a better one may lie outside: {named}."
    if len({len(candidate.learning_rates) for candidate in spec.candidates}) > 1 and not (
        spec.tuning and spec.tuning.search
    ):
        yield "The candidates have grids of different sizes: they are not tuned equally."


def _seeds_phrase(seeds: Sequence[int]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {_join(seeds)}"


def _search_notes(spec: ComparisonSpec, tuning: Tuning, rows: Sequence[CandidateRow]) -> Iterator[str]:
    """What was tuned, what was found, and whom an axis is missing for."""
    yield spec.tuning_method()
    any_end = False
    for row in rows:
        if (best := row.best()) is not None and best.setting:
            ends = _fields_at_an_end(spec.priors(row.candidate), best.setting)
            any_end |= bool(ends)
            found = ", ".join(
                f"{name} {_setting_text(value)}{' (the end of its range)' if name in ends else ''}"
                for name, value in best.setting.items()
            )
            yield f"{row.title}, {'judged' if row.final else 'best'} at: {found}."
    if any_end:
        yield "Beyond the end of a range a better setting may lie, which no interval holds."
    for row in rows:
        known = spec.priors(row.candidate)
        if missing := [axis for axis in tuning.search if axis not in known]:
            yield f"{row.title} is not searched over {axes_in_words(missing)}: it has none, or one of zero."


def _fields_at_an_end(priors: Mapping[Axis, Prior], setting: Mapping[str, Scalar]) -> set[str]:
    return {
        FIELDS[axis]
        for axis, prior in priors.items()
        if setting.get(FIELDS[axis]) and abs(place_of(setting, axis, prior)) > 1 - SAME_PLACE and prior.high > prior.low
    }


def _setting_text(value: Scalar) -> str:
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)


def _choice_notes(spec: ComparisonSpec, rows: Sequence[CandidateRow], is_external: bool) -> Iterator[str]:
    """What the choice of the rates may have done to the losses; amounts that four decimals do not show are none."""
    unit = spec.workload.task.loss_unit
    if spec.tuning and len(spec.tuning.seeds) == 1 and len(rows) > 1:
        yield "One tuning seed: how certain the choice of the rates is, only the judged seeds show."
    known = {
        row.title: row.difference.regret for row in rows if row.difference and row.difference.regret >= LEAST_SHOWN
    }
    theirs = max((row.difference.baseline_regret for row in rows if row.difference), default=0.0)
    theirs = theirs if theirs >= LEAST_SHOWN else 0.0
    baseline = next(row for row in rows if row.is_baseline)
    if known or theirs:
        own = {baseline.title: theirs} if theirs else {}
        each = ", ".join(f"{title} {value:.4f}" for title, value in (own | known).items())
        what = "what a better learning rate may still be worth"
        if spec.descends():
            what = "what a better setting within the ranges may still be worth"
        elif spec.draws():
            what = "the luck of the draws: how far other draws may move a difference either way"
            each = ", ".join(f"{title} {value:.4f}" for title, value in known.items())
        yield f"The intervals are wider for {what}{_unit_phrase(unit)}: {each}."
    if not spec.tuning and any(_planned_rates(row) > 1 and row.val_loss is not None for row in rows):
        gains = {row.title: row.selection_gain for row in rows if row.selection_gain is not None}
        added = ", ".join(f"{title} {gain:.4f}" for title, gain in gains.items() if gain >= LEAST_SHOWN)
        if added:
            said = (
                "The intervals of differences are wider by what that may have taken off losses"
                f"{_unit_phrase(unit)}: {added}. The interval of a loss itself does not hold that."
            )
        elif gains:
            said = "That widens no interval of a difference here."
        else:
            said = "With one seed nobody can tell what that took off losses."
        advice = (
            "Where the best rates are trained again on other seeds, these judge them, and less stays open."
            if is_external
            else "With `tuning` other seeds choose, grids are extended and refined, and less stays open."
        )
        yield f"The seeds that chose the learning rates judge them too. {said} {advice}"


def _evaluation_notes(spec: ComparisonSpec, rows: Iterable[CandidateRow]) -> Iterator[str]:
    """Where other validation text might move a difference by half of it, or of its interval where that holds zero."""
    rivalled = [
        each
        for row in rows
        if (each := row.difference) is not None
        and (reaches := [abs(end - each.mean) for end in (each.low, each.high) if end is not None])
        and 4 * each.evaluation_error > max(abs(each.mean), statistics.fmean(reaches))
    ]
    if rivalled:
        tokens = spec.workload.evaluation.sequences * spec.workload.data.sequence_length_tokens
        yield (
            f"Evaluated on {tokens:,} tokens, the same for all runs: with others a difference would move by about "
            f"{rivalled[0].evaluation_error:.4f} nats, which rivals what is compared here. The intervals hold that; "
            "a larger `evaluation.sequences` makes it smaller, more seeds do not."
        )


def _unit_phrase(unit: str) -> str:
    return f" (in{unit})" if unit else ""


def _overtaking_notes(rows: Iterable[CandidateRow], overtaken: Mapping[str, float]) -> Iterator[str]:
    for row in rows:
        if row.candidate in overtaken and row.final is not None:
            yield (
                f"{row.title} is judged at {_trial_text(row, row.final.lr)}, which led its grid when the final runs "
                f"were chosen; runs that ended later put {_trial_text(row, overtaken[row.candidate])} ahead."
            )


def _trial_text(row: CandidateRow, lr: float) -> str:
    setting = next((each.setting for each in row.learning_rates if each.lr == lr), None) or {"lr": lr}
    return ", ".join(f"{name} {_setting_text(value)}" for name, value in setting.items())


def _measurement_notes(results: Sequence[Result]) -> Iterator[str]:
    if not results:
        return
    largest = max(result.parameters for result in results)
    if largest < TINY_PARAMETERS:
        size = f"{largest / 1e6:.1f} M" if largest >= 100_000 else f"{largest:,}"
        yield f"A model of {size} parameters: no evidence for large models."
    environments = {(result.environment.device, result.environment.device_name) for result in results}
    if any(device == "cpu" for device, _ in environments):
        yield "Measured on a CPU: device-hours are hours of a CPU run, not GPU-hours."
    if len(environments) > 1:
        yield "Measured on several kinds of device: times and memory do not compare."
    if len({result.data_hash for result in results}) > 1:
        yield "The runs did not read the same data: their losses do not compare."


def _peak_notes(rows: Iterable[CandidateRow]) -> Iterator[str]:
    for row in rows:
        if row.peak_memory_note is not None:
            yield f"{row.title} has no peak memory: {row.peak_memory_note}."


def _micro_batch_notes(spec: ComparisonSpec, runs: Iterable[RunRecord], rows: Iterable[CandidateRow]) -> Iterator[str]:
    """Where results were not measured with the micro-batch that was asked for, or not all with the same one."""
    by_candidate: dict[str, set[int]] = {}
    for run in runs:
        if run.result is not None and run.result.micro_batch_sequences is not None:
            by_candidate.setdefault(run.candidate, set()).add(run.result.micro_batch_sequences)
    sizes = {size for found in by_candidate.values() for size in found}
    if len(sizes) > 1:
        each = "; ".join(
            f"{row.title}: {_join(sorted(by_candidate[row.candidate]))}"
            for row in rows
            if row.candidate in by_candidate
        )
        yield (
            f"Measured with different micro-batches (sequences of {each}): memory and times do not compare; "
            "losses do, but for rounding."
        )
    share = spec.workload.budget.batch_sequences // spec.resources.process_count()
    asked = spec.workload.execution.micro_batch_sequences or share
    if len(sizes) == 1 and asked not in ("auto", *sizes):
        yield f"All runs took micro-batches of {_join(sizes)} instead of {asked}, for which memory did not suffice."


def _join(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


_VERBS = {
    Outcome.FINISHED: "finished",
    Outcome.STOPPED_EARLY: "stopped early",
    Outcome.DIVERGED: "diverged",
    Outcome.OUT_OF_MEMORY: "ran out of memory",
    Outcome.FAILED: "failed",
    Outcome.CANCELLED: "cancelled",
}
