"""Line search over the learning rate: a bracket, then parabolic interpolation (R. P. Brent, "Algorithms for
Minimization without Derivatives", 1973, chapter 5); `Grid` runs exactly the given rates instead.

    own rate / 2, own, own × 2 ─► the lowest is at an end? one further out, a factor of two
                                └► it lies inside? the vertex of the parabola through it and its neighbours, or the
                                   middle of the wider gap where that lies on a rate already tried or beside a lost one

The judged rate is the lowest point of a least-squares parabola through the trials about the best one. Taking the best
rate that was *tried* would double the false verdicts, because the luck of one trial would be judged by every seed; the
fit spreads it over all of them (`python -m benchmarks.error_rates`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite, log2

import numpy as np

from orchestrator.tuning.tuner import Setting, Trials, best_rate

LARGEST_RATE = 1e6
"""The bound of `worker.spec.run.LearningRate`."""
TOLERANCE = 0.1
"""The share of a bracket within which a vertex is too near to a tried rate, and the wider gap is halved."""
DIGITS = 4
"""Significant digits of the rates that are tried and judged: a rate of 0.1 % more trains alike."""
NEAR_DOUBLINGS, FEWEST_NEAR = 1.01, 4
"""The parabola is fitted to the trials within a factor of two of the best one, of four where these are fewer than
four (as simulated by `benchmarks/error_rates.py`)."""


class _RateTuner:
    """The setting that a tuner of the rate alone judges."""

    def setting(self, tried: Trials) -> Setting | None:
        """Return the lowest point of the fitted parabola, clipped to the rates that it is fitted to; the best trial
        where it does not bend upwards."""
        best = best_rate(tried)
        return None if best is None else {"lr": _rounded(best * 2 ** _vertex(best, tried))}

    def is_at_edge(self, tried: Trials) -> bool:
        """Return whether the best of several rates is at an edge."""
        return len(tried) > 1 and best_rate(tried) in (min(tried), max(tried))


@dataclass(frozen=True, kw_only=True)
class LineSearch(_RateTuner):
    """A search of `trials` rates about a candidate's own one."""

    own: float
    trials: int
    shift: float = 0.0
    """Doublings by which the first three rates lie higher: replicates start at different rates."""

    def ask(self, tried: Trials) -> tuple[Setting, ...]:
        """Return the first three rates, then one after another."""
        if not tried:
            first = (_rounded(self.own * 2 ** (self.shift + step)) for step in (-1, 0, 1))
            return tuple({"lr": rate} for rate in dict.fromkeys(first))
        if len(tried) >= self.trials:
            return ()
        log_rates = sorted(log2(rate) for rate in tried)
        losses = [tried[rate] for rate in sorted(tried)]
        rate = _rounded(2 ** _next_log_rate(log_rates, losses))
        if rate in tried:  # the bracket is as narrow as the digits of a rate, or ends at the largest one
            low, high = max(pairwise(log_rates), key=lambda gap: gap[1] - gap[0])
            rate = _rounded(2 ** ((low + high) / 2))
        return ({"lr": rate},)


@dataclass(frozen=True)
class Grid(_RateTuner):
    """Exactly the given rates."""

    rates: tuple[float, ...]

    def ask(self, tried: Trials) -> tuple[Setting, ...]:
        """Return all of them at once."""
        return tuple({"lr": rate} for rate in self.rates if rate not in tried)


def spread_shift(index: int) -> float:
    """Return the doublings by which the search of a replicate begins higher: 0, -1/2, 1/4, -1/4, 1/8, …, as far apart
    as so many shifts within one doubling can lie (van der Corput's sequence)."""
    share, power = 0.0, 0.5
    while index:
        share += power * (index & 1)
        index, power = index >> 1, power / 2
    return share - 1 if share >= 0.5 else share


def _rounded(rate: float) -> float:
    return min(float(f"{rate:.{DIGITS}g}"), LARGEST_RATE)


def _next_log_rate(log_rates: Sequence[float], losses: Sequence[float]) -> float:
    """Return the next rate to try, in doublings; `log_rates` ascend. Where every trial was lost, lower: rates diverge
    upwards."""
    best = int(np.argmin(losses))
    if best == 0:
        return log_rates[0] - 1
    if best == len(log_rates) - 1:
        return log_rates[-1] + 1
    low, middle, high = log_rates[best - 1 : best + 2]
    lower_loss, lowest_loss, upper_loss = losses[best - 1 : best + 2]
    if isfinite(lower_loss) and isfinite(upper_loss):
        left, right = low - middle, high - middle
        left_rise, right_rise = lower_loss - lowest_loss, upper_loss - lowest_loss
        slopes = right * left_rise - left * right_rise  # of the parabola through the three points
        lowest = 0.0 if slopes == 0 else (right**2 * left_rise - left**2 * right_rise) / (2 * slopes)
        vertex = lowest + middle
        if min(abs(vertex - rate_log) for rate_log in (low, middle, high)) >= TOLERANCE * (high - low):
            return vertex
        lower_is_wider = middle - low > high - middle
    else:
        lower_is_wider = isfinite(upper_loss) or (not isfinite(lower_loss) and middle - low > high - middle)
    return (low + middle) / 2 if lower_is_wider else (middle + high) / 2


def _vertex(best: float, tried: Trials) -> float:
    """Return the doublings from the best rate to the lowest point of the parabola about it."""
    losses_by_doublings = {log2(rate / best): loss for rate, loss in tried.items() if isfinite(loss)}
    near_losses = {
        doublings: loss for doublings, loss in losses_by_doublings.items() if abs(doublings) <= NEAR_DOUBLINGS
    }
    if len(near_losses) < FEWEST_NEAR:
        near_losses = {
            doublings: loss for doublings, loss in losses_by_doublings.items() if abs(doublings) <= 2 * NEAR_DOUBLINGS
        }
    if len(near_losses) < 3:
        return 0.0
    offsets, losses = np.array([*near_losses]), np.array([*near_losses.values()])
    curvature, slope, _ = np.polyfit(offsets, losses - losses.min(), 2)
    vertex = -slope / (2 * curvature) if curvature > 0 else inf
    return float(np.clip(vertex, offsets.min(), offsets.max())) if isfinite(vertex) else 0.0
