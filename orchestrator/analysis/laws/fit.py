"""From experiments of several sizes to the scaling law of each optimizer, with verdicts. A pure function on records.

    experiments ─► each candidate's cells at its best learning rates ─► a form they can tell ─► `model.py` ─► verdicts

A cell is a model size at a token budget and counts once, as the mean of its seeds: they share what its tuning missed,
and more of them are no more sizes. Two candidates are held against each other on the cells and seeds that both have,
with draws in common. A candidate is the same one in every experiment by its name. Runs without a trained model are
left out, and counted: those that have not ended apart from those that have. So are runs whose loss spiked: one of them
widens the intervals of exponents tenfold, and at the end of a line of sizes moves the exponent itself. How often a
candidate's runs spike or diverge is judged apart.

At a better rate than the best one of its grid a cell's loss may be lower: by its regret, and by any amount where that
rate lies at the grid's edge. What is said against the baseline holds whichever of these is so.
"""

import math
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean, variance

import numpy as np

from orchestrator.analysis.candidates import CandidateSummary, summaries
from orchestrator.analysis.comparison import comparison_spec, evaluation_error
from orchestrator.analysis.laws.memory import count_state, extrapolate_state
from orchestrator.analysis.laws.model import (
    FORMS,
    LETTERS,
    NUDGE,
    Law,
    LawForm,
    Observations,
    bootstrap,
    effective_tokens,
    fit,
    nudge,
    richest_form,
    simultaneous_intervals,
    spread_of,
    stretched_interval,
)
from orchestrator.analysis.laws.records import (
    CandidateFit,
    CurvePoint,
    DataEfficiency,
    Drift,
    Estimate,
    ExponentDifference,
    FitReport,
    FormName,
    HeldOutPrediction,
    LawCurve,
    LossDifference,
    Prediction,
    ScalingPoint,
    TypicalDifference,
)
from orchestrator.analysis.laws.targets import Target
from orchestrator.analysis.laws.verdicts import NO_COMMON_BUDGET, fit_notes, fit_verdict, no_law, too_few
from orchestrator.analysis.sequential import Array

instability: object = None
from orchestrator.analysis.statistics import mean_interval, normal_quantile, t_quantile

t_test = None
from orchestrator.errors import ConflictError
from orchestrator.jobs import TERMINAL
from orchestrator.records import SIGNIFICANCE, ExperimentRecord, ExperimentWithRuns
from worker.records.footprint import Footprint
from worker.records.result import Verdict

DRAWS = 1_000
"""Percentiles of 2.5 % rest on 25 draws at each end."""
SEED = 20_251_009
"""Of the bootstrap, so that the same runs give the same intervals."""
ALONG = 0.1
"""So far, of its logarithm, a budget may lie from what the others lead one to expect at its size: a step of tokens is
soon a few per cent of a small budget."""

SPIKE = 8.0
"""A run spiked that lies so many spreads above its cell's median: seldom does noise, Student's t with three degrees of
freedom included."""
LEAST_SPIKE = 0.01
"""Nor is anything a spike that is less than 1 % of the loss."""
LEAST_SIZES = 3
"""Of a typical difference: two have an interval of 12.7 standard errors."""
LEAST_BELOW = 4
"""Fewer runs below their medians do not tell what is usual."""
NO_MOVE = 1e-6
"""What a quantity moves by with the logarithm of a loss where it does not but for rounding."""

SIZE, TOKENS = 0, 1
"""The places of N and D among a form's variables."""


Key = tuple[int, int, int, int]
"""Parameters, tokens, seed and place of the experiment of a run: of two experiments with one cell, the runs of the same
one are pairs."""


class FitError(ConflictError):
    """These experiments cannot be fitted together."""


