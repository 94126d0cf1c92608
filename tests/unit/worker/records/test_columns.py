"""Points in columns say what points one by one say, and nothing else; a result from the wire, and the loss that it is
judged by."""

import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.columns import columns_of
from orchestrator.store import series
from tests.factories.stores import result
from tests.twins import pointwise
from worker.records.columns import MOST_POINTS, PointColumns
from worker.records.protocol import PointsBatch
from worker.records.result import Point, Result

finite = st.floats(allow_nan=False, allow_infinity=False)
seconds = st.floats(0, 1e6)
whole = st.integers(0, 2**53)
points = st.builds(
    Point,
    step=whole,
    tokens=whole,
    train_loss=st.none() | finite,
    val_loss=st.none() | finite,
    lr=st.none() | finite,
    step_seconds=st.none() | seconds,
    host_rss_bytes=st.none() | whole,
)


@given(st.lists(points, min_size=1, max_size=20))
@settings(deadline=None)
def test_columns_agree_with_points_one_by_one(sent: list[Point]) -> None:
    """What is sent is what is read and what is stored, to the bit, and each number keeps its type."""
    batch = PointsBatch.from_points(7, sent)
    read = PointsBatch.model_validate_json(batch.body())
    assert read == batch
    assert read.points == pointwise.read(batch.body()) == tuple(sent)
    assert [type(value) for point in read.points for _, value in point] == [
        type(value) for point in sent for _, value in point
    ]
    assert list(columns_of(read.columns).points()) == list(columns_of(sent).points())


@given(st.lists(points, min_size=1, max_size=20))
@example([Point(step=1, tokens=1024, step_seconds=1e-320)])
@settings(deadline=None)
def test_what_a_run_shows_agrees_with_points_one_by_one(sent: list[Point]) -> None:
    expected = pointwise.latest(sent)
    shown = series.newest_figures(columns_of(sent))
    assert shown.keys() == expected.keys()
    assert all(math.isclose(float(str(shown[name])), expected[name], rel_tol=1e-12) for name in shown)


@given(st.lists(points, min_size=1, max_size=5), st.data())
@settings(deadline=None)
def test_a_bad_value_is_refused_wherever_a_point_would_refuse_it(sent: list[Point], data: st.DataObject) -> None:
    """A worker cannot slip into a column what it could not say in a point."""
    name = data.draw(st.sampled_from(sorted(Point.model_fields)))
    row = data.draw(st.integers(0, len(sent) - 1))
    value: object = data.draw(st.sampled_from([math.nan, math.inf, -1, 1.5, 2**53 + 1, "x", None, [], {}]))
    column = [getattr(point, name) for point in sent]
    column[row] = value
    changed = PointColumns.from_points(sent).model_dump(exclude_none=True) | {name: tuple(column)}

    def refused() -> bool:
        try:
            PointColumns.model_validate(changed)
        except ValidationError:
            return True
        return False

    def refused_as_a_point() -> bool:
        try:
            Point.model_validate(sent[row].model_dump() | {name: value})
        except ValidationError:
            return True
        return False

    assert refused() == refused_as_a_point()


def test_a_field_that_no_point_has_is_not_sent() -> None:
    batch = PointsBatch.from_points(0, [Point(step=0, tokens=0), Point(step=1, tokens=8, lr=0.5)])
    assert batch.body() == (b'{"sequence":0,"columns":{"step":[0,1],"tokens":[0,8],"lr":[null,0.5]},"observations":[]}')


def test_columns_of_two_lengths_are_told_by_name() -> None:
    with pytest.raises(ValidationError, match="must have 2 values, as many as step") as caught:
        PointColumns.model_validate({"step": (0, 1), "tokens": (0, 1), "lr": (0.1,), "val_loss": (1.0, 2.0, 3.0)})
    assert sorted(error["loc"] for error in caught.value.errors()) == [("lr",), ("val_loss",)]


def test_a_batch_has_an_end() -> None:
    steps = tuple(range(MOST_POINTS + 1))
    with pytest.raises(ValidationError, match="at most 10000 items"):
        PointColumns.model_validate({"step": steps, "tokens": steps})


def test_a_whole_number_may_be_written_with_a_point_and_a_fraction_without() -> None:
    read = Result.model_validate_json(
        json.dumps(result().model_dump(mode="json") | {"steps": 10.0, "energy_joules": 3})
    )
    assert (read.steps, read.energy_joules) == (10, 3.0)


@pytest.mark.parametrize(
    ("initial", "lowest", "final", "judged"),
    [(5.5, 2.3, 2.32, 2.32), (5.5, 2.3, 3.0, None), (-0.32, -0.68, -0.64, -0.64)],
    ids=["fell", "gave back what it had won", "a reward is noisy"],
)
def test_a_run_that_ends_far_above_its_lowest_loss_is_lost(
    initial: float, lowest: float, final: float, judged: float | None
) -> None:
    fields = {"initial_val_loss": initial, "lowest_val_loss": lowest}
    assert result(final_val_loss=final).model_copy(update=fields).judged_loss() == judged
