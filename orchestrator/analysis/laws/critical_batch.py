"""The tokens to a loss as a function of the batch size: each optimizer's critical batch. Pure functions.

    curves of each batch's judged runs ─► tokens to the target, by seed ─► T(B) = T_min (1 + B / B_crit)

Below B_crit a larger batch costs few tokens more and saves steps, beyond it costs tokens and saves few steps: at B_crit
both are twice their minimum (S. McCandlish et al., "An Empirical Model of Large-Batch Training", arXiv 1812.06162,
eq. 2.11; H. Zhang et al., "How Does Critical Batch Size Scale in Pre-training?", arXiv 2410.21676).

A batch counts once, as the mean logarithm over its seeds. Given B_crit the logarithm of T is linear in T_min's, so the
interval holds the values that an F-test of n - 2 degrees does not reject. It is open to above where the tokens are not
shown to rise with the batch, and to below where they are not shown to rise by less than it.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.candidates import CandidateSummary, loss_of, summaries
from orchestrator.analysis.comparison import Curves, comparison_design, tokens_per_step
from orchestrator.analysis.laws.records import BatchPoint, CriticalBatch, CriticalBatches, Estimate
from orchestrator.analysis.laws.verdicts import critical_batch_notes, critical_batch_verdict
from orchestrator.analysis.sequential import Array
from orchestrator.analysis.statistics import t_quantile
from orchestrator.analysis.targets import first_reached, geometric_mean, reached_between
from orchestrator.records import SIGNIFICANCE, ExperimentWithRuns

LEAST_BATCHES = 4
"""Two coefficients and two degrees of freedom; with one an interval is 12.7 standard errors."""
REACH = 1e4
"""Critical batches are looked for as far below the smallest batch, and above the largest …"""
PLACES = 1000
"""… at so many places: a bound is found to 3 %."""
FINE = 0.05
"""Two evaluations this far apart, as a share of the later one, tell when a loss was reached: straight lines between
them miss by half of that at most."""


def fit_batch_law(batches: Sequence[float], tokens: Sequence[float]) -> tuple[Estimate, Estimate] | None:
    """T_min and B_crit by the tokens that each batch took; None for fewer than `LEAST_BATCHES`."""
    if len(batches) < LEAST_BATCHES:
        return None
    places, squares, levels = _profile(batches, tokens)
    limit, best = _limit(squares, len(batches) - 2), int(squares.argmin())
    is_likely = squares <= limit
    wide = np.sqrt(np.maximum(limit - squares, 0.0) / len(batches))[is_likely]
    least_tokens = Estimate(
        value=float(np.exp(levels[best])),
        low=None if is_likely[0] else float(np.exp((levels[is_likely] - wide).min())),
        high=float(np.exp((levels[is_likely] + wide).max())),
    )
    return least_tokens, _estimate(places, is_likely, best)


def ratio_of_critical_batches(
    batches: Sequence[float], tokens: Sequence[float], baseline_tokens: Sequence[float], comparisons: int = 1
) -> Estimate | None:
    """A candidate's critical batch by the baseline's, over the batches that both have; one of so many comparisons. The
    errors of the two are taken for independent: what a batch's seeds share makes the interval too wide."""
    if len(batches) < LEAST_BATCHES:
        return None
    (places, squares, _), (_, baseline_squares, _) = _profile(batches, tokens), _profile(batches, baseline_tokens)
    # The least sum over all pairs of places that lie so far apart.
    shifts = range(1 - PLACES, PLACES)
    least = np.array(
        [
            (squares[max(shift, 0) : PLACES + shift] + baseline_squares[max(-shift, 0) : PLACES - shift]).min()
            for shift in shifts
        ]
    )
    ratios = (places[1] / places[0]) ** np.array(shifts, dtype=np.float64)
    return _estimate(ratios, least <= _limit(least, 2 * len(batches) - 4, comparisons), int(least.argmin()))


def _profile(batches: Sequence[float], tokens: Sequence[float]) -> tuple[Array, Array, Array]:
    """Critical batches, and for each the squares that are left of the logarithms, and the logarithm of T_min."""
    sizes, logs = np.array(batches, dtype=np.float64), np.log(np.array(tokens, dtype=np.float64))
    places = np.geomspace(sizes.min() / REACH, sizes.max() * REACH, PLACES)
    rest = logs - np.log1p(sizes / places[:, None])
    levels = rest.mean(axis=1)
    return places, np.asarray(((rest - levels[:, None]) ** 2).sum(axis=1)), np.asarray(levels)


def _limit(squares: Array, degrees: int, comparisons: int = 1) -> float:
    """Squares up to which an F-test of one coefficient rejects nothing."""
    t = t_quantile(degrees, 1 - SIGNIFICANCE / comparisons / 2)
    return float(squares.min()) * (1 + t**2 / degrees) + np.finfo(float).tiny


def _estimate(values: Array, is_likely: NDArray[np.bool_], best: int) -> Estimate:
    """The hull of what is kept; without a bound where that goes on to the end."""
    low, high = (None if is_likely[end] else float(values[is_likely][end]) for end in (0, -1))
    return Estimate(value=float(values[best]), low=low, high=high)


