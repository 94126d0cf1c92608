"""The words of a scaling-law fit: what was found, or why it cannot be said; never more than the interval supports."""

from collections.abc import Mapping, Sequence

from orchestrator.analysis.comparison import comparison_spec
from orchestrator.analysis.laws.model import FORMS, MAX_EXPONENT, LawForm, richest_form
from orchestrator.analysis.laws.records import CandidateFit, CriticalBatch, Estimate
from orchestrator.analysis.laws.targets import Target
from orchestrator.analysis.verdicts import interval_words, p_text, signed_text, stability_text
from orchestrator.kinds.experiment import AnswerKind, Experiment
from orchestrator.kinds.scaling import TransferredSpec
from orchestrator.records import SIGNIFICANCE, ExperimentRecord
from worker.catalog import presets
from worker.words import pluralize

FAIR_SPAN = 10.0
"""Sizes within a factor below this say little of an exponent: the smallest published fits span two decades."""
LEAST_DEGREES = 2
"""Of freedom, to expect a law: with one t is 12.7, with two 4.3."""
ROUNDED_EXPONENT = 1e-9
"""An exponent below this is the rounding of losses that are all equal."""
SAME_BUDGET = 1.1
"""Budgets within this factor of each other are one, but for whole steps."""
FAR = 10.0
"""So many times the largest size, or below the smallest one by as much, a prediction is said to be far."""
MOST_NAMED = 3
"""Experiments that a note names; the others it counts."""
MOST_CELLS = 12
"""Cells that a note names; the others it counts."""
FAIR_HELD_OUT = 0.01
"""Nats. Tuned optimizers differ by 0.002 to 0.013 (Wen et al., arXiv 2509.02046): a law that misses by more decides
nothing between them."""


def too_few(places: Sequence[tuple[int, int]], form: LawForm) -> str | None:
    """Why nothing can be fitted to cells of so many parameters and tokens, without a full stop; None where it can."""
    names = ("model size", "token budget")
    for variable in form.variables:
        values = {place[variable] for place in places}
        needed = 3 if len(form.variables) == 2 else form.size() + 1
        if len(values) < needed:
            return f"{pluralize(len(values), names[variable])}; {form.formula} needs at least {needed}"
    if len(places) <= form.size():
        return f"{pluralize(len(places), 'point')}; {form.formula} needs at least {form.size() + 1}"
    return None


def planned_law(spec: Experiment) -> str | None:
    """The law that the sizes and budgets of a scaling experiment can tell; None where they are too few to find one, and
    of an experiment that comes to none."""
    if spec.answer is not AnswerKind.LAW or law_warnings(spec):
        return None
    return richest_form(_planned_places(spec)).formula


def law_warnings(spec: Experiment) -> list[str]:
    """A sentence where an experiment that is to come to a law has too few sizes and budgets to fit one, or to find it:
    of simulated experiments none was found in more than 30 % with one degree of freedom, in more than 15 % with two."""
    if spec.answer is not AnswerKind.LAW:
        return []
    places = _planned_places(spec)
    form = richest_form(places)
    if reason := too_few(places, form):
        return [f"No law can be fitted: {reason}."]
    noun, count = "points", len(places)
    if len(form.variables) == 1:
        noun = ("model sizes", "token budgets")[form.variables[0]]
        count = len({place[form.variables[0]] for place in places})
    if count - form.size() >= LEAST_DEGREES:
        return []
    # With one more, the richer form with an irreducible loss would take that one up.
    needed = max(form.size(), FORMS["n"].size()) + LEAST_DEGREES
    other = "" if len(form.variables) == 2 else ", or three sizes at three budgets each"
    return [
        f"A law is found by luck alone: {count} {noun} leave {form.formula} one degree of freedom, and intervals reach "
        f"12.7 standard errors to either side. {needed} {noun} can tell it{other}."
    ]


def _planned_places(spec: Experiment) -> list[tuple[int, int]]:
    tokens_per_step = spec.workload.tokens() // spec.workload.budget.steps
    return [(cell.parameters, cell.steps * tokens_per_step) for cell in spec.cells()]