@dataclass(frozen=True, kw_only=True)
class BestRate:
    """At which rate a candidate's runs of a cell are judged, and what its tuning left open."""

    lr: float
    regret: float
    """How much lower the loss may be at a better one, nats; infinite where this one is open."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The runs of one candidate that count, in the order of size, budget and seed."""

    candidate: str
    title: str
    losses: Mapping[Key, float]
    left_out: int
    """Runs at the best rate that ended without a trained model: they diverged, or failed."""
    not_ended: int = 0
    """Runs at the best rate that wait or are at work."""
    spiked: int = 0
    """Runs that ended with a loss, and do not count."""
    unstable: frozenset[tuple[int, int]] = frozenset()
    """These, and those that diverged or ran out of memory, by the place of their experiment and their seed …"""
    ended: frozenset[tuple[int, int]] = frozenset()
    """… of those that ended with a result."""
    states: tuple[tuple[int, int], ...] = ()
    """Parameters, and bytes of optimizer state there; ascending."""
    rates: Mapping[int, BestRate] = field(default_factory=dict)
    """By the place of an experiment."""

    def restrict(self, keys: Container[Key]) -> "Sample":
        """Those of its runs."""
        return replace(self, losses={key: loss for key, loss in self.losses.items() if key in keys})

    def cells(self) -> Observations:
        """The points as arrays."""
        points = self.points()
        return Observations(
            parameters=np.array([each.parameters for each in points], dtype=np.float64),
            tokens=np.array([each.tokens for each in points], dtype=np.float64),
            losses=np.array([each.loss for each in points], dtype=np.float64),
        )

    def points(self) -> tuple[ScalingPoint, ...]:
        """Each cell's mean over its seeds, ordered by size and budget."""
        cells: dict[tuple[int, int], list[float]] = {}
        rates: dict[tuple[int, int], list[BestRate]] = {}
        for (parameters, tokens, _, place), loss in self.losses.items():
            cells.setdefault((parameters, tokens), []).append(loss)
            rates.setdefault((parameters, tokens), []).append(self.rates.get(place, BestRate(lr=0.0, regret=0.0)))
        found = []
        for cell, losses in sorted(cells.items()):
            regret = fmean(each.regret for each in rates[cell])
            open_lr = next((each.lr for each in rates[cell] if math.isinf(each.regret)), None)
            over_seeds = mean_interval(losses)
            found.append(
                ScalingPoint(
                    parameters=cell[0],
                    tokens=cell[1],
                    loss=float(np.mean(losses)),
                    low=over_seeds and over_seeds.low,
                    high=over_seeds and over_seeds.high,
                    n=len(losses),
                    open_lr=open_lr,
                    regret=regret if open_lr is None else None,
                )
            )
        return tuple(found)

    def tokens_at(self, parameters: int, form: LawForm, asked: int | None = None) -> int:
        """The tokens that a prediction at that size is of. With a law in tokens `asked`, or as many for each parameter
        as the largest model had; else what budgets its cells have, drawn on to that size, whatever was asked for."""
        if TOKENS in form.variables:
            largest = max(self.losses)
            return asked or max(1, round(parameters * largest[1] / largest[0]))
        slope, intercept, _ = _line({key[:2] for key in self.losses}, SIZE)
        return max(1, round(math.exp(intercept + slope * math.log(parameters))))

    def law_cells(self, form: LawForm) -> "Sample | None":
        """What a law of this form is one of. One of sizes alone is one at a budget for each size: of all cells where
        the budgets follow the size (as many tokens for all, or for each parameter), else of those at the largest budget
        that all sizes have, and None without one. A law of tokens alone likewise."""
        cells = {key[:2] for key in self.losses}
        if not cells or len(form.variables) > 1 or _line(cells, form.variables[0])[2] <= ALONG:
            return self
        swapped = form.variables[0] == TOKENS
        groups = _shared_budgets({cell[::-1] for cell in cells} if swapped else cells)
        if not groups:
            return None
        kept = {cell[::-1] for cell in groups[-1]} if swapped else groups[-1]
        return self.restrict({key for key in self.losses if key[:2] in kept})

    def sizes(self) -> tuple[int, ...]:
        """Distinct model sizes, ascending."""
        return tuple(sorted({key[0] for key in self.losses}))


@dataclass(frozen=True, kw_only=True)
class FittedLaw:
    """A candidate's law with its bootstrap draws."""

    sample: Sample
    law: Law
    draws: Law

    def degrees(self) -> int:
        """Degrees of freedom: cells, and not runs, less the coefficients."""
        return len({key[:2] for key in self.sample.losses}) - self.law.form.size()

    def estimate(self, value: Array, draws: Array, *, positive: bool = False) -> Estimate:
        """A quantity of the law with its interval; one that is positive by nature in logarithms."""
        if positive:
            with np.errstate(divide="ignore"):
                logs = self.estimate(np.log(value), np.log(draws))
            return Estimate(value=float(value), low=_exp(logs.low), high=_exp(logs.high))
        low, high = stretched_interval(float(value), draws, self.degrees())
        return Estimate(value=float(value), low=low, high=high)

    def loss_at(self, parameters: int, tokens: int) -> Estimate:
        """The predicted loss."""
        value, drawn = self.law.losses(parameters, tokens), self.draws.losses(parameters, tokens)
        return self.estimate(value, drawn, positive=True)

    def tokens_at(self, wanted: Target) -> int:
        """The tokens that a prediction is of."""
        return self.sample.tokens_at(wanted.parameters, self.law.form, wanted.tokens)


