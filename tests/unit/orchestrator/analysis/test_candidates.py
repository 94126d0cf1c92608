"""What a search by coordinate descent leaves open: parabolas give it exactly, noise and misfit add to it."""

from collections.abc import Sequence

import pytest

from orchestrator.analysis.candidates import MISFIT, surface_regret

CROSS = [(0.0, 0.0), (-0.5, 0.0), (0.5, 0.0), (0.0, -0.5), (0.0, 0.5)]
RISE = MISFIT * 0.25 * (0.1 + 0.02)


def left_open(at: Sequence[tuple[float, ...]], losses: Sequence[float], judged: int, variance: float) -> float:
    """At 95 %."""
    found = surface_regret(at, losses, judged, variance)
    assert found is not None
    assert found(0.01) >= found(0.05)
    return found(0.05)


def bowl(at: tuple[float, float]) -> float:
    return 2 + 0.1 * (at[0] - 0.2) ** 2 + 0.02 * (at[1] + 0.4) ** 2


def test_without_noise_it_is_what_parabolas_leave_open() -> None:
    found = left_open(CROSS, [bowl(at) for at in CROSS], 0, 0.0)
    assert found == pytest.approx(0.1 * 0.2**2 + 0.02 * 0.4**2 + RISE)
    assert left_open(CROSS, [bowl(at) for at in CROSS], 4, 0.0) > found + 0.01, "seen from a worse setting"


def test_it_looks_no_farther_than_the_ranges() -> None:
    falling = [(place,) for place in (-0.5, 0.0, 0.5)]
    assert left_open(falling, [2.05, 2.0, 1.95], 2, 0.0) == pytest.approx(0.05)


def test_noise_and_what_is_no_sum_of_parabolas_widen_it() -> None:
    losses = [bowl(at) for at in CROSS]
    exact = left_open(CROSS, losses, 0, 0.0)
    assert left_open(CROSS, losses, 0, 0.002**2) > exact + 0.002
    scattered = [(0.0, 0.0), (-0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (0.5, -0.5), (0.5, 1.0)]
    alone, together = ([bowl(at) + share * at[0] * at[1] for at in scattered] for share in (0.0, 0.08))
    assert left_open(scattered, together, 4, 0.0) > left_open(scattered, alone, 4, 0.0) + 0.001


def test_parabolas_are_those_through_the_lowest_trial_that_has_neighbours_along_every_axis() -> None:
    """Too high a rate with too short a warm-up tells nothing of the parabolas about the best of both."""
    far = [*CROSS, (0.5, -0.5), (1.0, -0.5)]
    losses = [bowl(at) for at in CROSS]
    assert left_open(far, [*losses, 5.0, 9.0], 0, 0.0) == left_open(CROSS, losses, 0, 0.0)
    lowest = [*CROSS, (0.2, -0.4)]
    assert left_open(lowest, [*losses, bowl((0.2, -0.4))], 5, 0.0) == pytest.approx(RISE)
    assert left_open(far[2:], [*losses[2:], 5.0, 9.0], 0, 0.0) > 0.5, "of no trial they were seen: all are taken"


def test_an_axis_that_was_seen_at_one_place_leaves_all_open() -> None:
    assert surface_regret([(0.0, 0.0), (0.5, 0.0), (1.0, 0.0)], [2.0, 1.9, 2.0], 1, 0.0) is None
    assert surface_regret([(0.0,)], [2.0], 0, 0.0) is None