def fit_verdict(
    row: CandidateFit, baseline: CandidateFit, form: LawForm, experiments: Sequence[ExperimentRecord]
) -> str:
    """What the law says, its weaknesses first, or why there is none; and how many runs were unstable."""
    if reason := too_few([point.place() for point in row.points], form):
        sentences = [f"Not fitted: {reason}."]
    elif row.no_law:
        sentences = [f"No law found: {row.no_law}. Nothing is predicted."]
    else:
        sentences = [*_exponents(row), *_floor(row), *_baseline_sentences(row, form, experiments)]
        sentences += _sentences_on_largest_size(row)
    sentences += _typical_sentences(row, "sizes" if 0 in form.variables else "budgets")
    if row.instability and (row.instability.lost or (baseline.instability and baseline.instability.lost)):
        of_runs = stability_text(row.instability, baseline.instability, baseline.title)
        sentences.append(f"Stability, apart from loss: {of_runs}.")
    return " ".join(sentences)


def critical_batch_verdict(row: CriticalBatch) -> str:
    """Where an optimizer's critical batch lies, as far as the tokens tell it."""
    batches = ", ".join(f"{each:,}" for each in row.not_reached)
    lost = ""
    if batches:
        lost = f" Not reached by every run, or evaluated too seldom to tell when, with batches of {batches} tokens."
    if row.open_batches:
        batches = ", ".join(f"{each:,}" for each in row.open_batches)
        lost += f" Left out, for the best learning rate lies at the edge of its grid: batches of {batches} tokens."
    found = row.critical_batch_tokens
    if found is None:
        return f"No critical batch: {pluralize(len(row.points), 'batch', 'batches')} of use, 4 are needed.{lost}"
    if found.high is None and found.low is None:
        said = "The critical batch is not told by these batches."
    elif found.high is None:
        said = f"The critical batch is {found.low:,.0f} tokens at least: tokens are not shown to rise with the batch."
    elif found.low is None:
        said = f"The critical batch is {found.high:,.0f} tokens at most: each batch may cost tokens in proportion."
    else:
        said = f"Critical batch {found.value:,.0f} tokens (95 % interval {found.low:,.0f} to {found.high:,.0f})."
    if (ratio := row.to_baseline) is None:
        return said + lost
    kinds = "simultaneous 95 % interval" if row.comparisons > 1 else "95 % interval"
    low, high = ("0" if ratio.low is None else f"{ratio.low:.2g}", "any" if ratio.high is None else f"{ratio.high:.2g}")
    is_shown = (ratio.low or 0.0) > 1 or (ratio.high is not None and ratio.high < 1)
    other = "another one than the baseline's" if is_shown else "not shown to be another than the baseline's"
    return f"{said} It is {other}: {low} to {high} times it ({kinds}).{lost}"


def critical_batch_notes(target: float, *, given: bool, tuned: bool, falls: bool) -> tuple[str, ...]:
    """What the tokens to a loss hang on."""
    whose = "as asked for" if given else "the highest final loss of all judged runs that were trained, which all reach"
    found = [
        f"Critical batches: tokens to a loss of {target:.4f}, {whose}. T(B) = T_min (1 + B / B_crit) over the means of "
        "the seeds; batches count, and not seeds."
    ]
    if not tuned:
        found.append(
            "Not every batch was tuned: where a candidate had one learning rate for a batch, its tokens there say as "
            "much of that rate as of the batch."
        )
    found.append(
        "Between the rates of a grid, too, a batch may need fewer tokens: no interval of critical batches holds that. "
        "Tune each batch (`tuning`), or give finer grids."
    )
    if falls:
        found.append(
            "Learning rates fall towards the end of each run: a loss that is reached in mid-run would be reached with "
            "fewer tokens by a run planned for them. With `schedule: {shape: constant}` it would not."
        )
    return tuple(found)


def _typical_sentences(row: CandidateFit, noun: str) -> list[str]:
    """The mean over sizes or budgets, beside the differences at each."""
    if (found := row.typical_difference) is None or (found.difference.low is None and found.difference.high is None):
        return []
    mean, low, high = found.difference.mean, found.difference.low, found.difference.high
    ends = interval_words(low, high, signed_text)
    spread = (
        ""
        if found.spread is None
        else f"; between {noun} it varies by {signed_text(found.spread)[1:]} beyond the seeds' noise"
        if found.spread
        else f"; {noun} are not told apart"
    )
    kind = "simultaneous 95 % interval" if found.comparisons > 1 else "95 % interval"
    where = "above" if mean > 0 else "below"
    other = "budgets" if noun == "sizes" else "sizes"
    over = ""
    if not found.in_common:
        over = f" Each is over its own {other}: no {other[:-1]} is one of all {noun}."
    elif found.cells_left_out:
        left_out = pluralize(found.cells_left_out, "cell is", "cells are")
        over = f" That is over the {other} that all {noun} have: {left_out} left out."
    return [
        f"At a typical one of {found.difference.n} {noun} it lies {abs(mean):.4f} nats {where} the baseline ({kind} "
        f"{ends}{spread}).{over}"
    ]


