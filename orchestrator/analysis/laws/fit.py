"""The scaling law of each optimizer, with verdicts, from experiments of several sizes. A pure function on records.

    experiments ─► each candidate's cells at the settings found ─► a form they determine ─► `model.py` ─► differences
                                                                                           to the baseline ─► sentences

A cell is a model size at a token budget and counts once, as the mean of its judged runs that were not lost. Two
candidates are compared by their laws of the cells and seeds that both have, on bootstrap draws in common. A candidate
is the same one in every experiment by its name.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from orchestrator.analysis.candidates import CandidateSummary, summaries
from orchestrator.analysis.comparison import comparison_design, evaluation_error
from orchestrator.analysis.estimator import JudgedRuns, conclude, instability
from orchestrator.analysis.laws.model import FORMS, SIZE, TOKENS, Cell, Law, LawForm, fit, interval, richest_form
from orchestrator.analysis.laws.records import (
    CandidateFit,
    Estimate,
    FitReport,
    FormName,
    LawCurve,
    LossDifference,
    Prediction,
    ScalingPoint,
)
from orchestrator.analysis.laws.targets import Target
from orchestrator.analysis.laws.verdicts import fit_notes, fit_verdict, no_law, too_few
from orchestrator.analysis.sequential import Array
from orchestrator.analysis.statistics import mean_interval
from orchestrator.errors import ConflictError
from orchestrator.records import Conclusion, Difference, ExperimentRecord, ExperimentWithRuns

DRAWS = 400
"""Percentiles of 2.5 % rest on 10 draws at each end: an interval's end varies by 7 % of its distance."""

Key = tuple[int, int, int, int]
"""Parameters, tokens, seed and index of the experiment of a run: of two experiments with one cell, the runs of the same
one are pairs."""


class FitError(ConflictError):
    """These experiments cannot be fitted together."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The judged runs of one candidate."""

    candidate: str
    title: str
    losses: Mapping[Key, float]
    """The losses of runs that were not lost, ordered by size, budget and seed."""
    judged: JudgedRuns
    """The same, and those that were lost, as the estimator takes them."""

    def restrict(self, keys: Container[Key]) -> "Sample":
        """Return the sample of some runs."""
        return replace(self, losses={key: loss for key, loss in self.losses.items() if key in keys})

    def cells(self) -> dict[Cell, list[float]]:
        """Return the losses of each cell, ordered by size and budget."""
        cells: dict[Cell, list[float]] = defaultdict(list)
        for key, loss in self.losses.items():
            cells[key[:2]].append(loss)
        return dict(cells)

    def law_cells(self, form: LawForm) -> "Sample":
        """Return the cells of a law of this form: in a law of sizes alone each size at its largest budget, in one of
        tokens alone each budget at its largest size."""
        cells = self.cells() if len(form.variables) > 1 else _largest(self.cells(), form.variables[0])
        return self.restrict({key for key in self.losses if key[:2] in cells})


@dataclass(frozen=True, kw_only=True)
class FittedLaw:
    """A candidate's law with its bootstrap draws."""

    sample: Sample
    law: Law
    draws: Law

    def degrees(self) -> int:
        """Return the degrees of freedom: cells, and not runs, less the coefficients."""
        return len(self.sample.cells()) - self.law.form.size()

    def estimate(self, value: Array, drawn: Array, *, positive: bool = False) -> Estimate:
        """Return a quantity of the law with its interval; one that is positive by nature in logarithms."""
        if not positive:
            low, high = interval(float(value), drawn, self.degrees())
        else:
            with np.errstate(divide="ignore"):
                low, high = map(_exp, interval(float(np.log(value)), np.log(drawn), self.degrees()))
        return Estimate(value=float(value), low=low, high=high)

    def loss_at(self, parameters: int, tokens: int) -> Estimate:
        """Return the predicted loss."""
        return self.estimate(*(law.losses(parameters, tokens) for law in (self.law, self.draws)), positive=True)

    def coefficients(self) -> dict[str, Estimate]:
        """Return each with its interval; no loss is below zero, and neither is E."""
        drawn = self.draws.coefficients()
        estimates = {
            name: self.estimate(value, drawn[name], positive=name in "AB")
            for name, value in self.law.coefficients().items()
        }
        if (floor := estimates.get("E")) is not None and floor.low is not None:
            estimates["E"] = floor.model_copy(update={"low": max(0.0, floor.low)})
        return estimates

    def relative_error(self) -> float:
        """Return the root mean square of the cells' log residuals."""
        log_ratios = [np.log(fmean(losses) / self.law.losses(*cell)) for cell, losses in self.sample.cells().items()]
        return float(np.sqrt(np.mean(np.square(log_ratios))))

    def tokens_at(self, parameters: int, tokens: int | None = None) -> int:
        """Return the number of tokens for a prediction at that size: with a law in tokens, `tokens` or as many for each
        parameter as the largest model had; else the budgets of its cells, extrapolated to that size."""
        cells = [*self.sample.cells()]
        if TOKENS in self.law.form.variables:
            largest = max(cells)
            return tokens or max(1, round(parameters * largest[TOKENS] / largest[SIZE]))
        sizes, budgets = np.log(np.array(cells, dtype=np.float64)).T
        slope, intercept = np.polyfit(sizes, budgets, 1)
        return max(1, round(float(np.exp(intercept + slope * np.log(parameters)))))


