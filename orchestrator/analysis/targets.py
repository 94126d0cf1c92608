"""Times to a loss, the candidates that nobody beats on both axes, and profiles over workloads.

Pure functions on arrays, without a word of runs or tables:

    first_reached   when a curve came down to a target            (time to target: AlgoPerf, arXiv 2306.07179)
    crossing_bounds between which evaluations losses of several seeds are shown to have come down to theirs
    median_time     of times to a target, some of which never were
    geometric_mean  of ratios, with its interval                  (speed-ups are ratios: their mean is taken in logs)
    pareto_front    lowest loss × fewest bytes
    profile_scores  performance profiles, integrated              (Dolan and Moré, arXiv cs/0102001; AlgoPerf)
"""

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from orchestrator.analysis.statistics import mean_interval
from orchestrator.records import Interval

LARGEST_TAU = 4.0
"""AlgoPerf integrates profiles over tau in [1, 4]: who takes more than four times as long counts as not there."""


def first_reached(positions: Sequence[float], losses: Sequence[float], target: float) -> float | None:
    """Return the first position (steps, tokens, …; ascending) at which a curve is at or below `target`; None if it
    never is.

    Between the evaluation above the target and the first one below, the curve is taken as a straight line: otherwise a
    sparser evaluation would look slower. Losses that are not finite are evaluations that say nothing.
    """
    x, y = np.asarray(positions, dtype=np.float64), np.asarray(losses, dtype=np.float64)
    finite = np.isfinite(y)
    x, y = x[finite], y[finite]
    indices_below = np.flatnonzero(y <= target)
    if not indices_below.size:
        return None
    crossing = int(indices_below[0])
    if crossing == 0:
        return float(x[0])
    share = (y[crossing - 1] - target) / (y[crossing - 1] - y[crossing])
    return float(x[crossing - 1] + share * (x[crossing] - x[crossing - 1]))


def crossing_bounds(
    steps: Sequence[float], low: Sequence[float], high: Sequence[float]
) -> tuple[float | None, float | None]:
    """Return the evaluation until which a difference is shown to lie above zero, and the one from which on it is shown
    to lie below: between the two it falls to zero. None for one that there is not.

    `low` and `high` are the ends of its interval at each evaluation, all of one level. Evaluations are tested in order,
    from the first on and from the last back, up to the first that is not shown. Of a difference that falls, an end can
    be wrong only if the test at the last evaluation before zero is, or at the first one behind: so many tests cost no
    more than one (W. Maurer, L. A. Hothorn and W. Lehmacher 1995: a fixed sequence of hypotheses)."""
    count_above = next((index for index, bound in enumerate(low) if not bound > 0), len(steps))
    count_below = next((index for index, bound in enumerate(reversed(high)) if not bound < 0), len(steps))
    return float(steps[count_above - 1]) if count_above else None, float(steps[-count_below]) if count_below else None


def median_time(times: Sequence[float]) -> float | None:
    """Return the median, in which an infinite time, of who never got there, is later than all others; None if that
    one is the middle, and where there are no times."""
    median = statistics.median(times) if times else np.inf
    return median if median < np.inf else None


def geometric_mean(ratios: Sequence[float]) -> Interval | None:
    """Return the geometric mean of positive ratios with the 95 % t-interval of their logarithms; None for anything
    else."""
    if not ratios or min(ratios) <= 0:
        return None
    logs = mean_interval(np.log(ratios).tolist())
    if logs is None:
        return None
    with np.errstate(over="ignore"):
        mean, low, high = (None if edge is None else float(np.exp(edge)) for edge in (logs.mean, logs.low, logs.high))
    if mean is None or not np.isfinite(mean):
        return None
    bounded = high is not None and bool(np.isfinite(high))
    return Interval(mean=mean, low=low if bounded else None, high=high if bounded else None, n=logs.n)


def pareto_front(points: Sequence[tuple[float, float] | None]) -> tuple[bool, ...]:
    """Return a mask of the points (loss, bytes) that no other beats: none is as low on both and lower on one.

    None is a candidate without a figure: it is not on the front and beats nobody.
    """
    measured = [point for point in points if point is not None]

    def is_beaten(point: tuple[float, float]) -> bool:
        return any(rival != point and rival[0] <= point[0] and rival[1] <= point[1] for rival in measured)

    return tuple(point is not None and not is_beaten(point) for point in points)


def profile_scores(times: Mapping[str, Sequence[float | None]]) -> dict[str, float]:
    """Return each candidate's performance profile, integrated over tau in [1, LARGEST_TAU] and divided by its width: 0
    to 1.

    `times[candidate][w]` is the time to target on workload w; None if the target was not reached. A workload on
    which nobody reached it counts for nobody, and stays in the denominator. The integral is exact: a workload with a
    ratio r to the fastest adds (LARGEST_TAU - r) / (LARGEST_TAU - 1). Raises `ValueError` for rows of different
    lengths.
    """
    sizes = {len(row) for row in times.values()}
    if len(sizes) > 1:
        raise ValueError(
            f"every candidate needs one time per workload, got rows of {sorted(sizes)}; give None for none"
        )
    return {
        name: sum(max(0.0, LARGEST_TAU - ratio) for ratio in ratios) / (LARGEST_TAU - 1) / len(ratios)
        if ratios
        else 0.0
        for name, ratios in time_ratios(times).items()
    }


def time_ratios(times: Mapping[str, Sequence[float | None]]) -> dict[str, tuple[float, ...]]:
    """Return each time by the fastest candidate's on the same workload; infinite where the target was not reached."""
    rows = {name: [np.inf if time is None else time for time in row] for name, row in times.items()}
    fastest = [min(column) for column in zip(*rows.values(), strict=True)]
    return {
        name: tuple(_ratio(time, best) for time, best in zip(row, fastest, strict=True)) for name, row in rows.items()
    }


def _ratio(time: float, fastest: float) -> float:
    """Return `time / fastest`; the fastest itself has 1, even if its time is zero."""
    if not np.isfinite(time):
        return float("inf")
    if time == fastest:
        return 1.0
    return time / fastest if fastest > 0 else float("inf")
