"""Search spaces: whatever is drawn, or stands on a grid, lies inside; what the catalog suggests is allowed."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from optim import catalog
from optim.catalog.records import OptimizerEntry
from orchestrator.tuning.search_spaces import (
    Choice,
    Integer,
    LogUniform,
    Range,
    Uniform,
    contains,
    draw,
    ends,
    grid,
    share_of,
    suggested_range,
    suggested_rates,
)

positive = st.floats(1e-9, 1e9)
whole = st.integers(1, 10**6)
points = st.integers(1, 9)


@st.composite
def domains(draw_one: st.DrawFn) -> Range:
    kind = draw_one(st.sampled_from(["log-uniform", "uniform", "integer", "log-integer", "choice"]))
    if kind == "choice":
        return Choice(
            values=tuple(draw_one(st.lists(st.sampled_from([None, True, 2, 0.5, "svd"]), min_size=1, unique=True)))
        )
    if kind in ("integer", "log-integer"):
        low, high = sorted(draw_one(st.tuples(whole, whole).filter(lambda pair: pair[0] != pair[1])))
        return Integer(low=low, high=high, log=kind == "log-integer", points=draw_one(points))
    bottom, top = sorted(draw_one(st.tuples(positive, positive).filter(lambda pair: pair[0] != pair[1])))
    range_class = LogUniform if kind == "log-uniform" else Uniform
    return range_class(low=bottom, high=top, points=draw_one(points))


@given(domain=domains(), seed=st.integers(0, 2**32))
def test_what_is_drawn_lies_inside(domain: Range, seed: int):
    value = draw(domain, Random(seed))
    assert contains(domain, value) and -1e-9 <= share_of(domain, value) <= 1 + 1e-9


@given(domain=domains())
def test_a_grid_lies_inside_and_has_both_ends(domain: Range):
    values = grid(domain)
    assert all(contains(domain, value) for value in values)
    if isinstance(domain, Choice):
        assert values == domain.values
    else:
        assert 1 <= len(values) <= domain.points
        assert domain.points < 2 or (values[0], values[-1]) == ends(domain)


def test_a_log_grid_goes_by_ratio():
    assert grid(LogUniform(low=1e-4, high=1e-1, points=4)) == (1e-4, 1e-3, 1e-2, 1e-1)
    assert grid(Integer(low=1, high=8, log=True, points=4)) == (1, 2, 4, 8)
    assert grid(Uniform(low=0, high=1, points=1)) == (0.5,)


@pytest.mark.parametrize("entry", catalog.CATALOG, ids=lambda entry: entry.name)
def test_what_the_catalog_suggests_is_allowed_and_holds_the_default(entry: OptimizerEntry):
    assert contains(suggested_rates(entry.learning_rate), entry.learning_rate)
    for option in entry.options:
        domain = suggested_range(option)
        if domain is not None:
            assert [option.fault(value) for value in ends(domain)] == [None] * len(ends(domain))
            assert option.default is None or contains(domain, option.default)


def test_a_default_of_no_scale_suggests_nothing():
    eps1 = catalog.entry("adapm").option("inner_iterations")
    assert eps1 is not None and suggested_range(eps1) is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"low": 1.0, "high": 1.0}, "must be above low = 1"),
        ({"low": 0.0, "high": 1.0}, "greater than 0"),
    ],
)
def test_a_range_without_width_or_sign_is_refused(fields: dict[str, float], said: str):
    with pytest.raises(ValidationError, match=said):
        LogUniform(**fields)


def test_a_choice_tells_true_from_one():
    assert Choice(values=(True, 1)).values == (True, 1)
    assert not contains(Choice(values=(True,)), 1)
    with pytest.raises(ValidationError, match="given twice"):
        Choice(values=(1, 1))
