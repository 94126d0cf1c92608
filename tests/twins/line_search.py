"""The line search over the learning rate in NumPy's own words: where the parabola through trials is lowest."""

import numpy as np
from numpy.typing import NDArray


def vertex_through_three(places: list[float], losses: list[float]) -> float:
    """Return the vertex of the parabola through three points."""
    rising, slope, _ = np.polynomial.Polynomial.fit(places, losses, 2, domain=[]).coef[::-1]
    return float(-slope / (2 * rising))


def fitted_rate(rates: list[float], losses: list[float]) -> float:
    """The lowest point of the least-squares parabola through the trials within a factor of two of the best one, or of
    four where they are fewer than four, between the rates of these; the best one where the parabola does not bend
    upwards, or goes through fewer than three. Unrounded."""
    places, values = np.log2(np.array(rates)), np.array(losses)
    places, values = places[np.isfinite(values)], values[np.isfinite(values)]
    best = places[np.argmin(values)]
    used = _within(places - best, 1)
    if used.sum() < 4:
        used = _within(places - best, 2)
    if used.sum() < 3:
        return float(2**best)
    x = places[used] - best
    (_, slope, rising), *_ = np.linalg.lstsq(np.stack([x**0, x, x**2], axis=1), values[used] - values.min(), rcond=None)
    if rising <= 0:
        return float(2**best)
    return float(2 ** (best + np.clip(-slope / (2 * rising), x.min(), x.max())))


def _within(x: NDArray[np.float64], doublings: int) -> NDArray[np.bool_]:
    """Return a mask of near values, with room for the rounding of rates."""
    return np.abs(x) <= doublings * 1.01
