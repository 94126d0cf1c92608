"""Whether a candidate is better than a baseline, as one try of many: an error for a whole campaign, by betting.

A campaign has one error, 5 % for instance, however many tries it comes to. The i-th try gets a share of it when it is
registered, and keeps it whatever becomes of it,

    α_i = error × 1 / (C (i + 1) ln²(i + 1)),        C = 2.1097…, so that all shares sum to 1,

so that by Bonferroni's inequality the chance of any false "improved" stays below the error.

A try bets on each pair's difference x, candidate minus baseline, cut at ±c. Against "the mean of the cut differences is
at least m", a gambler who stakes the share b of what is allowed has after n pairs

    W_n = ∏ (1 + b (m − x_k) / (c − m)),        0 < b < 1

of his one unit, which no factor can make negative, and which grows on average only where the mean is below m. By
Ville's inequality it ever reaches 1/α with probability α at most, whatever the distribution and whenever one looks (V.
Ville 1939; I. Waudby-Smith and A. Ramdas, JRSS B 86, 2024). Three gamblers with other stakes share one purse. The m
from which on the purse has reached 1/α is the upper end of the interval: it lies below zero exactly where the candidate
is shown to be better. So the levels are exact with four pairs, and for skewed differences, where t-tests at levels of
one in a million were not (`python -m benchmarks.research_gate`).

What is claimed is about the mean of the *cut* differences. Where candidate and baseline may change places without a
difference (they are exchangeable) it is zero, however losses are distributed. A seed whose difference lies beyond ±c
counts as ±c: a rare disaster weighs no more. So c is twice the gain worth finding, which should be about the standard
deviation of a difference: at half of it, a candidate that is mostly better and seldom much worse is shown to be better,
whose plain mean is not.
"""

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum

import numpy as np

from orchestrator.analysis.sequential import FUTILE, Array
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.records import RunRecord
from worker.records.result import Record, Result, Verdict

NORMALISER = 2.1097428012
"""The sum of 1 / ((i + 1) ln²(i + 1)) over all i from 1."""
CUT = 2.0
"""Times the gain that is worth finding: where differences are cut."""
STAKES = (0.3, 0.6, 0.9)
"""Of what is allowed, of the gamblers who share a purse."""
FIRST_PAIRS = 4
"""Before a try may be given up."""
PAIRS_PER_LOG = 6.0
"""Pairs of a try at most, times ln(1/α): twice what the fixed t-test needs for a gain of one standard deviation."""


def try_level(place: int, error: float) -> float:
    """One-sided, of the try at that place from 1, of a campaign with that error."""
    return error / (NORMALISER * (place + 1) * math.log(place + 1) ** 2)


def most_pairs(level: float) -> int:
    """What a try at that level may take."""
    return math.ceil(PAIRS_PER_LOG * math.log(1 / level))


def log_purses(differences: Array, cut: float, mean: float = 0.0) -> Array:
    """The logarithm of the purse after each pair (the last axis), against "the mean of the differences, cut at ±`cut`,
    is at least `mean`"; `mean` lies within the cut."""
    stakes = np.asarray(STAKES)
    gains = (mean - np.clip(differences, -cut, cut)) / (cut - mean)
    logs = np.log1p(gains[..., None] * stakes).cumsum(axis=-2)
    return np.asarray(np.logaddexp.reduce(logs, axis=-1) - math.log(len(STAKES)))


def chances_of_improvement(differences: Array, pairs: int, most: int, level: float, cut: float) -> Array:
    """The probability that the purse reaches 1/`level` by the last of `most` pairs, if differences (the last axis) go
    on as the first `pairs`, roughly: a mean M of the cut differences and their standard deviation s make the best
    gambler's purse exp(n M² / 2 (s² + M²)). It decides when to give up, and no claim."""
    from scipy.special import stdtr  # a fifth of a second that only campaigns ask for

    needed = math.log(1 / level)
    known = np.clip(differences[..., :pairs], -cut, cut)
    mean, spread = known.mean(axis=-1), np.maximum(known.std(axis=-1, ddof=1), 1e-9 * cut)
    if most <= 2 * needed:
        return np.zeros_like(mean)
    bound = -spread * math.sqrt(2 * needed / (most - 2 * needed))
    return np.asarray(stdtr(pairs - 1, (bound - mean) / (spread * math.sqrt((most - pairs) / (most * pairs)))))


