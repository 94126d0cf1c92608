"""A gate for a campaign of tries at improvement: how often it calls noise a gain, and what it costs to find one.

    OMP_NUM_THREADS=1 python -m benchmarks.research_gate --json benchmarks/results/research-gate.json

Whoever tries 500 ideas at 5 % each finds 25 gains that are none. Here a ledger divides 5 % among all tries of a
campaign, however many they become: the i-th one gets a level α_i when it is registered, and keeps it whatever becomes
of it, so that by Bonferroni's inequality the chance of any false gain in the whole campaign stays below 5 %, as far as
t-tests hold their levels. A try is a
sequential comparison (`orchestrator.analysis.sequential`) with a baseline on seeds of its own: it begins with a few
pairs, and adds one after the other until the difference is below zero at its level, above zero, or unlikely to
come below zero by the last seed. How many seeds it may have follows from its level: about a fifth more than the fixed
one-sided t-test needs, which finds a gain of one standard deviation of the paired difference in 80 % of cases.

No error comes back from a try that stops early, though its later looks are never made: whether it stops depends on
the same data, and those that stop are those that had next to no chance of a false gain.

Printed are, for each sequence of levels: the runs of 500 fixed tests. For each distribution of the differences:
the share of campaigns of 500 tries without a gain that call any one improved, and the runs they took. For each
distribution and place in the campaign: how often a gain of one standard deviation is found, and the runs that it took,
over those of the fixed test. The `skewed` candidates have the baseline's mean, but not its distribution: mostly a
little better and seldom much worse (`skewed-worse`), or the other way round. Minutes on one core.
"""

import argparse
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy.special import nctdtr, stdtrit

from benchmarks.result_file import write_result
from orchestrator.analysis.sequential import FUTILE, chances_of_verdict, looks

TOTAL_ERROR = 0.05
"""Of a campaign."""
POWER = 0.8
FIRST_SEEDS = 4
EXTRA_SEEDS = 1.2
"""Times the fixed test's seeds: what looks and stops for futility take from the power."""
LEVEL_STEP = 1.1
"""Levels are rounded down to a power of it, so that a campaign has some hundred sets of boundaries, not one a try."""

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

SEQUENCES: Mapping[str, Callable[[int], float]] = {
    "squares": lambda i: 6 / (math.pi * i) ** 2,
    "logarithms": lambda i: 1 / (2.1097428012 * (i + 1) * math.log(i + 1) ** 2),
    "equal-500": lambda i: 1 / 500 if i <= 500 else 0.0,
}
"""Share of a campaign's error that the i-th try gets: sums of 1 over all i from 1. The last one has to know how many
tries there will be."""


def level(place: int, sequence: str = "logarithms") -> float:
    """One-sided, of the try at that place from 1: what the sequence gives, rounded down."""
    share = SEQUENCES[sequence](place)
    return TOTAL_ERROR * LEVEL_STEP ** math.floor(math.log(share, LEVEL_STEP) + 1e-9)


@lru_cache(maxsize=512)
def fixed_seeds(alpha: float) -> int:
    """The least pairs with which a one-sided t-test at that level finds a gain of one standard deviation in 80 %."""
    seeds = 2
    while 1 - nctdtr(seeds - 1, math.sqrt(seeds), stdtrit(seeds - 1, 1 - alpha)) < POWER:
        seeds += 1
    return seeds


@dataclass(frozen=True, kw_only=True)
class Design:
    """What a try at one level may do."""

    first: int
    most: int
    levels: Mapping[int, float]
    """Pairs → two-sided level of that look; together they spend twice the one-sided level."""


@lru_cache(maxsize=512)
def design(alpha: float) -> Design:
    """Of a one-sided level."""
    most = math.ceil(EXTRA_SEEDS * fixed_seeds(alpha))
    first = min(FIRST_SEEDS, most)
    return Design(first=first, most=most, levels={n: look.level for n, look in looks(first, most, 2 * alpha).items()})