def fit_experiments(
    measured: Sequence[ExperimentWithRuns],
    *,
    form: FormName | None = None,
    predict: Iterable[tuple[int, int | None] | Target] = (),
    needs: Mapping[tuple[str, str], Footprint] | None = None,
    draws: int = DRAWS,
) -> FitReport:
    """The law of each candidate. An experiment that is given twice counts once.

    `predict`: (parameters, tokens) to say loss and memory at; without tokens, as many for each parameter as the largest
    model had, or the one budget that all sizes had. What the law says nothing about is a note. `needs`: the exact
    memory of (candidate, model), where it is known. Raises `FitError` where experiments have no candidate in common,
    and where a loss is not in nats."""
    measured = tuple(
        {(experiment.id, experiment.spec_hash): (experiment, runs) for experiment, runs in measured}.values()
    )
    _require_nats(experiment for experiment, _ in measured)
    samples = _samples(measured)
    baseline = comparison_spec(measured[0][0]).baseline_name()
    if baseline not in {each.candidate for each in samples}:
        names = ", ".join(each.candidate for each in samples) or "none"
        raise FitError(f"the baseline {baseline!r} is not a candidate of every experiment; common ones: {names}")
    fewest = min((each.points() for each in samples), key=len)
    chosen = FORMS[form] if form else richest_form([point.place() for point in fewest])
    fitted = {each.candidate: _fit_law(each, chosen, draws) for each in samples}
    asked = tuple(Target(*each) for each in predict)
    wanted = _predictable_targets(asked, chosen, samples)
    rows = [
        _row(
            each,
            fitted[each.candidate],
            _pair(fitted[each.candidate], fitted[baseline], draws),
            next(other for other in samples if other.candidate == baseline),
            chosen,
            wanted,
            needs or {},
            len(samples) - 1,
            max(evaluation_error(experiment.spec.workload) for experiment, _ in measured),
        )
        for each in samples
    ]
    ranked = sorted(rows, key=lambda row: not row.is_baseline)
    first, experiments = ranked[0], [experiment for experiment, _ in measured]
    return FitReport(
        experiments=tuple(dict.fromkeys(experiment.id for experiment, _ in measured)),
        form=chosen.name,
        formula=chosen.formula,
        baseline=baseline,
        draws=draws,
        fits=tuple(row.model_copy(update={"verdict": fit_verdict(row, first, chosen, experiments)}) for row in ranked),
        notes=fit_notes(
            experiments,
            ranked,
            chosen,
            left_out={each.title: each.left_out for each in samples},
            spiked={each.title: each.spiked for each in samples},
            not_ended={each.title: each.not_ended for each in samples},
            unsaid=[each for each in asked if each not in wanted],
        ),
    )


def _require_nats(experiments: Iterable[ExperimentRecord]) -> None:
    """A power law with a floor is one of cross-entropies: an excess risk has no floor, a reward may be negative."""
    for each in experiments:
        task = each.spec.workload.task
        if not task.loss_unit:
            raise FitError(
                f"experiment {each.id} measures {task.loss_name}, which has no scaling law in nats; "
                "fit experiments whose task is trained on a cross-entropy"
            )


def _samples(measured: Sequence[ExperimentWithRuns]) -> tuple[Sample, ...]:
    """The candidates that every experiment has, in the order of the first one."""
    experiments = [experiment for experiment, _ in measured]
    found = [
        {each.candidate.name(): each for each in summaries(comparison_spec(experiment), runs)}
        for experiment, runs in measured
    ]
    losses = {name: _final_losses(name, found) for name in dict.fromkeys(name for each in found for name in each)}
    spiked = {name: _spiked(each) for name, each in losses.items()}
    stable = {
        name: {key: loss for key, loss in sorted(each.items()) if key not in spiked[name]}
        for name, each in losses.items()
    }
    rates = _best_rates(experiments, found, stable)
    return tuple(
        _sample([each[name] for each in found], stable[name], spiked[name], rates[name])
        for name in found[0]
        if all(name in each for each in found)
    )


def _final_losses(name: str, found: Sequence[Mapping[str, CandidateSummary]]) -> dict[Key, float]:
    """Of all judged runs of a candidate that ended with a trained model."""
    return {
        (result.parameters, result.tokens, run.seed, place): float(result.final_val_loss or 0)
        for place, each in enumerate(found)
        if name in each
        for run in each[name].best.runs
        if (result := run.result) is not None
        and run.status in TERMINAL
        and result.verdict is Verdict.CONVERGED
        and (result.final_val_loss or 0) > 0
    }


def _sample(
    of_places: Sequence[CandidateSummary],
    losses: Mapping[Key, float],
    spiked: Collection[Key],
    rates: Mapping[int, BestRate],
) -> Sample:
    """A candidate's runs in each experiment; `losses` of those that count."""
    judged = [(place, run) for place, each in enumerate(of_places) for run in each.best.runs]
    ended = [(place, run) for place, run in judged if run.status in TERMINAL]
    verdicts = {(place, run.seed): run.result.verdict for place, run in ended if run.result is not None}
    states = {run.result.parameters: run.result.optimizer_state_bytes for _, run in judged if run.result is not None}
    lost = {at for at, verdict in verdicts.items() if verdict is not Verdict.CONVERGED}
    return Sample(
        candidate=of_places[0].candidate.name(),
        title=of_places[-1].candidate.title(),
        losses=losses,
        left_out=len(ended) - len(losses) - len(spiked),
        not_ended=len(judged) - len(ended),
        spiked=len(spiked),
        unstable=frozenset(lost | {(place, seed) for _, _, seed, place in spiked}),
        ended=frozenset(verdicts),
        states=tuple(sorted(states.items())),
        rates=rates,
    )


