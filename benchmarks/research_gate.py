"""A gate for a campaign of tries at improvement: how often it calls noise a gain, and what it costs to find one.

    OMP_NUM_THREADS=1 python -m benchmarks.research_gate --json benchmarks/results/research-gate.json

Whoever tries 500 ideas at 5 % each finds 25 gains that are none. A campaign
(`orchestrator.campaigns.improvement`) gives each try a level of its own when it is
registered, so that the chance of any false gain among all of them stays below
5 %. A try bets on one pair after the other, each on fresh seeds, until the gain is shown, unlikely to be shown, or its
pairs are used up.

Printed are, for each distribution of the differences: the share of campaigns of 500 tries without a gain that call any
one improved, and the runs they took, over those of fixed one-sided t-tests at the same levels that find a gain of one
standard deviation in 80 %. For each distribution and place in the campaign: how often a gain of one standard deviation
is found, and the runs that it took, over those of the fixed test. The `skewed` candidates have the baseline's mean, but
not its distribution: mostly a little better and seldom much worse (`skewed-worse`, and more so `very-skewed`), or the
other way round. All that once more where the gain that was declared to be worth finding is half and twice the standard
deviation. Minutes on one core.
"""

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import nctdtr, stdtrit

from benchmarks.result_file import write_result
from orchestrator.analysis.sequential import FUTILE, Array
from orchestrator.campaigns.improvement import (
    CUT,
    FIRST_PAIRS,
    chances_of_improvement,
    log_purses,
    most_pairs,
    try_level,
)

TOTAL_ERROR = 0.05
"""Of a campaign."""
POWER = 0.8
DECLARED_GAINS = (1.0, 0.5, 2.0)
"""Standard deviations of the paired difference."""


@lru_cache(maxsize=512)
def fixed_seeds(alpha: float) -> int:
    """The least pairs with which a one-sided t-test at that level finds a gain of one standard deviation in 80 %."""
    seeds = 2
    while 1 - nctdtr(seeds - 1, math.sqrt(seeds), stdtrit(seeds - 1, 1 - alpha)) < POWER:
        seeds += 1
    return seeds


def conduct(differences: Array, level: float, gain: float) -> tuple[NDArray[np.bool_], Array]:
    """Tries (rows) whose pairs come in the order of columns, as many as a try may take, candidate minus baseline: which
    are called improved, and the pairs that each one used. `judge_improvement` is the same for one."""
    most, cut = differences.shape[1], CUT * gain
    improved, used = np.zeros(len(differences), dtype=bool), np.full(len(differences), float(most))
    purses = log_purses(differences, cut)
    active = np.arange(len(differences))
    for n in range(1, most + 1):
        shown = purses[active, n - 1] >= math.log(1 / level)
        stops = shown.copy()
        if FIRST_PAIRS <= n < most:
            stops |= chances_of_improvement(differences[active], n, most, level, cut) < FUTILE
        improved[active[shown]] = True
        used[active[stops]] = n
        active = active[~stops]
        if not active.size:
            break
    return improved, used


def _student(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    return random.standard_t(3, shape) / math.sqrt(3)


def _spikes(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    """One pair in ten has five times the spread of the others."""
    return random.standard_normal(shape) * np.where(random.random(shape) < 0.1, 5, 1) / math.sqrt(0.9 + 0.1 * 25)


def _skewed(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    """A log-normal of σ = 0.5, whose skewness is 1.75."""
    variance = math.exp(0.25)
    return (random.lognormal(0, 0.5, shape) - math.sqrt(variance)) / math.sqrt((variance - 1) * variance)


def _very_skewed(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    """A log-normal of σ = 1, whose skewness is 6.2."""
    return (random.lognormal(0, 1, shape) - math.sqrt(math.e)) / math.sqrt((math.e - 1) * math.e)


NOISE: Mapping[str, Callable[[np.random.Generator, tuple[int, int]], Array]] = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "student-3": _student,
    "spikes": _spikes,
    "skewed-worse": _skewed,
    "very-skewed": _very_skewed,
    "skewed-better": lambda random, shape: -_skewed(random, shape),
}
"""Paired differences with mean 0 and standard deviation 1."""


@dataclass(frozen=True, kw_only=True)
class NullCampaigns:
    """Campaigns in which nothing is better than the baseline."""

    noise: str
    declared_gain: float
    """Standard deviations of the paired difference."""
    campaigns: int
    tries: int
    any_improved: float
    """Share of the campaigns."""
    runs_over_fixed: float
    runs_a_try: float
    """Two for each pair."""


def null_campaigns(noise: str, gain: float, campaigns: int, tries: int, seed: int = 0) -> NullCampaigns:
    """All tries of all campaigns, one place after the other."""
    random = np.random.default_rng([seed, *noise.encode()])
    wrong, pairs, fixed = np.zeros(campaigns, dtype=bool), 0.0, 0
    for place in range(1, tries + 1):
        level = try_level(place, TOTAL_ERROR)
        improved, used = conduct(NOISE[noise](random, (campaigns, most_pairs(level))), level, gain)
        wrong |= improved
        pairs += float(used.sum())
        fixed += fixed_seeds(level) * campaigns
    return NullCampaigns(
        noise=noise,
        declared_gain=gain,
        campaigns=campaigns,
        tries=tries,
        any_improved=float(wrong.mean()),
        runs_over_fixed=round(pairs / fixed, 3),
        runs_a_try=round(2 * pairs / campaigns / tries, 1),
    )


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Tries at one place of a campaign that are better by one standard deviation of the paired difference."""

    noise: str
    declared_gain: float
    place: int
    level: float
    fixed_seeds: int
    most_pairs: int
    found: float
    fixed_found: float
    """By the fixed test, of the same differences."""
    runs_over_fixed: float


def true_gain(noise: str, declared: float, place: int, experiments: int, seed: int = 0) -> Gain:
    """So many tries at that place."""
    random = np.random.default_rng([seed, place, *noise.encode()])
    level = try_level(place, TOTAL_ERROR)
    most, fixed = most_pairs(level), fixed_seeds(level)
    differences = NOISE[noise](random, (experiments, most)) - 1
    improved, used = conduct(differences, level, declared)
    known = differences[:, :fixed]
    t = known.mean(axis=1) / known.std(axis=1, ddof=1) * math.sqrt(fixed)
    return Gain(
        noise=noise,
        declared_gain=declared,
        place=place,
        level=float(f"{level:.3g}"),
        fixed_seeds=fixed,
        most_pairs=most,
        found=round(float(improved.mean()), 4),
        fixed_found=round(float((t < stdtrit(fixed - 1, level)).mean()), 4),
        runs_over_fixed=round(float(used.mean()) / fixed, 3),
    )


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaigns", type=int, default=1000)
    parser.add_argument("--tries", type=int, default=500, help="of a campaign")
    parser.add_argument("--experiments", type=int, default=5000, help="with a gain, at each place")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    given = parser.parse_args()
    gains, nulls = [], []
    for declared in DECLARED_GAINS:
        for noise in NOISE:
            for place in (1, 2, 5, 10, 20, 50, 100, 200, 500):
                gains.append(true_gain(noise, declared, place, given.experiments, given.seed))
                print(gains[-1], flush=True)
            nulls.append(null_campaigns(noise, declared, given.campaigns, given.tries, given.seed))
            print(nulls[-1], flush=True)
    if given.json:
        figures = {"null_campaigns": [asdict(each) for each in nulls], "gains": [asdict(each) for each in gains]}
        write_result(given.json, "research_gate", figures)


if __name__ == "__main__":
    main()