def conduct(differences: Array, plan: Design) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], Array]:
    """Tries (rows) whose pairs come in the order of columns, candidate minus baseline: which are called improved, and
    the pairs that each one used."""
    improved, used = np.zeros(len(differences), dtype=bool), np.full(len(differences), float(plan.most))
    totals, squares = differences.cumsum(axis=1), (differences**2).cumsum(axis=1)
    active = np.arange(len(differences))
    for n in range(plan.first, plan.most + 1):
        mean = totals[active, n - 1] / n
        error = np.sqrt(np.maximum(squares[active, n - 1] - n * mean**2, 1e-300) / (n * (n - 1)))
        half = abs(stdtrit(n - 1, plan.levels[n] / 2)) * error  # infinite, of either sign, where nothing is spent
        better, stops = mean < -half, np.abs(mean) > half
        if n < plan.most:
            none = np.zeros_like(mean)
            chances = chances_of_verdict(
                mean, error, n, plan.most, plan.levels[plan.most],
                below=none, above=none, shared_error=0.0, margin=None, can_be_worse=False,
            )  # fmt: skip
            stops |= chances < FUTILE
        improved[active[better]] = True
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


NOISE: Mapping[str, Callable[[np.random.Generator, tuple[int, int]], Array]] = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "student-3": _student,
    "spikes": _spikes,
    "skewed-worse": _skewed,
    "skewed-better": lambda random, shape: -_skewed(random, shape),
}
"""Paired differences with mean 0 and standard deviation 1."""


@dataclass(frozen=True, kw_only=True)
class NullCampaigns:
    """Campaigns in which nothing is better than the baseline."""

    noise: str
    campaigns: int
    tries: int
    any_improved: float
    """Share of the campaigns."""
    runs_over_fixed: float
    runs_a_try: float
    """Two for each pair."""


def null_campaigns(noise: str, campaigns: int, tries: int, seed: int = 0) -> NullCampaigns:
    """All tries of all campaigns, one place after the other."""
    random = np.random.default_rng([seed, *noise.encode()])
    wrong, pairs, fixed = np.zeros(campaigns, dtype=bool), 0.0, 0
    for place in range(1, tries + 1):
        plan = design(level(place))
        improved, used = conduct(NOISE[noise](random, (campaigns, plan.most)), plan)
        wrong |= improved
        pairs += float(used.sum())
        fixed += fixed_seeds(level(place)) * campaigns
    return NullCampaigns(
        noise=noise,
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
    place: int
    level: float
    fixed_seeds: int
    most_seeds: int
    found: float
    fixed_found: float
    """By the fixed test, of the same differences."""
    runs_over_fixed: float


def true_gain(noise: str, place: int, experiments: int, seed: int = 0) -> Gain:
    """So many tries at that place."""
    random = np.random.default_rng([seed, place, *noise.encode()])
    alpha = level(place)
    plan, fixed = design(alpha), fixed_seeds(alpha)
    differences = NOISE[noise](random, (experiments, plan.most)) - 1
    improved, used = conduct(differences, plan)
    known = differences[:, :fixed]
    t = known.mean(axis=1) / known.std(axis=1, ddof=1) * math.sqrt(fixed)
    return Gain(
        noise=noise,
        place=place,
        level=float(f"{alpha:.3g}"),
        fixed_seeds=fixed,
        most_seeds=plan.most,
        found=round(float(improved.mean()), 4),
        fixed_found=round(float((t < stdtrit(fixed - 1, alpha)).mean()), 4),
        runs_over_fixed=round(float(used.mean()) / fixed, 3),
    )


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaigns", type=int, default=1000)
    parser.add_argument("--tries", type=int, default=500, help="of a campaign")
    parser.add_argument("--experiments", type=int, default=5000, help="with a gain, at each place")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    given = parser.parse_args()
    places = range(1, given.tries + 1)
    sequences = {name: 2 * sum(fixed_seeds(level(place, name)) for place in places) for name in SEQUENCES}
    print(f"runs of {given.tries} fixed tests: {sequences}", flush=True)
    gains, nulls = [], []
    for noise in NOISE:
        for place in (1, 2, 5, 10, 20, 50, 100, 200, 500):
            gains.append(true_gain(noise, place, given.experiments))
            print(gains[-1], flush=True)
    for noise in NOISE:
        nulls.append(null_campaigns(noise, given.campaigns, given.tries))
        print(nulls[-1], flush=True)
    if given.json:
        figures = {
            "fixed_runs": sequences,
            "null_campaigns": [asdict(each) for each in nulls],
            "gains": [asdict(each) for each in gains],
        }
        write_result(given.json, "research_gate", figures)


if __name__ == "__main__":
    main()