def _best_rates(
    experiments: Sequence[ExperimentRecord],
    of_places: Sequence[Mapping[str, CandidateSummary]],
    losses: Mapping[str, Mapping[Key, float]],
) -> dict[str, dict[int, BestRate]]:
    """Candidate → place → its rate there, by the losses that count. One that was taken over is open where it is open in
    a cell of the same experiment that was tuned."""
    is_open = {
        (experiment.id, name)
        for experiment, of_place in zip(experiments, of_places, strict=True)
        for name, each in of_place.items()
        if each.rate_is_open()
    }
    found: dict[str, dict[int, BestRate]] = {}
    for place, (experiment, of_place) in enumerate(zip(experiments, of_places, strict=True)):
        table = [{key[2]: loss for key, loss in each.items() if key[3] == place} for each in losses.values()]
        noise, degrees = _noise_of_runs([each for each in table if each])
        taken_over = comparison_spec(experiment).origin_of_rates() is not None
        for name, each in of_place.items():
            if each.rate_is_open() or (taken_over and (experiment.id, name) in is_open):
                regret = math.inf
            else:
                level = SIGNIFICANCE / max(len(of_place) - 1, 1)
                half_width = t_quantile(degrees, level / 2) * math.sqrt(2 * noise / (degrees + 1)) if degrees else 0.0
                regret = each.regret(noise, degrees)(level, half_width)
            found.setdefault(name, {})[place] = BestRate(lr=each.best.lr, regret=regret)
    return found


def _noise_of_runs(table: Sequence[Mapping[int, float]]) -> tuple[float, int]:
    """What the runs of a cell vary by beyond what candidates and seeds do (each row has the losses of a candidate by
    seed): of two candidates half of the variance of their differences. With its degrees of freedom; 0 of both where
    runs are too few."""
    common = sorted(set.intersection(*(set(row) for row in table))) if table else []
    if len(table) < 2 or len(common) < 2:
        return 0.0, 0
    degrees = (len(table) - 1) * (len(common) - 1)
    losses = np.array([[row[seed] for seed in common] for row in table])
    rest = losses - losses.mean(axis=0) - losses.mean(axis=1, keepdims=True) + losses.mean()
    return float(np.sum(rest**2)) / degrees, degrees


def _spiked(losses: Mapping[Key, float]) -> frozenset[Key]:
    """The runs that ended far above the median of their cell, in cells with three runs and more. A spike raises a loss:
    what is usual is how far runs lie below their medians."""
    cells: dict[tuple[int, int], list[float]] = {}
    for key, loss in losses.items():
        cells.setdefault(key[:2], []).append(float(np.log(loss)))
    above = {
        key: float(np.log(loss) - np.median(cells[key[:2]])) for key, loss in losses.items() if len(cells[key[:2]]) > 2
    }
    below = [-by for by in above.values() if by < 0]
    if len(below) < LEAST_BELOW:
        return frozenset()
    limit = max(SPIKE * float(np.median(below)) / normal_quantile(0.75), LEAST_SPIKE)
    return frozenset(key for key, by in above.items() if by > limit)


def _predictable_targets(asked: Sequence[Target], form: LawForm, samples: Sequence[Sample]) -> tuple[Target, ...]:
    """What the law can say something about: one of tokens alone knows the sizes that were trained, and no others."""
    if SIZE in form.variables:
        return tuple(asked)
    trained = {size for sample in samples for size in sample.sizes()}
    return tuple(each for each in asked if each.parameters in trained)


def _line(cells: Iterable[tuple[int, int]], axis: int) -> tuple[float, float, float]:
    """Slope and intercept of the line, in logarithms, that the budgets of these sizes follow (or, along tokens, the
    sizes of these budgets), and how far from it one lies at most."""
    x, y = np.log(np.array([(cell[axis], cell[1 - axis]) for cell in cells], dtype=np.float64)).T
    spread = x - x.mean()
    slope = float(spread @ y / (spread @ spread)) if len(set(x)) > 1 else 0.0
    intercept = float(y.mean() - slope * x.mean())
    return slope, intercept, float(np.abs(y - intercept - slope * x).max())


def _fit_law(sample: Sample | None, form: LawForm, draws: int) -> FittedLaw | None:
    """None where there are fewer cells than coefficients and one more, or no budget that a law of sizes is one at."""
    sample = sample and sample.law_cells(form)
    if sample is None or too_few([point.place() for point in sample.points()], form):
        return None
    cells = sample.cells()
    law = fit(form, cells)
    return FittedLaw(sample=sample, law=law, draws=bootstrap(law, cells, draws, SEED))


def _pair(fitted: FittedLaw | None, baseline: FittedLaw | None, draws: int) -> tuple[FittedLaw, FittedLaw] | None:
    """The laws of a candidate and of the baseline, both fitted to the cells and seeds that both have, and drawn
    together; None where one of them is no law, and for the baseline itself."""
    mine, theirs = _law_only(fitted), _law_only(baseline)
    if mine is None or theirs is None or mine is theirs:
        return None
    common = mine.sample.losses.keys() & theirs.sample.losses.keys()
    mine, theirs = (
        each
        if each.sample.losses.keys() <= common
        else _law_only(_fit_law(each.sample.restrict(common), each.law.form, draws))
        for each in (mine, theirs)
    )
    if mine is None or theirs is None:
        return None
    drawn = bootstrap(mine.law, mine.sample.cells(), draws, SEED, (theirs.law, theirs.sample.cells()))
    return replace(mine, draws=drawn), theirs


