"""What difference a design can show before it is run, from the noise that earlier experiments of its workload had.

A verdict is a paired t-test of n seeds at Bonferroni's level (`statistics.py`). If the true difference is d and the
differences of the seeds have the standard deviation s, its t follows the noncentral t-distribution with n - 1 degrees
of freedom and the noncentrality d sqrt(n) / s, and the power is the probability that |t| exceeds the test's quantile
(J. Cohen, Statistical Power Analysis for the Behavioral Sciences, 1988, chapter 2; `scipy.special.nctdtr`).

    runs of earlier comparisons of the workload ─► noise: s ─► with n seeds: the least d that is shown with 80 %
                                                          └► for d: the least n
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.analysis.statistics import t_quantile
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.records import SIGNIFICANCE, RunRecord
from orchestrator.specs.preview import DesignPower
from worker.records.result import Verdict
from worker.spec.run import Workload

POWER = 0.8
"""The usual share of experiments in which a true difference should be shown."""
MOST_SEEDS = 1000
"""More seeds than that are no advice."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How much the paired differences of a workload's seeds vary."""

    paired_sd: float
    """Standard deviation of the difference of two candidates with the same seed, in the unit of the loss."""
    degrees: int
    """Degrees of freedom of the estimate, which is itself uncertain by a factor of about 1 ± 1 / sqrt(2 · degrees)."""
    experiments: int


def design_power(spec: ComparisonSpec, runs: Iterable[RunRecord]) -> DesignPower | None:
    """What the comparison can show, by the noise of those of the runs that trained its workload; None where no earlier
    experiment trained two candidates on two seeds of it."""
    found = noise(compared_losses(spec.workload, runs))
    if found is None or found.paired_sd == 0:
        return None
    seeds, comparisons, margin = len(spec.seeds), len(spec.candidates) - 1, spec.equivalence()
    return DesignPower(
        seeds=seeds,
        comparisons=comparisons,
        paired_sd=found.paired_sd,
        experiments=found.experiments,
        detectable_difference=detectable_difference(found.paired_sd, seeds, comparisons),
        margin=margin,
        seeds_for_margin=None if margin is None else seeds_needed(margin, found.paired_sd, comparisons),
        loss_unit=spec.workload.task.loss_unit,
    )


def compared_losses(workload: Workload, runs: Iterable[RunRecord]) -> list[list[dict[int, float]]]:
    """Of each experiment on this workload: the final losses by seed of each candidate, at the rate that most of its
    seeds have (the judged one where it was tuned), the best of them where several have as many."""
    tables: dict[str, dict[str, dict[float, dict[int, float]]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        loss = run.result.final_val_loss if run.result and run.result.verdict is Verdict.CONVERGED else None
        if loss is not None and run.spec is not None and run.spec.workload == workload:
            tables[run.experiment_id][run.candidate].setdefault(run.lr, {})[run.seed] = loss
    return [
        [
            max(rates.values(), key=lambda losses: (len(losses), -float(np.mean([*losses.values()]))))
            for rates in table.values()
        ]
        for table in tables.values()
    ]


def power_of(difference: float, noise_sd: float, seeds: int, comparisons: int = 1) -> float:
    """The probability that a true `difference` is shown by so many paired `seeds`, as one of so many `comparisons`.

    Zero below two seeds: one pair has no interval. One where there is no noise at all.
    """
    if seeds < 2 or difference == 0:
        return 0.0
    if noise_sd == 0:
        return 1.0
    from scipy.special import nctdtr  # a fifth of a second that only this asks for

    degrees = seeds - 1
    limit = t_quantile(degrees, 1 - SIGNIFICANCE / comparisons / 2)
    noncentrality = abs(difference) / noise_sd * math.sqrt(seeds)
    # On the far side the probability is below 1e-3 wherever the power is of interest, and the distribution's own
    # function loses its digits there.
    missed = float(nctdtr(degrees, noncentrality, limit))
    return 1.0 if math.isnan(missed) else 1.0 - missed


def detectable_difference(noise_sd: float, seeds: int, comparisons: int = 1, power: float = POWER) -> float | None:
    """The least true difference that so many paired seeds show with this power; None below two seeds."""
    if seeds < 2:
        return None
    low, high = 0.0, noise_sd
    while power_of(high, noise_sd, seeds, comparisons) < power:
        low, high = high, 2 * high
    for _ in range(40):  # halves the interval to a part in 10^12
        middle = (low + high) / 2
        low, high = (middle, high) if power_of(middle, noise_sd, seeds, comparisons) < power else (low, middle)
    return high


def seeds_needed(difference: float, noise_sd: float, comparisons: int = 1, power: float = POWER) -> int | None:
    """The least number of paired seeds that shows a true difference with this power; None beyond `MOST_SEEDS`."""
    low, high = 1, 2
    while power_of(difference, noise_sd, high, comparisons) < power:
        if high >= MOST_SEEDS:
            return None
        low, high = high, min(2 * high, MOST_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if power_of(difference, noise_sd, middle, comparisons) < power else (low, middle)
    return high


def noise(experiments: Iterable[Sequence[Mapping[int, float]]]) -> Noise | None:
    """The noise of paired differences, pooled over experiments.

    Of each experiment: one mapping from seed to final loss for each candidate at its compared rate. What the candidates
    differ by on average and what a seed does to all of them is taken out (a two-way layout without repetition), and
    what remains has the variance of one run; a paired difference has twice that. None where no experiment has two
    candidates with two seeds in common.
    """
    squares, degrees, count = 0.0, 0, 0
    for candidates in experiments:
        table = _common_seeds(candidates)
        rows, columns = table.shape
        if rows < 2 or columns < 2:
            continue
        rest = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
        squares += float(np.sum(rest**2))
        degrees += (rows - 1) * (columns - 1)
        count += 1
    if not degrees:
        return None
    return Noise(paired_sd=math.sqrt(2 * squares / degrees), degrees=degrees, experiments=count)


def _common_seeds(candidates: Sequence[Mapping[int, float]]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Losses [candidate, seed] of the seeds that all of them have."""
    seeds = sorted(set.intersection(*(set(each) for each in candidates))) if candidates else []
    return np.array([[each[seed] for seed in seeds] for each in candidates], dtype=np.float64).reshape(
        len(candidates), len(seeds)
    )
