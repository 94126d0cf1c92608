"""The words of a scaling-law fit: the effect first, or why there is none, then what to do."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from orchestrator import design
from orchestrator.analysis.laws.model import FORMS, MAX_EXPONENT, Cell, LawForm, richest_form
from orchestrator.analysis.laws.records import CandidateFit, Estimate
from orchestrator.analysis.laws.targets import Target
from orchestrator.analysis.verdicts import WORDS, effect_text, interval_of_effect, stability_text
from orchestrator.jobs import TERMINAL
from orchestrator.records import Conclusion, ExperimentWithRuns
from worker.catalog import presets
from worker.spec.run import Workload
from worker.words import pluralize

LEAST_DEGREES = 2
"""The fewest degrees of freedom of a law: with one t is 12.7, with two 4.3."""
SAME_BUDGET = 1.1
"""Budgets within this factor are one: whole steps make them differ by less."""
FAR_SIZE_RATIO = 10.0
"""The ratio to the largest size beyond which a prediction is called far: a decade is the span of the smallest published
fits."""


def too_few(cells: Iterable[Cell], form: LawForm) -> str | None:
    """Return the reason why nothing can be fitted to the cells, without a full stop; None if it can."""
    cells = list(cells)
    for variable in form.variables:
        count = len({cell[variable] for cell in cells})
        needed = 3 if len(form.variables) == 2 else form.size() + 1
        if count < needed:
            noun = ("model size", "token budget")[variable]
            return f"{pluralize(count, noun)}; {form.formula} needs at least {needed}"
    if len(cells) <= form.size():
        return f"{pluralize(len(cells), 'point')}; {form.formula} needs at least {form.size() + 1}"
    return None


def law_warnings(planned: Sequence[design.Cell]) -> list[str]:
    """Return a sentence where the cells of a scaling experiment are too few sizes and budgets to fit or to find a law;
    none for an experiment without cells."""
    if not planned:
        return []
    cells = [(cell.parameters, cell.tokens) for cell in planned]
    form = richest_form(cells)
    if reason := too_few(cells, form):
        return [f"No law can be fitted: {reason}."]
    noun, count = "points", len(cells)
    if len(form.variables) == 1:
        noun = ("model sizes", "token budgets")[form.variables[0]]
        count = len({cell[form.variables[0]] for cell in cells})
    if count - form.size() >= LEAST_DEGREES:
        return []
    # With one more, the richer form with an irreducible loss would take that one up.
    needed = max(form.size(), FORMS["n"].size()) + LEAST_DEGREES
    alternative = "" if len(form.variables) == 2 else ", or three sizes at three budgets each"
    return [
        f"A law is found by luck alone: {count} {noun} leave {form.formula} one degree of freedom, and intervals reach "
        f"12.7 standard errors to either side. {needed} {noun} can tell it{alternative}."
    ]


def no_law(coefficients: Mapping[str, Estimate]) -> str | None:
    """Return the reason why fitted coefficients are no scaling law, without a full stop; None if the loss is shown to
    fall."""
    for name, noun in (("alpha", "size"), ("beta", "tokens")):
        if (exponent := coefficients.get(name)) is None:
            continue
        if abs(exponent.value) >= MAX_EXPONENT:
            return f"{name} is at its bound of {MAX_EXPONENT:g}, so the points follow no power law"
        if exponent.low is None or round(exponent.low, 9) <= 0:  # equal losses fall by their rounding
            return f"the loss is not shown to fall with {noun}: {_estimate_text(name, exponent)}"
    return None


def fit_verdict(row: CandidateFit, baseline: CandidateFit, form: LawForm) -> str:
    """Return the law in a sentence, or the reason why there is none; and the number of lost runs."""
    sentences = []
    if row.loss_differences:
        sentences += _sentences_on_differences(row, baseline, form)
    if reason := too_few([point.cell() for point in row.points], form):
        sentences.append(f"Not fitted: {reason}.")
    elif row.no_law:
        sentences.append(f"No law found: {row.no_law}. Nothing is predicted; train more sizes or budgets.")
    else:
        exponents = [(name, row.coefficients[name]) for name in ("alpha", "beta") if name in row.coefficients]
        sentences.append(f"{', '.join(_estimate_text(*named) for named in exponents)}.")
        if (error := row.held_out_error) is not None:
            side = "high" if error > 0 else "low"
            sentences.append(f"Without the largest it is predicted {abs(error):.4f} nats too {side}.")
    if row.instability and (row.instability.lost or (baseline.instability and baseline.instability.lost)):
        lost = stability_text(row.instability, baseline.instability, baseline.title)
        sentences.append(f"{'Unstable: ' * (row.conclusion is Conclusion.UNSTABLE)}{lost}.")
    return " ".join(sentences)


def _sentences_on_differences(row: CandidateFit, baseline: CandidateFit, form: LawForm) -> list[str]:
    """Yield `Better at 1,000,000 parameters: 0.0300 nats lower than AdamW's law (95 %: 0.0210 to 0.0390).`"""
    first, last = (
        f"{edge.parameters:,} parameters" if 0 in form.variables else f"{edge.tokens:,} tokens"
        for edge in (row.loss_differences[0], row.loss_differences[-1])
    )
    difference = row.loss_differences[-1].difference
    word = WORDS[row.conclusion].capitalize()
    if row.conclusion is Conclusion.AS_GOOD:
        word += f" within {difference.margin:g} nats"
    compared = f"as {baseline.title}'s law" if difference.mean == 0 else f"than {baseline.title}'s law"
    interval = interval_of_effect(difference)
    effect = f"{effect_text(difference, ' nats')} {compared}{f' (95 %: {interval})' if interval else ''}"
    sentences = [f"{word} at {last}: {effect}."]
    if row.change is not None and row.change.low is not None and row.change.high is not None:
        change, low, high = row.change.value, row.change.low, row.change.high
        sentence, sign = "the difference is not shown to change", 1
        if low > 0 or high < 0:
            sign = 1 if change > 0 else -1
            sentence = f"it {'loses' if change > 0 else 'gains'} {abs(change):.4f} nats"
        low, high = sorted((sign * low, sign * high))
        sentences.append(f"From {first} on {sentence} (95 %: {low:.4f} to {high:.4f}).")
    return sentences


def _estimate_text(name: str, estimate: Estimate) -> str:
    ends = (
        "no interval"
        if estimate.low is None or estimate.high is None
        else f"95 %: {estimate.low:.3f} to {estimate.high:.3f}"
    )
    return f"{name} = {estimate.value:.3f} ({ends})"


def fit_notes(
    measured: Sequence[ExperimentWithRuns],
    rows: Sequence[CandidateFit],
    form: LawForm,
    *,
    unsaid: Sequence[Target],
    at_edge: Sequence[str],
) -> tuple[str, ...]:
    """Return the notes, the gravest first. `unsaid`: what was asked for and is not predicted; `at_edge`: titles."""
    experiments = [experiment for experiment, _ in measured]
    notes: list[str] = []
    if count := sum(run.status not in TERMINAL for _, runs in measured for run in runs):
        notes.append(f"{pluralize(count, 'run')} not ended: everything here may still change.")
    if differing := ", ".join(_differing([experiment.spec.workload for experiment in experiments])):
        notes.append(f"The experiments differ in {differing}: what that does to the loss is taken for what size does.")
    if at_edge:
        notes.append(
            f"Best learning rate at the edge of what was tried at some size: {', '.join(at_edge)}. They are not called "
            "worse, and nothing better than the baseline there: try further rates."
        )
    return (*notes, *_notes_on_budgets(rows, form), *_notes_on_reach(rows, form, unsaid))


def _differing(workloads: Sequence[Workload]) -> Iterator[str]:
    """Yield the differences between experiments of one law."""
    families = sorted(
        {presets.preset(workload.model).family for workload in workloads if workload.model in presets.names()}
    )
    for noun, values in (
        ("data", {workload.data.content_hash() for workload in workloads}),
        ("evaluation", {workload.evaluation.sequences for workload in workloads}),
    ):
        if len(values) > 1:
            yield noun
    if len(families) > 1:
        yield f"architecture ({', '.join(families)})"
    if len(batches := sorted({workload.budget.batch_sequences for workload in workloads})) > 1:
        yield f"batch ({', '.join(f'{batch:,}' for batch in batches)} sequences)"


def _notes_on_budgets(rows: Sequence[CandidateFit], form: LawForm) -> Iterator[str]:
    """Yield the budgets at which a law of sizes alone holds, or the sizes at which one of tokens alone does."""
    if len(form.variables) > 1:
        return
    axis = form.variables[0]
    if left_out := {point.cell() for row in rows for point in row.points if not point.is_in_law}:
        noun = ("size at its largest budget", "budget at its largest size")[axis]
        cells = pluralize(len(left_out), "other cell")
        yield f"The law has each {noun}, without {cells}; a law in size and tokens needs three of each."
    other_amounts = [point.cell()[1 - axis] for row in rows for point in row.points if point.is_in_law]
    if other_amounts and max(other_amounts) > SAME_BUDGET * min(other_amounts):
        yield ("Tokens change with the model: alpha", "The model changes with the tokens: beta")[axis] + (
            " is the exponent of both together."
        )


def _notes_on_reach(rows: Sequence[CandidateFit], form: LawForm, unsaid: Sequence[Target]) -> Iterator[str]:
    """Yield a note on predictions far from all trained sizes, or impossible ones."""
    if unsaid:
        names = ", ".join(target.model or f"{target.parameters:,} parameters" for target in unsaid)
        yield f"The law has no size in it, so it predicts nothing of other sizes: {names}."
        return
    largest = max((point.parameters for row in rows for point in row.points), default=1)
    reach = max((prediction.parameters for row in rows for prediction in row.predictions), default=0)
    if 0 in form.variables and reach > FAR_SIZE_RATIO * largest:
        yield (
            f"Predicted up to {reach / largest:,.3g} times the largest size: no run shows that losses still follow the "
            "law there."
        )