def _row(
    sample: Sample,
    fitted: FittedLaw | None,
    pair: tuple[FittedLaw, FittedLaw] | None,
    baseline: Sample,
    form: LawForm,
    predict: Sequence[Target],
    needs: Mapping[tuple[str, str], Footprint],
    comparisons: int,
    shared_error: float,
) -> CandidateFit:
    """`shared_error`: of each loss apart from the baseline's, by the validation text."""
    law, coefficients = _law_only(fitted), _coefficients(fitted) if fitted else {}
    differences = _loss_differences(*pair, shared_error) if pair else ()
    return CandidateFit(
        candidate=sample.candidate,
        title=sample.title,
        is_baseline=sample is baseline,
        points=_fitted_points(sample, law, form),
        coefficients=coefficients,
        no_law=NO_COMMON_BUDGET if sample.law_cells(form) is None else no_law(coefficients),
        relative_error=_relative_error(fitted) if fitted else None,
        held_out=_check_largest(law.sample, form) if law else None,
        predictions=tuple(_prediction(law, each, needs) for each in predict) if law else (),
        against_baseline=_differences(*pair, comparisons) if pair else (),
        loss_differences=differences,
        drift=_drift(*pair, differences, comparisons) if pair else None,
        typical_difference=None
        if sample is baseline
        else typical_difference(
            _differences_by_cell(sample, baseline, form),
            comparisons,
            _regrets_by_cell(sample, baseline, form),
            shared_error,
        ),
        data_efficiency=_efficiencies(*pair, shared_error) if pair else (),
        curves=_curves(law, predict) if law else (),
        instability=instability(
            sample.unstable,
            sample.ended,
            None if sample is baseline else baseline.unstable,
            comparisons,
            baseline_ended=baseline.ended,
        )
        if sample.ended
        else None,
        verdict="",
    )


Differences = Mapping[tuple[int, int], Mapping[int, Sequence[float]]]
"""Size and budget → seed → those of each experiment that has the cell."""


def _differences_by_cell(sample: Sample, baseline: Sample, form: LawForm) -> Differences:
    """Those to the baseline, over the runs that both have; of a law in tokens by budget and size."""
    axes = (SIZE, TOKENS) if SIZE in form.variables else (TOKENS, SIZE)
    found: dict[tuple[int, int], dict[int, list[float]]] = {}
    for key, loss in sample.losses.items():
        if key in baseline.losses:
            cell = key[axes[0]], key[axes[1]]
            found.setdefault(cell, {}).setdefault(key[2], []).append(loss - baseline.losses[key])
    return found


def _regrets_by_cell(sample: Sample, baseline: Sample, form: LawForm) -> dict[tuple[int, int], tuple[float, float]]:
    """How far below and above these differences the truth may lie, by what the tuning of either left open."""
    common = sample.losses.keys() & baseline.losses.keys()
    return {
        (mine.parameters, mine.tokens) if SIZE in form.variables else (mine.tokens, mine.parameters): (
            mine.largest_regret(),
            theirs.largest_regret(),
        )
        for mine, theirs in zip(sample.restrict(common).points(), baseline.restrict(common).points(), strict=True)
    }


def _shared_budgets(cells: Iterable[tuple[int, int]]) -> list[set[tuple[int, int]]]:
    """The cells at each budget that every size has, ascending: so many tokens, or so many for each parameter, whichever
    more cells have in common."""
    cells = list(cells)
    sizes = {size for size, _ in cells}

    def groups(budget: Callable[[int, int], float]) -> list[set[tuple[int, int]]]:
        having: dict[float, set[tuple[int, int]]] = {}
        for cell in cells:
            having.setdefault(budget(*cell), set()).add(cell)
        return [found for _, found in sorted(having.items()) if {size for size, _ in found} == sizes]

    return max(
        groups(lambda _size, budget: float(budget)),
        groups(lambda size, budget: float(f"{budget / size:.2g}")),
        key=lambda found: sum(len(each) for each in found),
    )