def critical_batches(
    measured: Sequence[ExperimentWithRuns],
    curves: Callable[[Sequence[str]], Curves],
    target: float | None = None,
) -> CriticalBatches | None:
    """Each common candidate's critical batch over experiments of one model with several batches; None for others.

    `target`: the loss that is to be reached; null takes the highest final loss of all judged runs that were not
    lost, which all of them reach. Of two experiments with one batch the seeds of both count.
    """
    designs = [comparison_design(experiment) for experiment, _ in measured]
    workloads = [experiment.spec.workload for experiment, _ in measured]
    sizes = [workload.budget.batch_sequences * workload.data.sequence_length_tokens for workload in workloads]
    if len(set(sizes)) < LEAST_BATCHES or len({workload.model for workload in workloads}) > 1:
        return None
    by_candidate: dict[str, dict[int, dict[int, CandidateSummary]]] = {}
    for index, (size, design, (_, runs)) in enumerate(zip(sizes, designs, measured, strict=True)):
        for summary in summaries(design, runs):
            by_candidate.setdefault(summary.candidate.name, {}).setdefault(size, {})[index] = summary
    names = [candidate.name for candidate in designs[0].candidates]
    names = [name for name in names if sum(map(len, by_candidate[name].values())) == len(measured)]
    baseline = designs[0].baseline
    summed = [
        summary for name in names for by_experiment in by_candidate[name].values() for summary in by_experiment.values()
    ]
    finals = [loss for summary in summed for loss in summary.best.losses().values()]
    if baseline not in names or not finals:
        return None
    wanted = max(finals) if target is None else target
    comparisons = max(len(names) - 1, 1)
    reached = {
        name: {
            size: _tokens_to(by_experiment, wanted, curves)
            for size, by_experiment in sorted(by_candidate[name].items())
        }
        for name in names
    }
    rows = []
    for name in sorted(names, key=lambda other: other != baseline):
        tokens, baseline_tokens = reached[name], reached[baseline]
        points = tuple(
            _point(size, by_run, baseline_tokens[size], comparisons) for size, by_run in tokens.items() if by_run
        )
        law = fit_batch_law([point.batch_tokens for point in points], [point.tokens for point in points])
        both = [size for size, by_run in tokens.items() if by_run and baseline_tokens[size]]
        means = [[_mean(by_batch_size[size]) for size in both] for by_batch_size in (tokens, baseline_tokens)]
        ratio = None if name == baseline else ratio_of_critical_batches(both, means[0], means[1], comparisons)
        rows.append(
            CriticalBatch(
                candidate=name,
                title=by_candidate[name][sizes[0]][0].candidate.title,
                is_baseline=name == baseline,
                points=points,
                not_reached=tuple(size for size, by_run in tokens.items() if not by_run),
                least_tokens=law and law[0],
                critical_batch_tokens=law and law[1],
                to_baseline=ratio,
                comparisons=comparisons,
                verdict="",
            )
        )
    falls = any(workload.schedule.shape != "constant" for workload in workloads)
    tuned = all(
        design.is_tuned or len(candidate.learning_rates) > 1 for design in designs for candidate in design.candidates
    )
    return CriticalBatches(
        target_loss=wanted,
        target_given=target is not None,
        rows=tuple(row.model_copy(update={"verdict": critical_batch_verdict(row)}) for row in rows),
        notes=critical_batch_notes(wanted, given=target is not None, tuned=tuned, falls=falls),
    )


Tokens = Mapping[tuple[int, int], float]
"""By the index of the experiment and the seed."""


def _tokens_to(
    of_size: Mapping[int, CandidateSummary], target: float, curves: Callable[[Sequence[str]], Curves]
) -> Tokens:
    """Of every judged run with one batch; empty where one was lost or did not get there, or nobody saw when."""
    runs = [(index, run) for index, summary in of_size.items() for run in summary.best_records()]
    seen = curves([run.id for _, run in runs if run.result is not None])
    tokens: dict[tuple[int, int], float] = {}
    for index, run in runs:
        curve = seen.get(run.id)
        if curve is None or loss_of(run) is None:
            return {}
        steps = first_reached(curve.steps, curve.losses, target)
        first, last = reached_between(curve.steps, curve.losses, target) or (0.0, math.inf)
        if not steps or last - first > FINE * last:
            return {}
        tokens[index, run.seed] = steps * tokens_per_step(run)
    return tokens


def _mean(tokens: Tokens) -> float:
    return float(np.exp(np.mean(np.log([*tokens.values()]))))


def _point(size: int, tokens: Tokens, baseline_tokens: Tokens, comparisons: int) -> BatchPoint:
    seeds = sorted(tokens.keys() & baseline_tokens.keys())
    ratio = (
        geometric_mean([tokens[seed] / baseline_tokens[seed] for seed in seeds], comparisons)
        if tokens is not baseline_tokens
        else None
    )
    return BatchPoint(batch_tokens=size, tokens=_mean(tokens), n=len(tokens), to_baseline=ratio)