class PairsState(StrEnum):
    """What the pairs of a try say so far."""

    OPEN = "open"
    """More pairs may show it."""
    SHOWN = "shown"
    """Better than the baseline, at the try's level."""
    FUTILE = "futile"
    """Given up: unlikely to be shown by the last pair."""
    EXHAUSTED = "exhausted"
    """Not shown with all pairs."""


class Improvement(Record):
    """What the pairs of a try come to."""

    state: PairsState
    pairs: int
    """Those that decided it, in the order of their seeds: none after."""
    mean: float
    """Of the cut differences."""
    low: float
    """Below it the mean does not lie, at the try's level; −cut where nothing is known."""
    high: float
    """Above it the mean does not lie, at the try's level; +cut where nothing is known."""
    cut_pairs: int
    """Whose difference was cut."""
    evidence: float
    """The purse, of the 1/level that shows it; the largest so far."""


def judge_improvement(differences: Sequence[float], *, level: float, gain: float, most: int) -> Improvement:
    """A try from its pairs, in the order of their seeds: candidate minus baseline, an infinite one where one of the two
    has no loss; 0 where neither has."""
    cut = CUT * gain
    values = np.asarray(differences[:most], dtype=float)
    purses = log_purses(values, cut)
    state, pairs = PairsState.OPEN, len(values)
    for n in range(1, len(values) + 1):
        if purses[n - 1] >= math.log(1 / level):
            state, pairs = PairsState.SHOWN, n
        elif n == most:
            state, pairs = PairsState.EXHAUSTED, n
        elif n >= FIRST_PAIRS and chances_of_improvement(values, n, most, level, cut) < FUTILE:
            state, pairs = PairsState.FUTILE, n
        if state is not PairsState.OPEN:
            break
    used = values[:pairs]
    return Improvement(
        state=state,
        pairs=pairs,
        mean=float(np.clip(used, -cut, cut).mean()) if pairs else 0.0,
        low=-_upper_bound(-used, level, cut),
        high=_upper_bound(used, level, cut),
        cut_pairs=int((np.abs(used) > cut).sum()),
        evidence=float(np.exp(purses[:pairs].max(initial=0.0))),
    )


def improvement_of(spec: ComparisonSpec, runs: Iterable[RunRecord]) -> Improvement:
    """The try that a comparison with `sequential.improvement` is. Its pairs count in the order of its seeds, up to the
    first one that lacks a result: a run that failed or was cancelled holds up those behind it until it is retried, so
    that nobody can choose among pairs."""
    assert spec.sequential is not None
    assert spec.sequential.improvement is not None
    test, results = spec.sequential.improvement, {(run.candidate, run.seed): run.result for run in runs}
    baseline = spec.baseline_name()
    (candidate,) = (name for name in spec.names() if name != baseline)
    differences: list[float] = []
    for seed in spec.seeds:
        mine, theirs = results.get((candidate, seed)), results.get((baseline, seed))
        if mine is None or theirs is None:
            break
        differences.append(_difference(mine, theirs))
    return judge_improvement(differences, level=test.level, gain=test.gain, most=len(spec.seeds))


def added_pairs(spec: ComparisonSpec, runs: Sequence[RunRecord]) -> tuple[PlannedRun, ...]:
    """The next pairs of a try that is open, once all pairs so far have results."""
    assert spec.sequential is not None
    found, seeds = improvement_of(spec, runs), {run.seed for run in runs}
    if found.state is not PairsState.OPEN or found.pairs < len(seeds):
        return ()
    return tuple(
        spec.planned_run(each.name(), seed=seed, setting={"lr": each.own_rate()})
        for seed in spec.seeds[len(seeds) : len(seeds) + spec.sequential.seeds_per_look]
        for each in spec.candidates
    )


def _difference(mine: Result, theirs: Result) -> float:
    """A candidate that diverges or runs out of memory is worse by all that counts. Where the baseline does, the pair
    tells nothing."""
    loss, baseline_loss = _loss(mine), _loss(theirs)
    return 0.0 if baseline_loss is None else math.inf if loss is None else loss - baseline_loss


def _loss(result: Result) -> float | None:
    loss = result.final_val_loss if result.verdict is Verdict.CONVERGED else None
    return loss if loss is not None and math.isfinite(loss) else None


def _upper_bound(differences: Array, level: float, cut: float) -> float:
    """The least mean that the purse has refused: it grows with the mean, as each of its factors does."""
    if not differences.size:
        return cut
    low, high = -cut, cut
    for _ in range(45):
        mean = (low + high) / 2
        refused = log_purses(differences, cut, mean).max() >= math.log(1 / level)
        low, high = (low, mean) if refused else (mean, high)
    return high