def typical_difference(
    differences: Differences,
    comparisons: int = 1,
    left_open: Mapping[tuple[int, int], tuple[float, float]] | None = None,
    shared_error: float = 0.0,
) -> TypicalDifference | None:
    """What a candidate differs by from the baseline at a typical size: the mean over sizes, one of so many
    `comparisons`. None for fewer sizes than `LEAST_SIZES`. `left_open`: how far below and above its difference the
    truth of a cell may lie; without a bound on the side where that is any amount. `shared_error`: of all sizes alike,
    by their validation text.

    A difference may hang on the budget, so that sizes are averaged over the budgets that all have. Where they have none
    in common, each is over its own. A size's mean is that of its cells, whichever seeds these lack; what seeds vary by
    is told by those that have all cells of their size.

    Every size weighs the same, and sizes are what is sampled: that is the random-effects mean with the interval of
    Hartung and Knapp (Stat. Med. 20, 2001) where all sizes are as noisy. Weighted by variances that three to five seeds
    tell, as in meta-analyses, it would be too narrow.
    """
    common = set[tuple[int, int]]().union(*_shared_budgets(differences))
    by_size: dict[int, list[dict[int, float]]] = {}
    open_by_size: dict[int, list[tuple[float, float]]] = {}
    for cell in sorted(common or differences):
        means_of_seeds = {seed: fmean(each) for seed, each in differences[cell].items()}
        by_size.setdefault(cell[0], []).append(means_of_seeds)
        open_by_size.setdefault(cell[0], []).append((left_open or {}).get(cell, (0.0, 0.0)))
    if len(by_size) < LEAST_SIZES:
        return None
    means = [fmean(fmean(cell.values()) for cell in cells) for cells in by_size.values()]
    found = mean_interval(means, comparisons)
    if found is None:
        return None
    below, above = (fmean(fmean(each[side] for each in cells) for cells in open_by_size.values()) for side in (0, 1))
    low, high = _widen(found.mean, found.low, found.high, shared_error, (below, above), comparisons)
    found = found.model_copy(update={"low": low, "high": high})
    whole = [
        [fmean(cell[seed] for cell in cells) for seed in set.intersection(*(set(cell) for cell in cells))]
        for cells in by_size.values()
    ]
    spread = None
    if all(len(each) > 1 for each in whole):
        of_seeds = fmean(variance(each) / len(each) for each in whole)
        spread = math.sqrt(max(0.0, variance(means) - of_seeds))
    return TypicalDifference(
        difference=found,
        comparisons=comparisons,
        spread=spread,
        cells_left_out=len(differences) - len(common) if common else 0,
        in_common=bool(common),
    )


def _widen(
    value: float,
    low: float | None,
    high: float | None,
    shared_error: float,
    left_open: tuple[float, float],
    comparisons: int = 1,
) -> tuple[float | None, float | None]:
    """An interval that holds an error of all sizes, which their residuals do not show, in squares as in `t_test`; and
    what tuning left open below and above, without a bound where that is any amount."""
    shared, (below, above) = normal_quantile(SIGNIFICANCE / comparisons / 2) * shared_error, left_open
    return (
        None if low is None or math.isinf(below) else value - math.hypot(value - low, shared) - below,
        None if high is None or math.isinf(above) else value + math.hypot(high - value, shared) + above,
    )


def _law_only(fitted: FittedLaw | None) -> FittedLaw | None:
    """What was fitted, where it is a law: nothing is predicted, compared or drawn without one."""
    return None if fitted is None or no_law(_coefficients(fitted)) else fitted


def _coefficients(fitted: FittedLaw) -> dict[str, Estimate]:
    drawn = fitted.draws.coefficients()
    return {
        name: fitted.estimate(value, drawn[name], positive=name in "AB")
        if name != "E"
        else _floor(fitted, value, drawn)
        for name, value in fitted.law.coefficients().items()
    }


def _floor(fitted: FittedLaw, value: Array, drawn: dict[str, Array]) -> Estimate:
    """E with its interval, which a stretched one may leave: no loss is below zero."""
    found = fitted.estimate(value, drawn["E"])
    return found.model_copy(update={"low": None if found.low is None else max(0.0, found.low)})


def _relative_error(fitted: FittedLaw) -> float:
    points = fitted.sample.points()
    residuals = [np.log(each.loss / fitted.law.losses(each.parameters, each.tokens)) for each in points]
    return float(np.sqrt(np.mean(np.square(residuals))))


def _fitted_points(sample: Sample, fitted: FittedLaw | None, form: LawForm) -> tuple[ScalingPoint, ...]:
    of_law = sample.law_cells(form)
    cells = {key[:2] for key in of_law.losses} if of_law else set()
    return tuple(
        point.model_copy(
            update={
                "is_in_law": (is_in_law := point.place() in cells),
                "fitted": float(fitted.law.losses(*point.place())) if fitted and is_in_law else None,
            }
        )
        for point in sample.points()
    )


def _prediction(fitted: FittedLaw, wanted: Target, needs: Mapping[tuple[str, str], Footprint]) -> Prediction:
    tokens, need = fitted.tokens_at(wanted), needs.get((fitted.sample.candidate, wanted.model or ""))
    exact = count_state(need) if need is not None and need.parameters == wanted.parameters else None
    return Prediction(
        parameters=wanted.parameters,
        tokens=tokens,
        loss=fitted.loss_at(wanted.parameters, tokens),
        model=wanted.model,
        memory=exact or extrapolate_state(fitted.sample.states, wanted.parameters),
    )


STEPS = 40
"""Points of a curve: on logarithmic axes it bends little."""
BEYOND = 2.0
"""How far a curve goes beyond the largest point, unless something farther is predicted."""
MOST_CURVES = 6


