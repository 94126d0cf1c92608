"""Line search: what is tried, and where the parabola through the trials is lowest, whatever the losses are."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.tuning.line import LARGEST_RATE, Grid, LineSearch
from orchestrator.tuning.tuner import rate_of
from tests.twins.line_search import fitted_rate, vertex_through_three

own_rates = st.floats(1e-8, 1e3)
losses = st.floats(-10, 10) | st.just(math.inf)
Loss = Callable[[float], float]


def search(tuner: LineSearch, loss: Loss) -> dict[float, float]:
    """All trials in the order in which they are made."""
    tried: dict[float, float] = {}
    while settings := tuner.ask(tried):
        rates = [rate_of(setting) for setting in settings]
        assert tried.keys().isdisjoint(rates) and len({*rates}) == len(rates), "no rate twice"
        tried |= {rate: loss(rate) for rate in rates}
    return tried


def bowl(best: float, curvature: float = 0.05) -> Loss:
    """Return a loss that rises so many nats above 2.3 a factor of two from the best rate, squared."""
    return lambda rate: 2.3 + curvature * math.log2(rate / best) ** 2


@given(own_rates, st.integers(3, 40), st.floats(-0.5, 0.5), st.lists(losses, min_size=40, max_size=40))
def test_a_search_has_its_trials_whatever_their_losses_are(
    own: float, trials: int, shift: float, outcomes: list[float]
) -> None:
    tuner, stream = LineSearch(own=own, trials=trials, shift=shift), iter(outcomes)
    tried = search(tuner, lambda _rate: next(stream))
    assert len(tried) == trials
    first = [*tried][:3]
    assert first == pytest.approx([own * 2 ** (shift + step) for step in (-1, 0, 1)], rel=1e-3)
    setting = tuner.setting(tried)
    if (finite := {rate for rate, loss in tried.items() if math.isfinite(loss)}) and setting:
        assert min(finite) <= rate_of(setting) * 1.001 and rate_of(setting) <= max(finite) * 1.001
    else:
        assert not finite and setting is None


@given(own_rates, st.floats(-2.5, 2.5), st.floats(1e-4, 10))
def test_of_a_parabola_the_lowest_point_is_judged(own: float, doublings: float, curvature: float) -> None:
    """By no more than the digits of a rate."""
    best = own * 2**doublings
    tuner = LineSearch(own=own, trials=8)
    tried = search(tuner, bowl(best, curvature))
    setting = tuner.setting(tried)
    assert setting is not None and rate_of(setting) == pytest.approx(best, rel=2e-3)
    assert not tuner.is_at_edge(tried)


@given(own_rates, st.lists(st.floats(0, 1), min_size=8, max_size=8), st.floats(0.1, 100), st.floats(-5, 5))
def test_neither_the_unit_nor_the_level_of_losses_matters(
    own: float, values: list[float], unit: float, level: float
) -> None:
    values = [index + 0.5 * value for index, value in enumerate(values)]  # no ties, which rounding would break
    outcomes = [values[(5 * index) % 8] for index in range(8)]
    tuner = LineSearch(own=own, trials=8)
    plain, other = iter(outcomes), iter(outcomes)
    tried = search(tuner, lambda _rate: next(plain))
    scaled = search(tuner, lambda _rate: level + unit * next(other))
    assert [*scaled] == pytest.approx([*tried], rel=1e-3)
    choice, twin = tuner.setting(tried), tuner.setting(scaled)
    assert choice is not None and twin is not None and rate_of(twin) == pytest.approx(rate_of(choice), rel=2e-3)


@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(2, 4) | st.just(math.inf)), min_size=1, max_size=9))
def test_the_setting_is_that_of_numpys_least_squares(points: list[tuple[float, float]]) -> None:
    tried = {float(f"{1e-3 * 2**exponent:.4g}"): loss for exponent, loss in points}
    assume(any(map(math.isfinite, tried.values())))
    places = sorted(map(math.log2, tried))
    assume(all(high - low > 0.05 for low, high in pairwise(places)))
    rates = sorted(tried)
    expected = fitted_rate(rates, [tried[rate] for rate in rates])
    moved = fitted_rate(rates, [tried[rate] + 1e-9 * index * index for index, rate in enumerate(rates)])
    assume(moved == pytest.approx(expected, rel=1e-4))  # on a straight line rounding decides which way it bends
    setting = LineSearch(own=1e-3, trials=9).setting(tried)
    assert setting is not None and rate_of(setting) == pytest.approx(expected, rel=1e-3)


@given(st.floats(-1, -0.2), st.floats(0.2, 1), st.floats(0.01, 1), st.floats(0.01, 1))
def test_the_next_rate_is_brents(low: float, high: float, below: float, above: float) -> None:
    """The vertex of the parabola through the lowest and its neighbours; the middle of the wider gap where that lies
    within a tenth of their distance from one of them."""
    rates = [float(f"{1e-3 * 2**exponent:.4g}") for exponent in (low, 0.0, high)]
    places = [math.log2(rate) for rate in rates]
    vertex = vertex_through_three(places, [below, 0.0, above])
    if min(abs(vertex - exponent) for exponent in places) < 0.1 * (places[2] - places[0]):
        gap = max(pairwise(places), key=lambda gap: gap[1] - gap[0])
        assume(abs(abs(low) - high) > 0.01)
        vertex = sum(gap) / 2
    assume(all(abs(abs(vertex - exponent) - 0.1 * (places[2] - places[0])) > 1e-3 for exponent in places))
    (setting,) = LineSearch(own=1e-3, trials=8).ask(dict(zip(rates, (below, 0.0, above), strict=True)))
    assert rate_of(setting) == pytest.approx(2**vertex, rel=1e-3)


def test_beyond_an_end_the_search_goes_on_by_factors_of_two_until_the_lowest_lies_inside() -> None:
    upwards = search(LineSearch(own=1e-3, trials=8), bowl(1.3e-2))
    assert [*upwards][:7] == [5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2]
    assert 8e-3 < [*upwards][7] < 1.6e-2
    downwards = search(LineSearch(own=1e-3, trials=6), bowl(1e-5))
    assert [*downwards][3:] == [2.5e-4, 1.25e-4, 6.25e-5]
    assert LineSearch(own=1e-3, trials=6).is_at_edge(downwards)


def test_where_every_trial_is_lost_lower_rates_are_tried_and_nothing_is_judged() -> None:
    tuner = LineSearch(own=1e-3, trials=6)
    tried = search(tuner, lambda _rate: math.inf)
    assert [*tried][3:] == [2.5e-4, 1.25e-4, 6.25e-5]
    assert tuner.setting(tried) is None


@pytest.mark.parametrize(
    ("tried", "asked"),
    [
        ({5e-4: 2.4, 1e-3: 2.3, 2e-3: math.inf}, 1.414e-3),
        ({5e-4: math.inf, 1e-3: 2.3, 2e-3: 2.4}, 7.071e-4),
        ({5e-4: math.inf, 1e-3: 2.3, 4e-3: math.inf}, 2e-3),
    ],
)
def test_beside_a_lost_trial_the_middle_towards_it_is_tried(tried: dict[float, float], asked: float) -> None:
    assert LineSearch(own=1e-3, trials=8).ask(tried) == ({"lr": asked},)


def test_a_lost_trial_is_no_point_of_the_parabola_and_no_end_of_what_was_tried() -> None:
    tuner = LineSearch(own=1e-3, trials=5)
    tried = {5e-4: 2.31, 1e-3: 2.30, 1.414e-3: 2.33, 2e-3: math.inf}
    setting = tuner.setting(tried)
    assert setting == tuner.setting({rate: loss for rate, loss in tried.items() if rate < 2e-3})
    assert not tuner.is_at_edge(tried | {1.414e-3: 2.29})
    assert tuner.is_at_edge({5e-4: 2.31, 1e-3: 2.30, 1.414e-3: 2.29})


def test_the_luck_of_one_trial_moves_the_setting_less_than_half_of_the_way() -> None:
    """A trial a quarter of a doubling off the best rate, and 0.002 nats too low, is the lowest one."""
    places = (-1, -0.5, -0.25, 0, 0.25, 0.5, 1)
    tried = {float(f"{1e-3 * 2**exponent:.4g}"): 2.3 + 0.05 * exponent**2 for exponent in places}
    lucky = 1.189e-3
    setting = LineSearch(own=1e-3, trials=7).setting(tried | {lucky: 2.298})
    assert lucky in tried and setting is not None
    assert 1e-3 < rate_of(setting) < 1e-3 * 2**0.125


def test_at_the_largest_rate_the_search_goes_on_between_the_others() -> None:
    tried = search(LineSearch(own=LARGEST_RATE, trials=8), lambda rate: -rate)
    assert len(tried) == 8 and max(tried) == LARGEST_RATE


def test_a_grid_of_factors_of_ten_is_judged_at_its_best_rate_and_one_of_two_between() -> None:
    """No parabola goes through trials so far apart."""
    for factor, judged in ((10, [3e-3]), (2, [3e-3 * 2 ** (1 / 3)])):
        rates = (3e-3 / factor, 3e-3, 3e-3 * factor)
        loss = bowl(3e-3 * 2 ** (1 / 3))
        setting = Grid(rates).setting({rate: loss(rate) for rate in rates})
        assert setting is not None and [rate_of(setting)] == pytest.approx(judged, rel=1e-3)
