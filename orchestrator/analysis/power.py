"""What a comparison can show before it is run: the power of the paired t-test, by the noncentral t.

    earlier judged runs of a workload ─► standard deviation of paired differences ─► with n seeds the least difference
        that is shown with 80 %; the least n that shows a difference as large as the margin, or one of none within it

The error of the validation text joins the noise of the mean in squares, as it does in the interval.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean

from orchestrator.records import SIGNIFICANCE

POWER = 0.8
"""The usual share of experiments in which a true difference should be shown (J. Cohen 1988)."""
MOST_SEEDS = 1000
"""More seeds than that are no advice."""


def chance_shown(difference: float, n: int, sd: float, level: float, evaluation_error: float = 0.0) -> float:
    """The probability that n pairs show a true difference of this size as one of its sign, at a two-sided level."""
    from scipy.special import nctdtr, stdtrit  # a fifth of a second, of which most requests need nothing

    if n < 2:
        return 0.0
    error = math.hypot(sd / math.sqrt(n), evaluation_error)
    if error == 0:
        return float(difference > 0)
    return float(1 - nctdtr(n - 1, difference / error, stdtrit(n - 1, 1 - level / 2)))


def chance_within(
    margin: float, n: int, sd: float, level: float, evaluation_error: float = 0.0, difference: float = 0.0
) -> float:
    """The probability that n pairs show a true difference to lie within the margin by two one-sided tests at `level`:
    that of either test alone less that of the other's failure."""
    from scipy.special import nctdtr, stdtrit  # as above

    if n < 2:
        return 0.0
    error = math.hypot(sd / math.sqrt(n), evaluation_error)
    if error == 0:
        return float(abs(difference) < margin)
    bound = stdtrit(n - 1, 1 - level)
    tests = (1 - nctdtr(n - 1, (margin + side * difference) / error, bound) for side in (-1, 1))
    return max(0.0, float(sum(tests)) - 1)


def least_seeds(chance: Callable[[int], float], first: int = 2) -> int | None:
    """The least number of seeds from `first` on with which the chance of a verdict is `POWER`; None above a thousand.
    The chance grows with the seeds."""
    if chance(MOST_SEEDS) < POWER:
        return None
    low, high = first - 1, MOST_SEEDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if chance(middle) >= POWER else (middle, high)
    return high


def least_difference(n: int, sd: float, level: float, evaluation_error: float = 0.0) -> float | None:
    """The least true difference that n pairs show with the chance `POWER`, in the unit of the loss; None below two."""
    if n < 2 or (error := math.hypot(sd / math.sqrt(n), evaluation_error)) == 0:
        return None
    low, high = 0.0, error
    while chance_shown(high, n, sd, level, evaluation_error) < POWER:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if chance_shown(middle, n, sd, level, evaluation_error) < POWER else (low, middle)
    return high


def more_seeds(
    difference: float, n: int, sd: float, level: float, evaluation_error: float, margin: float | None
) -> int | None:
    """The further pairs that decide a difference of this size and noise, either way, with the chance `POWER`; None
    where a thousand would not."""
    shown = least_seeds(lambda m: chance_shown(difference, m, sd, level, evaluation_error), first=n + 1)
    within = (
        least_seeds(lambda m: chance_within(margin, m, sd, level, evaluation_error, difference), first=n + 1)
        if margin is not None and difference < margin
        else None
    )
    known = [each for each in (shown, within) if each is not None]
    return min(known) - n if known else None


def paired_sd(experiments: Iterable[Sequence[Mapping[int, float]]]) -> tuple[float, int] | None:
    """Standard deviation of the difference of two candidates with the same seed, pooled over experiments, and from how
    many; None where none has two candidates with two seeds in common.

    Args:
        experiments: Of each one, for every candidate its losses by seed.
    """
    variances: list[float] = []
    count = 0
    for candidates in experiments:
        found = []
        for one, other in combinations(candidates, 2):
            differences = [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]
            if len(differences) > 1 and any(differences):
                mean = fmean(differences)
                found.append(sum((each - mean) ** 2 for each in differences) / (len(differences) - 1))
        if found:
            variances.append(fmean(found))
            count += 1
    return (math.sqrt(fmean(variances)), count) if variances else None


def level_of(comparisons: int) -> float:
    """The two-sided level of each of so many comparisons."""
    return SIGNIFICANCE / max(comparisons, 1)