NO_COMMON_BUDGET = (
    "no budget is one of all model sizes, and the budgets do not follow the sizes, so that what the one does cannot be "
    "told from what the other does"
)
"""Why there is no law of sizes alone, nor one of tokens alone."""


def no_law(coefficients: Mapping[str, Estimate]) -> str | None:
    """Why fitted coefficients are no scaling law, without a full stop; None where the loss is shown to fall."""
    for name, noun in (("alpha", "size"), ("beta", "tokens")):
        if (exponent := coefficients.get(name)) is None:
            continue
        if abs(exponent.value) >= MAX_EXPONENT:
            return f"{name} is at its bound of {MAX_EXPONENT:g}, the points follow no power law"
        if exponent.low is None or exponent.high is None:
            return f"{name} = {exponent.value:.3f} has no interval, there are as many coefficients as sizes and budgets"
        interval = f"{exponent.low:.3f} to {exponent.high:.3f}"
        if exponent.high >= MAX_EXPONENT > -exponent.low and exponent.low > ROUNDED_EXPONENT:
            return f"the 95 % interval of {name}, {interval}, reaches its bound of {MAX_EXPONENT:g}: it may be anything"
        if exponent.high < -ROUNDED_EXPONENT:
            return f"the loss rises with {noun}, {name} = {exponent.value:.3f} (95 % interval {interval})"
        if exponent.low <= ROUNDED_EXPONENT:
            return f"the 95 % interval of {name}, {interval}, spans zero, so the loss is not shown to fall with {noun}"
    return None


def fit_notes(
    experiments: Sequence[ExperimentRecord],
    rows: Sequence[CandidateFit],
    form: LawForm,
    *,
    left_out: Mapping[str, int],
    spiked: Mapping[str, int],
    not_ended: Mapping[str, int],
    unsaid: Sequence[Target],
) -> tuple[str, ...]:
    """What limits all the fits, the gravest first. Runs that were `left_out`, `spiked` or have `not_ended`, by
    candidate; `unsaid`: what was asked for and is not predicted."""
    return (
        *_progress_notes(experiments, left_out, spiked, not_ended),
        *_size_notes(unsaid),
        *_far_notes(rows, form),
        *_workload_notes(experiments),
        *_rate_notes(experiments),
        *_open_rate_notes(rows),
        *_span_notes(rows, form),
        "Intervals: each size at each budget counts once, whatever its seeds; residual bootstrap, percentiles "
        "stretched by t; they hold if losses follow this form.",
        *_shared_error_notes(rows, form),
    )


def _exponents(row: CandidateFit) -> list[str]:
    found = []
    for name in ("alpha", "beta"):
        if (exponent := row.coefficients.get(name)) is not None:
            found.append(f"{name} = {exponent.value:.3f} (95 % interval {exponent.low:.3f} to {exponent.high:.3f}).")
    return found


def _floor(row: CandidateFit) -> list[str]:
    floor = row.coefficients.get("E")
    if floor is None or floor.low is None or floor.low > 0:
        return []
    return ["The irreducible loss E is not told apart from zero by these sizes."]


def _baseline_sentences(row: CandidateFit, form: LawForm, experiments: Sequence[ExperimentRecord]) -> list[str]:
    """Drift in nats and not in exponents: with a floor, or from another height, the larger exponent may lose more. Of
    rates that nobody tried others beside, the sentence says so: at better ones the drift may be another."""
    if row.is_baseline:
        return []
    if row.drift is None or (row.drift.p_value is None and not row.drift.rate_is_open):
        return ["It cannot be held against the baseline's: the runs that both have show no law of one of the two."]
    first, last = row.loss_differences[0], row.loss_differences[-1]
    small, large = (
        f"{each.parameters:,} parameters" if 0 in form.variables else f"{each.tokens:,} tokens"
        for each in (first, last)
    )
    at_both = f"{first.difference.value:+.4f} nats at {small}, {last.difference.value:+.4f} at {large}"
    change, p = row.drift.change, row.drift.p_value
    if p is None:
        return [
            f"Against the baseline {at_both}, {signed_text(change.value)} nats between the two: no verdict on drift, "
            "better rates than those of the grids could turn that."
        ]
    shown = "no drift shown" if p >= SIGNIFICANCE else "it loses ground" if change.value > 0 else "it gains ground"
    ends = interval_words(change.low, change.high, signed_text)
    interval = ends and f"95 % interval {ends}, "
    at_rates = _untuned_rates(experiments)
    return [
        f"Against the baseline {at_both}: {at_rates}{shown}, {signed_text(change.value)} nats ({interval}{p_text(p)})."
    ]


