"""Which judged runs were stable, apart from their loss: shares of runs that spiked or diverged, with exact intervals.

A mean over losses of which one in seven has spiked says little of the other six, and with three to ten seeds its
interval says less: t-intervals need noise without such tails. So losses are compared over the seeds on which both runs
were stable, and how often a candidate's runs are not is a figure of its own.
"""

from collections.abc import Collection, Hashable, Mapping
from math import comb, log
from statistics import geometric_mean, median, stdev

from orchestrator.kinds.basin import LEAST_SPIKE, SPIKE
from orchestrator.records import SIGNIFICANCE, Instability


def spikes(
    mine: Mapping[int, float], baseline: Mapping[int, float], spread: float | None
) -> tuple[frozenset[int], frozenset[int]]:
    """The seeds whose run spiked, here and of the baseline: where the two lie much farther apart than on most other
    seeds, the higher one did. Much is six times their spread, by the runs that tuned the rates (`spread`, of such a
    difference) and on the stable seeds; without the former nothing is known to be unusual.

    Differences alone do not tell frequent spikes of the one from those of the other, which turn what is usual around.
    So every difference in turn is taken for the usual one, and of these readings that one holds which calls few runs
    spiked and leaves few losses far from their own optimizer's other ones.

    What scales a loss may scale its noise, or not: losses above zero spiked that did so as they are and in logarithms.
    """
    seeds = mine.keys() & baseline.keys()
    if spread is None or not seeds:
        return frozenset(), frozenset()
    least = max(SPIKE * spread, LEAST_SPIKE * abs(median(baseline[seed] for seed in seeds)))
    if least == 0:
        return frozenset(), frozenset()
    here, there = _most_likely_reading(mine, baseline, least)
    if min(*mine.values(), *baseline.values()) > 0:
        level = geometric_mean(baseline[seed] for seed in seeds)
        logs, baseline_logs = ({seed: log(each[seed]) for seed in seeds} for each in (mine, baseline))
        here_in_logs, there_in_logs = _most_likely_reading(logs, baseline_logs, least / level)
        return here & here_in_logs, there & there_in_logs
    return here, there


def _most_likely_reading(
    mine: Mapping[int, float], baseline: Mapping[int, float], least: float
) -> tuple[frozenset[int], frozenset[int]]:
    seeds = mine.keys() & baseline.keys()
    differences = {seed: mine[seed] - baseline[seed] for seed in seeds}
    readings = {_reading(differences, usual, least) for usual in sorted(set(differences.values()))}

    def cost(reading: tuple[frozenset[int], frozenset[int]]) -> tuple[float, int, int, list[int]]:
        """In spikes. No stray costs more than a spike: one that both optimizers have, or a run that ended
        far lower than the others, would else make spikes of all of these. And what both stray on a seed counts once:
        where seeds lie orders of magnitude apart, calling one of the two a spike would else save its stray. Of as
        likely readings the one with fewer spikes, and the baseline's first; rounding makes none more likely."""
        here, there = reading
        of_mine, of_baseline = _strays(mine, seeds - here), _strays(baseline, seeds - there)
        apart = _strays(differences, seeds - here - there)
        found = 0.0
        for seed in seeds:
            squares = [min((each[seed] / least) ** 2, 1.0) for each in (of_mine, of_baseline) if seed in each]
            found += max(squares) if abs(apart.get(seed, 0.0)) <= least else sum(squares)
        called = len(here) + len(there)
        return round(called + found, 9), called, len(here), sorted(here)

    return min(readings, key=cost)


def _strays(losses: Mapping[int, float], stable: Collection[int]) -> dict[int, float]:
    """Seed → what its loss lies above their median, of those that did not spike."""
    usual = median(losses[seed] for seed in stable) if stable else 0.0
    return {seed: losses[seed] - usual for seed in stable}


def _reading(differences: Mapping[int, float], usual: float, least: float) -> tuple[frozenset[int], frozenset[int]]:
    """Who spiked, here and of the baseline, where about so large a difference is the usual one."""
    limit, stable = least, list[float]()
    while len(found := [value for value in differences.values() if abs(value - usual) <= limit]) > len(stable):
        stable, usual = found, median(found)
        limit = max(least, SPIKE * stdev(stable)) if len(stable) > 1 else least
    return (
        frozenset(seed for seed, value in differences.items() if value - usual > limit),
        frozenset(seed for seed, value in differences.items() if usual - value > limit),
    )


def instability(
    lost: Collection[Hashable],
    ended: Collection[Hashable],
    baseline_lost: Collection[Hashable] | None,
    comparisons: int = 1,
    *,
    baseline_ended: Collection[Hashable] | None = None,
) -> Instability:
    """How many of a candidate's judged runs that ended were lost, and whether that is more than the baseline lost on
    the same seeds (of laws: cells and seeds), by a test among so many; None for the baseline itself.

    `baseline_ended`: those that the baseline ended with a result, null where it did with all: a seed that it lacks
    tells of neither."""
    low, high = clopper_pearson(len(lost), len(ended))
    p_value = None
    if baseline_lost is not None:
        both = set(ended) if baseline_ended is None else set(ended) & set(baseline_ended)
        only_here, only_there = (
            len((set(mine) - set(theirs)) & both) for mine, theirs in ((lost, baseline_lost), (baseline_lost, lost))
        )
        p_value = min(1.0, comparisons * sign_test(only_here, only_there))
    return Instability(lost=len(lost), runs=len(ended), low=low, high=high, p_value=p_value)


def clopper_pearson(count: int, of: int) -> tuple[float, float]:
    """The exact 95 % interval of a share (Clopper and Pearson, Biometrika 26, 1934)."""
    from scipy.special import betaincinv  # a fifth of a second, of which most requests need nothing

    if of == 0:
        return 0.0, 1.0
    low = 0.0 if count == 0 else float(betaincinv(count, of - count + 1, SIGNIFICANCE / 2))
    high = 1.0 if count == of else float(betaincinv(count + 1, of - count, 1 - SIGNIFICANCE / 2))
    return low, high


def sign_test(here: int, there: int) -> float:
    """McNemar's exact two-sided p-value: of the seeds on which one of two was lost, which one it was."""
    of = here + there
    tail = sum(comb(of, k) for k in range(max(here, there), of + 1))
    return min(1.0, tail / 2 ** (of - 1)) if of else 1.0
