"""The one estimator: what the judged runs of a candidate say against those of a baseline. Pure functions on facts.

    losses by seed, runs that were lost ─► paired differences ─► t-interval, p-value, TOST ─► better, worse, as good,
                                                                                             undecided, unstable

Of k comparisons each interval has the confidence 1 - 0.05 / k and each p-value is multiplied by k (O. J. Dunn, JASA 56,
1961); "as good" needs both one-sided tests against the margin at 0.05 / k, so an interval of the confidence
1 - 2 · 0.05 / k within the margin (D. J. Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987). All three are read off one
half width, so they cannot disagree:

    half(tail) = hypot(t_{n-1}(tail) · s / √n, z(tail) · e)

with s of the differences and e, the standard error by the validation text, which all seeds share (G. Y. Zou and A.
Donner, Stat. Med. 27, 2008).
"""

import math
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import comb

import numpy as np

from orchestrator.analysis import scipy_parts as sp
from orchestrator.analysis.power import level_of, seeds_to_decide
from orchestrator.analysis.sequential import Look
from orchestrator.analysis.statistics import normal_quantile, resolution, t_quantile
from orchestrator.records import SIGNIFICANCE, Conclusion, Difference, Instability


@dataclass(frozen=True, kw_only=True)
class JudgedRuns:
    """The judged runs of a candidate."""

    losses: Mapping[int, float]
    """Seed, or replicate → final loss, of runs that were not lost."""
    lost: Collection[int] = field(default_factory=frozenset)
    """Seeds whose run was lost."""
    ended: Collection[int] = field(default_factory=frozenset)
    """Seeds whose run has a result, lost or not."""
    is_at_edge: bool = False
    """Whether the best trial of its tuning was the lowest or highest one."""


def half_width(tail: float, n: int, sd: float, evaluation_error: float) -> float:
    """Return half the width of the interval with this probability in each of its two tails."""
    return math.hypot(t_quantile(n - 1, 1 - tail) * sd / math.sqrt(n), normal_quantile(1 - tail) * evaluation_error)


def paired_difference(
    losses: Mapping[int, float],
    baseline_losses: Mapping[int, float],
    *,
    comparisons: int = 1,
    margin: float | None = None,
    evaluation_error: float = 0.0,
    looks: Mapping[int, Look] | None = None,
) -> Difference | None:
    """Return the mean of `losses - baseline_losses` over the seeds that both have, one of so many comparisons; None
    where they have none.

    The standard error is at least half of a step of the recorded numbers, whose rounding may go the same way on every
    seed: differences below a step are equal. `looks`: of a sequential comparison, by the number of pairs; without
    bounds where that has none.
    """
    seeds = sorted(losses.keys() & baseline_losses.keys())
    n = len(seeds)
    if n == 0:
        return None
    differences = np.array([losses[seed] - baseline_losses[seed] for seed in seeds])
    mean, comparisons = float(differences.mean()), max(comparisons, 1)
    plain = Difference(
        mean=mean, low=None, high=None, n=n, p_value=None, comparisons=comparisons,
        evaluation_error=evaluation_error, margin=margin,
    )  # fmt: skip
    level = level_of(comparisons)
    if looks is not None:
        if n not in looks:
            return plain
        level = looks[n].level
    if n < 2 or not math.isfinite(mean):
        return plain
    step = resolution([paired[seed] for paired in (losses, baseline_losses) for seed in seeds])
    sd = max(float(differences.std(ddof=1)), step / 2 * math.sqrt(n))
    half = half_width(level / 2, n, sd, evaluation_error)
    if not math.isfinite(half):
        return plain
    p_value = _two_sided_p(abs(mean), n, sd, evaluation_error)
    if looks is not None:
        used = p_value / level
        spent = SIGNIFICANCE / comparisons
        p_value = used * (spent if used >= 1 else min(looks[n].all_levels, spent / used))
    p_value = min(1.0, comparisons * p_value)
    decides = abs(mean) > half
    # Quantile and probability are rounded each for itself: at the very edge the interval decides.
    p_value = min(p_value, math.nextafter(SIGNIFICANCE, 0)) if decides else max(p_value, SIGNIFICANCE)
    is_within_margin = margin is not None and abs(mean) + half_width(level, n, sd, evaluation_error) < margin
    return plain.model_copy(
        update={
            "low": mean - half,
            "high": mean + half,
            "p_value": p_value,
            "sd": sd,
            "is_within_margin": is_within_margin,
            "seeds_to_decide": (
                None
                if decides or is_within_margin
                else seeds_to_decide(abs(mean), sd, level_of(comparisons), evaluation_error, margin)
            ),
        }
    )