def _untuned_rates(experiments: Sequence[ExperimentRecord]) -> str:
    """At which rates a drift is one, where those of some sizes were not chosen from several; else nothing."""
    specs = [comparison_spec(each) for each in experiments]
    if any(isinstance(spec, TransferredSpec) for spec in specs):
        return "with rates that larger sizes took over untried, "
    untuned = [spec for spec in specs if spec.tuning is None and spec.kept_rates is None]
    if any(min(len(each.learning_rates) for each in spec.candidates) == 1 for spec in untuned):
        return "at one rate a size, "
    return ""


def _sentences_on_largest_size(row: CandidateFit) -> list[str]:
    if row.held_out is None:
        return ["Too few sizes to leave the largest one out: the law is not checked by a prediction."]
    error = row.held_out.error
    text = f"Without the largest it is predicted {abs(error):.4f} nats too {'high' if error > 0 else 'low'}"
    return [f"{text}, more than optimizers differ by." if abs(error) > FAIR_HELD_OUT else f"{text}."]


def _progress_notes(
    experiments: Sequence[ExperimentRecord],
    left_out: Mapping[str, int],
    spiked: Mapping[str, int],
    not_ended: Mapping[str, int],
) -> list[str]:
    names = [each.name for each in experiments if not each.counts.done()]
    shown = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
    found = [f"Not ended yet: {shown}; everything here may still change."] if names else []
    if counts := _counts(not_ended):
        found.append(f"Runs at the best learning rate that have not ended are not in it yet: {counts}.")
    if counts := _counts(left_out):
        found.append(f"Runs at the best learning rate that ended without a trained model were left out: {counts}.")
    if counts := _counts(spiked):
        found.append(f"Runs whose loss spiked were left out; laws are those of stable runs: {counts}.")
    return found


def _counts(by_title: Mapping[str, int]) -> str:
    return ", ".join(f"{title} ({count})" for title, count in by_title.items() if count)


def _size_notes(unsaid: Sequence[Target]) -> list[str]:
    if not unsaid:
        return []
    names = ", ".join(each.model or f"{each.parameters:,} parameters" for each in unsaid)
    return [f"The law has no size in it, so it predicts nothing of other sizes: {names}."]


def _far_notes(rows: Sequence[CandidateFit], form: LawForm) -> list[str]:
    """How far from what was trained a prediction is."""
    if 0 not in form.variables:
        return []
    trained = [point.parameters for row in rows for point in row.points]
    asked = sorted({each.parameters: each for row in rows for each in row.predictions}.items())
    far = [
        f"{each.model or f'{size:,} parameters'} "
        + (
            f"({size / max(trained):,.3g} times the largest)"
            if size > max(trained)
            else f"({size / min(trained):.2g} of the smallest)"
        )
        for size, each in asked
        if not min(trained) / FAR <= size <= FAR * max(trained)
    ]
    if not far:
        return []
    return [
        f"Predicted far from the sizes that were trained: {', '.join(far)}. The intervals hold if losses go on "
        "following this form, and no run here shows that."
    ]


def _workload_notes(experiments: Sequence[ExperimentRecord]) -> list[str]:
    workloads = [each.spec.workload for each in experiments]
    found = []
    if len({each.data.content_hash() for each in workloads}) > 1:
        found.append("The experiments read different data or cut it differently: their losses are not on one scale.")
    families = sorted({presets.preset(each.model).family for each in workloads if each.model in presets.names()})
    if len(families) > 1:
        found.append(
            f"Models of {', '.join(families)} are in one law: what the architecture does to the loss is taken for "
            "what size does."
        )
    if "mixtral" in families:
        found.append("Sizes of mixtures of experts count all experts, and not those that a token passes through.")
    if len({each.evaluation.sequences for each in workloads}) > 1:
        found.append("The experiments are evaluated on different numbers of sequences.")
    if len(batches := sorted({each.budget.batch_sequences for each in workloads})) > 1:
        found.append(
            f"The experiments have batches of {', '.join(f'{each:,}' for each in batches)} sequences: what a batch "
            "does to the loss is taken for what size and data do."
        )
    return found