@dataclass(frozen=True, kw_only=True)
class Question:
    """The question to every candidate."""

    form: LawForm
    predict: Sequence[Target]
    draws: int
    comparisons: int
    """The number of candidates that are compared with the baseline."""
    margin: float | None
    evaluation_error: float
    """Standard error of a difference of losses by the validation text, nats."""


def fit_experiments(
    measured: Sequence[ExperimentWithRuns],
    *,
    form: FormName | None = None,
    predict: Iterable[tuple[int, int | None] | Target] = (),
    draws: int = DRAWS,
) -> FitReport:
    """Return the law of each candidate. An experiment that is given twice counts once.

    `predict`: (parameters, tokens) to say the loss at; without tokens, as many for each parameter as the largest model
    had, or the one budget that all sizes had. Raises `FitError` if experiments have no candidate in common, and where a
    loss is not in nats."""
    measured = tuple(
        {(experiment.id, experiment.spec_hash): (experiment, runs) for experiment, runs in measured}.values()
    )
    experiments = [experiment for experiment, _ in measured]
    _require_nats(experiments)
    samples = _samples(measured)
    design = comparison_design(experiments[0])
    baseline = next((sample for sample in samples if sample.candidate == design.baseline), None)
    if baseline is None:
        names = ", ".join(sample.candidate for sample in samples) or "none"
        raise FitError(f"the baseline {design.baseline!r} is not a candidate of every experiment; common ones: {names}")
    chosen = FORMS[form] if form else richest_form(min(([*sample.cells()] for sample in samples), key=len))
    targets = tuple(Target(*target) for target in predict)
    trained = {cell[SIZE] for sample in samples for cell in sample.cells()}
    question = Question(
        form=chosen,
        predict=[target for target in targets if SIZE in chosen.variables or target.parameters in trained],
        draws=draws,
        comparisons=max(len(samples) - 1, 1),
        margin=design.margin,
        evaluation_error=max(
            evaluation_error(comparison_design(experiment).validation_tokens) for experiment in experiments
        ),
    )
    of_baseline = _fit_law(baseline, chosen, draws)
    rows = [_row(baseline, baseline, of_baseline, question)]
    rows += [_row(sample, baseline, of_baseline, question) for sample in samples if sample is not baseline]
    return FitReport(
        experiments=tuple(dict.fromkeys(experiment.id for experiment in experiments)),
        form=chosen.name,
        formula=chosen.formula,
        baseline=baseline.candidate,
        draws=draws,
        fits=tuple(row.model_copy(update={"verdict": fit_verdict(row, rows[0], chosen)}) for row in rows),
        notes=fit_notes(
            measured,
            rows,
            chosen,
            unsaid=[target for target in targets if target not in question.predict],
            at_edge=[sample.title for sample in samples if sample.judged.is_at_edge],
        ),
    )


def _largest(cells: Iterable[Cell], axis: int) -> list[Cell]:
    """Return the cell at each step of an axis, ascending: the one with the most of the other."""
    return [*{cell[axis]: cell for cell in sorted(cells, key=lambda cell: (cell[axis], cell[1 - axis]))}.values()]


def _require_nats(experiments: Iterable[ExperimentRecord]) -> None:
    """Raise `FitError` for any other loss than a cross-entropy, whose power law has a floor: an excess risk has no
    floor, a reward may be negative."""
    for experiment in experiments:
        task = experiment.spec.workload.task
        if not task.loss_unit:
            raise FitError(
                f"experiment {experiment.id} measures {task.loss_name}, which has no scaling law in nats; "
                "fit experiments whose task is trained on a cross-entropy"
            )