def conclude(difference: Difference | None, judged: JudgedRuns, baseline: JudgedRuns) -> Conclusion:
    """Return the verdict on a candidate. Who lost more runs is neither better nor as good, and the baseline likewise; a
    candidate at an edge of what was tried is not called worse, nothing better than a baseline there, and neither as
    good."""
    ended_seeds = {*judged.ended} & {*baseline.ended}
    lost, baseline_lost = len(ended_seeds & {*judged.lost}), len(ended_seeds & {*baseline.lost})
    if difference is not None:
        if difference.is_better() and lost <= baseline_lost and not baseline.is_at_edge:
            return Conclusion.BETTER
        if difference.is_worse() and lost >= baseline_lost and not judged.is_at_edge:
            return Conclusion.WORSE
        is_open = judged.is_at_edge or baseline.is_at_edge or lost != baseline_lost
        if difference.is_within_margin and not difference.decides() and not is_open:
            return Conclusion.AS_GOOD
    if lost > baseline_lost:
        return Conclusion.UNSTABLE
    return Conclusion.UNDECIDED if judged.losses else Conclusion.NO_LOSS


def instability(judged: JudgedRuns, baseline: JudgedRuns | None, comparisons: int = 1) -> Instability | None:
    """Return the number of lost runs among a candidate's judged ones, and whether it exceeds the baseline's on the same
    seeds (McNemar, exact), by a test among so many; None while no run has ended."""
    if not judged.ended:
        return None
    low, high = clopper_pearson(len(judged.lost), len(judged.ended))
    p_value = None
    if baseline is not None:
        ended_seeds = {*judged.ended} & {*baseline.ended}
        only_candidate, only_baseline = {*judged.lost} - {*baseline.lost}, {*baseline.lost} - {*judged.lost}
        p_value = min(1.0, comparisons * sign_test(len(only_candidate & ended_seeds), len(only_baseline & ended_seeds)))
    return Instability(lost=len(judged.lost), runs=len(judged.ended), low=low, high=high, p_value=p_value)


def clopper_pearson(count: int, total: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share (Clopper and Pearson, Biometrika 26, 1934)."""
    if total == 0:
        return 0.0, 1.0
    low = 0.0 if count == 0 else float(sp.special.betaincinv(count, total - count + 1, SIGNIFICANCE / 2))
    high = 1.0 if count == total else float(sp.special.betaincinv(count + 1, total - count, 1 - SIGNIFICANCE / 2))
    return low, high


def sign_test(first_lost: int, second_lost: int) -> float:
    """Return McNemar's exact two-sided p-value, from the seeds on which the first alone was lost, and the second
    alone."""
    total = first_lost + second_lost
    tail = sum(comb(total, k) for k in range(max(first_lost, second_lost), total + 1))
    return min(1.0, tail / 2 ** (total - 1)) if total else 1.0


def _two_sided_p(distance: float, n: int, sd: float, evaluation_error: float) -> float:
    """Return the level of the interval whose end lies so far from its middle, to a millionth of itself."""
    if distance == 0:
        return 1.0
    low, high = math.log(sys.float_info.min), math.log(0.5)
    if half_width(math.exp(high), n, sd, evaluation_error) >= distance:
        return 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (
            (middle, high) if half_width(math.exp(middle), n, sd, evaluation_error) > distance else (low, middle)
        )
    return min(1.0, 2 * math.exp(high))