def _rate_notes(experiments: Sequence[ExperimentRecord]) -> list[str]:
    """What a law that is fitted at rates from elsewhere does not say."""
    origins = dict.fromkeys(origin for each in experiments if (origin := each.spec.origin_of_rates()) is not None)
    return [f"{origin} An optimizer whose best rate moves with size is at a disadvantage." for origin in origins]


def _open_rate_notes(rows: Sequence[CandidateFit]) -> list[str]:
    """What nothing is known of beyond the rates that were tried, and what intervals hold of that between them."""
    points = [(row, point) for row in rows for point in row.points]
    is_open = [(row, point, lr) for row, point in points if (lr := point.open_lr) is not None]
    found = []
    if is_open:
        several = len({(point.parameters, point.tokens) for _, point in points}) > len(
            {point.parameters for _, point in points}
        )
        cells: dict[str, list[str]] = {}
        for row, point, lr in is_open[:MOST_CELLS]:
            of = f" and {point.tokens:,} tokens" if several else ""
            cells.setdefault(row.title, []).append(f"{point.parameters:,} parameters{of} ({lr:g})")
        named = "; ".join(f"{title} at {', '.join(each)}" for title, each in cells.items())
        more = f" and {pluralize(left, 'more cell')}" if (left := len(is_open) - MOST_CELLS) > 0 else ""
        found.append(
            "Best learning rate at the edge of its grid, or too few runs about it without a spike: "
            f"{named}{more}. A better rate may lie beyond, and lower the loss there by any amount, so nothing is said "
            "that it could turn; each law by itself is one of the rates that were tried. Give these sizes wider grids, "
            "or tune with `extend_grid`, which adds rates beyond an edge."
        )
    if most := max((point.regret or 0.0 for _, point in points), default=0.0):
        found.append(
            f"Between the rates of a grid a loss may be lower, by up to {signed_text(most)[1:]} nats: intervals of "
            "differences to the baseline hold that."
        )
    return found


def _shared_error_notes(rows: Sequence[CandidateFit], form: LawForm) -> list[str]:
    """What intervals assume of sizes with several budgets, and what simulations say of it."""
    cells = {(point.parameters, point.tokens) for row in rows for point in row.points if point.fitted is not None}
    sizes = {parameters for parameters, _ in cells}
    if 0 not in form.variables or len(cells) == len(sizes):
        return []
    few = len(sizes) <= form.floor + 2
    unknown = " From so few sizes that error cannot be told: any share of it is taken to be as likely." * few
    return [
        "The budgets of a size may share an error, such as that of its tuning; intervals allow for it. Simulated, they "
        f"hold in 90 to 100 % of experiments, with such errors or without.{unknown}"
    ]


def _span_notes(rows: Sequence[CandidateFit], form: LawForm) -> list[str]:
    points = [(point.parameters, point.tokens) for row in rows for point in row.points]
    found = []
    for variable in form.variables:
        values = [point[variable] for point in points]
        noun = ("model sizes", "token budgets")[variable]
        if values and max(values) < FAIR_SPAN * min(values):
            found.append(f"The {noun} span a factor of {max(values) / min(values):.3g}: too little for an exponent.")
    if len(form.variables) == 1:
        found += _other_axis_notes(rows, form.variables[0])
    return found


def _other_axis_notes(rows: Sequence[CandidateFit], axis: int) -> list[str]:
    """At which budgets a law of sizes alone is one, or at which sizes one of tokens alone."""
    kept = {point.place() for row in rows for point in row.points if point.is_in_law}
    left_out = {point.place() for row in rows for point in row.points} - kept
    others = [cell[1 - axis] for cell in kept]
    found = []
    if kept and left_out:
        noun = ("budget", "size")[axis]
        found.append(
            f"The law is one at the largest {noun} that all have: {pluralize(len(left_out), 'cell has', 'cells have')} "
            f"another {noun} and no part in it. With three sizes and three budgets there is a law of both."
        )
    if kept and max(others) > SAME_BUDGET * min(others):
        found.append(
            "Tokens change with the model: alpha is the exponent of both together."
            if axis == 0
            else "The model changes with the tokens: beta is the exponent of both together."
        )
    return found