def _samples(measured: Sequence[ExperimentWithRuns]) -> tuple[Sample, ...]:
    """Return the candidates that every experiment has, in the order of the first one."""
    by_experiment = [
        {summary.candidate.name: summary for summary in summaries(comparison_design(experiment), runs)}
        for experiment, runs in measured
    ]
    return tuple(
        _sample([by_name[name] for by_name in by_experiment])
        for name in by_experiment[0]
        if all(name in by_name for by_name in by_experiment)
    )


def _sample(cells: Sequence[CandidateSummary]) -> Sample:
    """Return a candidate's judged runs in each experiment."""
    losses: dict[Key, float] = {}
    lost, ended = set(), set()
    for index, summary in enumerate(cells):
        of_seeds = summary.compared_runs.losses()
        for run in summary.compared_records():
            if (result := run.result) is None:
                continue
            unit = index << 64 | run.seed  # a number of its own for every run
            ended.add(unit)
            if (loss := of_seeds.get(run.seed, 0.0)) > 0:
                losses[result.parameters, result.tokens, run.seed, index] = loss
            else:
                lost.add(unit)
    return Sample(
        candidate=cells[0].candidate.name,
        title=cells[-1].candidate.title,
        losses=dict(sorted(losses.items())),
        judged=JudgedRuns(
            losses=dict(enumerate(losses.values())),
            lost=lost,
            ended=ended,
            is_at_edge=any(summary.is_at_edge for summary in cells),
        ),
    )


def _fit_law(sample: Sample, form: LawForm, draws: int) -> FittedLaw | None:
    """Return the law with its draws; None if there are fewer cells than coefficients and one more."""
    sample = sample.law_cells(form)
    if too_few(cells := sample.cells(), form):
        return None
    law, drawn = fit(form, [*cells], [fmean(losses) for losses in cells.values()], draws)
    return FittedLaw(sample=sample, law=law, draws=drawn)


def _law_only(fitted: FittedLaw | None) -> FittedLaw | None:
    """Return the fitted law; None if the fit is not a law, which predicts, compares and draws nothing."""
    return None if fitted is None or no_law(fitted.coefficients()) else fitted


def _row(sample: Sample, baseline: Sample, of_baseline: FittedLaw | None, question: Question) -> CandidateFit:
    form, is_baseline = question.form, sample is baseline
    fitted = of_baseline if is_baseline else _fit_law(sample, form, question.draws)
    law, other_law, coefficients = _law_only(fitted), _law_only(of_baseline), fitted.coefficients() if fitted else {}
    conclusion_fields: dict[str, Any] = {"conclusion": conclude(None, sample.judged, baseline.judged)}
    if is_baseline:
        conclusion_fields = {"conclusion": Conclusion.BASELINE}
    elif law and other_law:
        common = law.sample.losses.keys() & other_law.sample.losses.keys()
        own_law, baseline_law = (
            candidate_law
            if candidate_law.sample.losses.keys() <= common
            else _law_only(_fit_law(candidate_law.sample.restrict(common), form, question.draws))
            for candidate_law in (law, other_law)
        )
        if own_law and baseline_law:
            conclusion_fields = _against(own_law, baseline_law, question)
            last = conclusion_fields["loss_differences"][-1].difference
            conclusion_fields["conclusion"] = conclude(last, sample.judged, baseline.judged)
    return CandidateFit(
        candidate=sample.candidate,
        title=sample.title,
        is_baseline=is_baseline,
        points=_points(sample, law, form),
        coefficients=coefficients,
        no_law=no_law(coefficients),
        relative_error=fitted.relative_error() if fitted else None,
        held_out_error=_held_out_error(law.sample, form) if law else None,
        predictions=tuple(
            Prediction(
                parameters=target.parameters,
                tokens=(tokens := law.tokens_at(target.parameters, target.tokens)),
                loss=law.loss_at(target.parameters, tokens),
                model=target.model,
            )
            for target in question.predict
            if law
        ),
        curves=_curves(law, question.predict) if law else (),
        instability=instability(sample.judged, None if is_baseline else baseline.judged, question.comparisons),
        verdict="",
        **conclusion_fields,
    )