def _curves(fitted: FittedLaw, predict: Sequence[Target]) -> tuple[LawCurve, ...]:
    """The law along the sizes that were trained and some beyond, for figures. A law of one variable is one curve. A law
    of both is one over the sizes for each budget: for each number of tokens, or of tokens per parameter, whichever the
    experiments have fewer of."""
    form, places = fitted.law.form, [point.place() for point in fitted.sample.points()]
    axis = SIZE if SIZE in form.variables else TOKENS
    along = [place[axis] for place in places]
    asked = [(each.parameters, fitted.tokens_at(each))[axis] for each in predict]
    grid = [round(each) for each in np.geomspace(min(along), max([BEYOND * max(along), *asked]), STEPS)]
    if axis == TOKENS:
        return (_curve(fitted, "", [(max(places)[SIZE], each) for each in grid]),)
    if TOKENS not in form.variables:
        return (_curve(fitted, "", [(each, fitted.sample.tokens_at(each, form)) for each in grid]),)
    budgets = sorted({tokens for _, tokens in places})
    ratios = sorted({float(f"{tokens / parameters:.2g}") for parameters, tokens in places})
    if len(ratios) < len(budgets):
        return tuple(
            _curve(fitted, f"{each:g} tokens per parameter", [(size, max(1, round(each * size))) for size in grid])
            for each in ratios[:MOST_CURVES]
        )
    return tuple(_curve(fitted, f"{each:,} tokens", [(size, each) for size in grid]) for each in budgets[:MOST_CURVES])


def _curve(fitted: FittedLaw, label: str, places: Sequence[tuple[int, int]]) -> LawCurve:
    return LawCurve(
        label=label,
        points=tuple(CurvePoint(parameters=n, tokens=d, loss=fitted.loss_at(n, d)) for n, d in places),
    )


