"""What a search by coordinate descent leaves open: parabolas give it exactly, noise and misfit add to it."""

import math
from collections.abc import Sequence

import pytest

from orchestrator.analysis.candidates import surface_regret
from orchestrator.kinds.basin import MISFIT

CROSS = [(0.0, 0.0), (-0.5, 0.0), (0.5, 0.0), (0.0, -0.5), (0.0, 0.5)]
RISE = MISFIT * 0.25 * (0.1 + 0.02)


def regret_of(places: Sequence[tuple[float, ...]], losses: Sequence[float], judged: int, variance: float) -> float:
    """Of one of the trials, beside which parabolas are fitted."""
    return surface_regret(places, losses, judged, places[judged], variance)


def bowl(at: tuple[float, float]) -> float:
    return 2 + 0.1 * (at[0] - 0.2) ** 2 + 0.02 * (at[1] + 0.4) ** 2


def test_without_noise_it_is_what_parabolas_leave_open() -> None:
    found = regret_of(CROSS, [bowl(at) for at in CROSS], 0, 0.0)
    assert found == pytest.approx(0.1 * 0.2**2 + 0.02 * 0.4**2 + RISE)
    assert regret_of(CROSS, [bowl(at) for at in CROSS], 4, 0.0) > found + 0.01, "seen from a worse setting"


def test_at_the_lowest_point_of_the_parabolas_only_misfit_and_noise_are_left() -> None:
    losses = [bowl(at) for at in CROSS]
    assert surface_regret(CROSS, losses, 0, (0.2, -0.4), 0.0) == pytest.approx(RISE)
    at_the_trial = surface_regret(CROSS, losses, 0, CROSS[0], 0.002**2)
    assert RISE < surface_regret(CROSS, losses, 0, (0.2, -0.4), 0.002**2) < at_the_trial


def test_it_looks_no_farther_than_the_ranges() -> None:
    falling = [(place,) for place in (-0.5, 0.0, 0.5)]
    assert regret_of(falling, [2.05, 2.0, 1.95], 2, 0.0) == pytest.approx(0.05)


def test_noise_and_what_is_no_sum_of_parabolas_widen_it() -> None:
    losses = [bowl(at) for at in CROSS]
    exact = regret_of(CROSS, losses, 0, 0.0)
    assert regret_of(CROSS, losses, 0, 0.002**2) > exact + 0.002
    corners = [*CROSS, (0.5, 0.5), (-0.5, -0.5)]
    together = [bowl(at) + 0.08 * at[0] * at[1] for at in corners]
    assert regret_of(corners, together, 5, 0.0) > regret_of(corners, [bowl(at) for at in corners], 5, 0.0)


def test_where_every_axis_was_seen_through_the_judged_trial_others_say_nothing() -> None:
    """Too high a rate with too short a warm-up tells nothing of the parabolas about the best of both."""
    far = [*CROSS, (0.5, -0.5), (1.0, -0.5)]
    losses = [bowl(at) for at in CROSS]
    assert regret_of(far, [*losses, 5.0, 9.0], 0, 0.0) == regret_of(CROSS, losses, 0, 0.0)
    assert regret_of(far, [*losses, 5.0, 9.0], 5, 0.0) > 0.5, "beside it axes were seen at two places"


def test_an_axis_that_was_seen_at_one_place_leaves_all_open() -> None:
    assert regret_of([(0.0, 0.0), (0.5, 0.0), (1.0, 0.0)], [2.0, 1.9, 2.0], 1, 0.0) == math.inf
    assert regret_of([(0.0,)], [2.0], 0, 0.0) == math.inf