def _against(fitted: FittedLaw, baseline: FittedLaw, question: Question) -> dict[str, Any]:
    """Return the fields of a row that compare two laws of the same cells and seeds, by draws in common."""
    cells, error = [*fitted.sample.cells()], question.evaluation_error

    def estimate_difference(
        quantity: Callable[[Law, Law], Array], shared_error: float = 0.0, factor: float = 1.0
    ) -> Estimate:
        value, drawn = float(quantity(fitted.law, baseline.law)), quantity(fitted.draws, baseline.draws)
        tests = factor * question.comparisons
        low, high = interval(value, drawn, fitted.degrees(), comparisons=tests, shared_error=shared_error)
        return Estimate(value=value, low=low, high=high)

    def losses_apart(cell: Cell) -> Callable[[Law, Law], Array]:
        return lambda law, other_law: np.asarray(law.losses(*cell) - other_law.losses(*cell))

    def loss_difference(cell: Cell) -> LossDifference:
        estimate, margin = estimate_difference(losses_apart(cell), error), question.margin
        one_sided = estimate_difference(losses_apart(cell), error, 0.5)  # two one-sided tests at 0.05 each (TOST)
        ends = (one_sided.low, one_sided.high)
        difference = Difference(
            mean=estimate.value, low=estimate.low, high=estimate.high, n=len(cells), p_value=None,
            comparisons=question.comparisons, evaluation_error=error, margin=margin,
            is_within_margin=margin is not None and all(end is not None and abs(end) < margin for end in ends),
        )  # fmt: skip
        return LossDifference(parameters=cell[SIZE], tokens=cell[TOKENS], difference=difference)

    compared_cells = _largest(cells, fitted.law.form.variables[0])
    first, last = losses_apart(compared_cells[0]), losses_apart(compared_cells[-1])
    return {
        "loss_differences": tuple(map(loss_difference, compared_cells)),
        "change": estimate_difference(
            lambda law, other_law: last(law, other_law) - first(law, other_law)
        ),  # of the same validation text
    }


def _points(sample: Sample, fitted: FittedLaw | None, form: LawForm) -> tuple[ScalingPoint, ...]:
    in_law = sample.law_cells(form).cells()
    return tuple(
        ScalingPoint(
            parameters=cell[SIZE],
            tokens=cell[TOKENS],
            loss=fmean(losses),
            low=over_seeds and over_seeds.low,
            high=over_seeds and over_seeds.high,
            n=len(losses),
            is_in_law=cell in in_law,
            fitted=float(fitted.law.losses(*cell)) if fitted and cell in in_law else None,
        )
        for cell, losses in sample.cells().items()
        for over_seeds in [mean_interval(losses)]
    )


CURVE_POINTS = 40
"""Points of a curve: on logarithmic axes it bends little."""
CURVE_REACH = 2.0
"""The length of a curve beyond the largest point, unless a farther one is predicted."""
MOST_CURVES = 6
"""The most curves that a figure can show apart."""


def _curves(fitted: FittedLaw, predict: Sequence[Target]) -> tuple[LawCurve, ...]:
    """Return the law along the sizes that were trained and some beyond, for figures. A law of one variable is one
    curve. A law of both is one over the sizes for each budget: for each number of tokens, or of tokens per parameter,
    whichever the experiments have fewer of."""
    form, cells = fitted.law.form, [*fitted.sample.cells()]
    axis = form.variables[0]
    trained_values = [cell[axis] for cell in cells]
    requested = [(target.parameters, fitted.tokens_at(target.parameters, target.tokens))[axis] for target in predict]
    end = max([CURVE_REACH * max(trained_values), *requested])
    grid = [round(step) for step in np.geomspace(min(trained_values), end, CURVE_POINTS)]
    budgets = sorted({tokens for _, tokens in cells})
    ratios = sorted({float(f"{tokens / parameters:.2g}") for parameters, tokens in cells})
    if form.variables == (TOKENS,):
        curves = [("", [(max(cells)[SIZE], step) for step in grid])]
    elif form.variables == (SIZE,):
        curves = [("", [(step, fitted.tokens_at(step)) for step in grid])]
    elif len(ratios) < len(budgets):
        curves = [(f"{x:g} tokens per parameter", [(step, max(1, round(x * step))) for step in grid]) for x in ratios]
    else:
        curves = [(f"{budget:,} tokens", [(step, budget) for step in grid]) for budget in budgets]
    return tuple(
        LawCurve(
            label=label,
            points=tuple(Prediction(parameters=n, tokens=d, loss=fitted.loss_at(n, d)) for n, d in curve_cells),
        )
        for label, curve_cells in curves[:MOST_CURVES]
    )


def _held_out_error(sample: Sample, form: LawForm) -> float | None:
    """Return the error of predicting the largest models (of a law in D, the largest budgets) by a law of the others."""
    axis, cells = form.variables[0], sample.cells()
    largest = _largest(cells, axis)[-1]
    smaller = sample.restrict({key for key in sample.losses if key[axis] < largest[axis]})
    fitted = _fit_law(smaller, form, draws=0)
    return None if fitted is None else float(fitted.law.losses(*largest)) - fmean(cells[largest])


def _exp(value: float | None) -> float | None:
    return None if value is None or value > 700 else float(np.exp(value))