def _check_largest(sample: Sample, form: LawForm) -> HeldOutPrediction | None:
    """Fit without the largest models (or, for laws in D, the largest budgets) and predict them."""
    axis = SIZE if SIZE in form.variables else TOKENS
    largest = max(key[axis] for key in sample.losses)
    fitted = _fit_law(sample.restrict({key for key in sample.losses if key[axis] < largest}), form, DRAWS // 4)
    if fitted is None:
        return None
    left = [point for point in sample.points() if point.place()[axis] == largest]
    point = max(left, key=lambda each: each.tokens)
    predicted = fitted.loss_at(point.parameters, point.tokens)
    return HeldOutPrediction(
        parameters=point.parameters, measured=point.loss, predicted=predicted, error=predicted.value - point.loss
    )


Quantity = Callable[[Law, Law], Array]
"""Of a candidate's law and the baseline's."""


def _measure(quantity: Quantity, fitted: FittedLaw, baseline: FittedLaw) -> tuple[Array, Array, tuple[float, float]]:
    """The quantity, that of the draws in common, and its `_regret_bounds`."""
    value = quantity(fitted.law, baseline.law)
    return value, quantity(fitted.draws, baseline.draws), _regret_bounds(quantity, fitted, baseline, value)


def _regret_bounds(quantity: Quantity, fitted: FittedLaw, baseline: FittedLaw, value: Array) -> tuple[float, float]:
    """How far below and above its value a quantity of two laws may lie by what the tuning of their cells left open, if
    all that move it to a side do so at once; infinite where a cell does whose best rate is open."""
    below = above = 0.0
    sides: tuple[tuple[FittedLaw, Callable[[Law], Array]], ...] = (
        (fitted, lambda law: quantity(law, baseline.law)),
        (baseline, lambda law: quantity(fitted.law, law)),
    )
    for of, moved in sides:
        if not any(point.largest_regret() for point in of.sample.points()):
            continue
        for point, move in _moves(moved, of, value):
            if point.largest_regret() and abs(move) > NO_MOVE / point.loss:
                by = move * point.largest_regret()
                below, above = below + max(-by, 0.0), above + max(by, 0.0)
    return below, above


def _moves(quantity: Callable[[Law], Array], of: FittedLaw, value: Array) -> list[tuple[ScalingPoint, float]]:
    """Each cell of a law, and what the quantity, which has this value, moves by for each nat that its loss is lower."""
    moves = (quantity(nudge(of.law, of.sample.cells())) - value) / NUDGE
    return [(point, float(move) / point.loss) for point, move in zip(of.sample.points(), moves, strict=True)]


def _test(
    value: float, spread: float | None, degrees: int, comparisons: int, left_open: tuple[float, float]
) -> tuple[Estimate, float | None, bool]:
    """A difference with its interval, its p-value, and whether better rates could turn it: without a bound where they
    could move it by any amount, and without a test where that is on the side of zero."""
    below, above = left_open
    finite_below, finite_above = (0.0 if math.isinf(each) else each for each in left_open)
    low, high, p = t_test(value, spread, degrees, comparisons, reach=lambda _level: (finite_below, finite_above))
    is_open = (value >= 0 and math.isinf(below)) or (value <= 0 and math.isinf(above))
    low, high = None if math.isinf(below) else low, None if math.isinf(above) else high
    return Estimate(value=value, low=low, high=high), None if is_open else p, is_open


def _differences(fitted: FittedLaw, baseline: FittedLaw, comparisons: int) -> tuple[ExponentDifference, ...]:
    """Exponents against the baseline's. Cells of the same size and budget are drawn together."""
    variables = fitted.law.form.variables
    tests, found = comparisons * len(variables), []
    for _, name in (LETTERS[variable] for variable in variables):

        def difference(one: Law, other: Law, exponent: str = name) -> Array:
            return np.asarray(one.coefficients()[exponent] - other.coefficients()[exponent])

        value, drawn, left_open = _measure(difference, fitted, baseline)
        apart, p, _ = _test(float(value), spread_of(drawn, tests), fitted.degrees(), tests, left_open)
        found.append(ExponentDifference(exponent=name, difference=apart, p_value=p, comparisons=tests))
    return tuple(found)


def _loss_differences(fitted: FittedLaw, baseline: FittedLaw, shared_error: float) -> tuple[LossDifference, ...]:
    """The two laws' losses apart, at every size (or budget): where the larger exponent loses more, this says so. A band
    over all of them, by the largest deviation in standard errors of each draw, and by the error that all of them share.
    """
    places = _places(fitted)
    measured = [
        _measure(partial(_loss_difference, parameters=place[0], tokens=place[1]), fitted, baseline) for place in places
    ]
    values, drawn = np.array([value for value, _, _ in measured]), np.stack([each for _, each, _ in measured])
    bands = simultaneous_intervals(values, drawn, fitted.degrees())
    found = []
    for place, (value, _, left_open), (low, high) in zip(places, measured, bands, strict=True):
        low, high = _widen(float(value), low, high, shared_error, left_open)
        apart = Estimate(value=float(value), low=low, high=high)
        found.append(LossDifference(parameters=place[0], tokens=place[1], difference=apart))
    return tuple(found)


def _drift(fitted: FittedLaw, baseline: FittedLaw, differences: Sequence[LossDifference], comparisons: int) -> Drift:
    def drift(one: Law, other: Law) -> Array:
        at_first, at_last = (
            _loss_difference(one, other, each.parameters, each.tokens) for each in (differences[0], differences[-1])
        )
        return at_last - at_first

    value, drawn, left_open = _measure(drift, fitted, baseline)
    change, p, is_open = _test(float(value), spread_of(drawn, comparisons), fitted.degrees(), comparisons, left_open)
    return Drift(change=change, p_value=p, comparisons=comparisons, rate_is_open=is_open)


def _places(fitted: FittedLaw) -> list[tuple[int, int]]:
    """(parameters, tokens) at each step of the law's axis, with the most of the other."""
    axis = SIZE if SIZE in fitted.law.form.variables else TOKENS
    largest: dict[int, tuple[int, int]] = {}
    for place in sorted({key[:2] for key in fitted.sample.losses}):
        largest[place[axis]] = max(place, largest.get(place[axis], place))
    return [largest[key] for key in sorted(largest)]


def _loss_difference(law: Law, other: Law, parameters: int, tokens: int) -> Array:
    return np.asarray(law.losses(parameters, tokens) - other.losses(parameters, tokens))


def _efficiencies(fitted: FittedLaw, baseline: FittedLaw, shared_error: float) -> tuple[DataEfficiency, ...]:
    """D_eff / D at each cell that both have, by both laws and their draws in common."""
    if TOKENS not in baseline.law.form.variables:
        return ()
    return tuple(_efficiency(fitted, baseline, point, shared_error) for point in fitted.sample.points())


def _efficiency(fitted: FittedLaw, baseline: FittedLaw, point: ScalingPoint, shared_error: float) -> DataEfficiency:
    def ratio(mine: Law, theirs: Law) -> Array:
        losses = mine.losses(point.parameters, point.tokens)
        return effective_tokens(theirs, point.parameters, losses) / point.tokens

    def log_ratio(mine: Law, theirs: Law) -> Array:
        return np.asarray(np.log(ratio(mine, theirs)))

    value = ratio(fitted.law, baseline.law)
    if not np.isfinite(value):
        return DataEfficiency(parameters=point.parameters, tokens=point.tokens, ratio=None, low=None, high=None)
    logarithm = np.log(value)
    found = baseline.estimate(logarithm, log_ratio(fitted.draws, baseline.draws))
    moves = _moves(lambda law: log_ratio(law, baseline.law), fitted, logarithm)
    error = shared_error * abs(sum(move for _, move in moves))
    left_open = _regret_bounds(log_ratio, fitted, baseline, logarithm)
    low, high = _widen(found.value, found.low, found.high, error, left_open)
    return DataEfficiency(
        parameters=point.parameters,
        tokens=point.tokens,
        ratio=float(value),
        low=_exp(low),
        high=_exp(high),
    )


def _exp(value: float | None) -> float | None:
    return None if value is None or value > 700 else float(np.exp(value))
