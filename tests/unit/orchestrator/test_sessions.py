"""Sessions of a run that follow, rewind, count anew or overlap."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.sessions import SourcePoint, join_sessions
from tests.twins.sessions import joined_values


def session(steps: list[int], *, at: float, base: float = 0.0, name: str = "val_loss") -> list[SourcePoint]:
    """A point each second, whose value is its step and a base that tells sessions apart."""
    return [SourcePoint(at=at + i, step=step, metrics={name: base + step}) for i, step in enumerate(steps)]


def values(points: list[SourcePoint]) -> dict[int, float]:
    return {point.step: point.metrics["val_loss"] for point in points if "val_loss" in point.metrics}


def test_a_session_that_goes_on_is_put_behind_and_nothing_is_said() -> None:
    points, notes = join_sessions([session([0, 10], at=0), session([20, 30], at=100)])
    assert values(points) == {0: 0, 10: 10, 20: 20, 30: 30} and notes == []


def test_a_session_that_went_back_leaves_the_branch_out_that_no_model_has() -> None:
    points, (note,) = join_sessions([session([20], at=50, base=500), session([0, 10, 20, 30], at=0)])
    assert values(points) == {0: 0, 10: 10, 20: 520} and "went back to step 20" in note and "step 30" in note


def test_steps_that_a_tool_counts_anew_are_put_behind() -> None:
    first, second = session([0, 1, 2], at=0), session([0, 1], at=50, base=500)
    points, (note,) = join_sessions([first, second], counts_steps=True)
    assert values(points) == {0: 0, 1: 1, 2: 2, 3: 500, 4: 501} and "behind step 2" in note
    points, (note,) = join_sessions([first, second])
    assert values(points) == {0: 500, 1: 501} and "went back to step 0" in note


def test_a_second_training_at_the_same_time_is_no_part_of_the_run() -> None:
    training = session([0, 10], at=3, base=500)
    points, (note,) = join_sessions([session([0, 10, 20, 30, 40], at=0), training])
    assert values(points) == {step: step for step in range(0, 50, 10)} and "2 trainings" in note
    evaluation = session([10, 20], at=3, name="accuracy")
    points, notes = join_sessions([session([0, 10, 20, 30, 40], at=0), evaluation])
    assert len(points) == 5 and values(points).keys() == {0, 10, 20, 30, 40} and notes == [], (
        "another process may log other metrics of it"
    )


def test_one_stream_that_logs_its_steps_again_was_resumed_and_one_that_fills_gaps_was_not() -> None:
    points, (note,) = join_sessions([session([0, 10, 20, 30, 10, 20], at=0)])
    assert [*values(points)] == [0, 10, 20] and "went back to step 10" in note
    points, notes = join_sessions([session([0, 20, 30, 10], at=0)])
    assert [*values(points)] == [0, 10, 20, 30] and notes == []


def test_a_session_leaves_those_as_they_are_that_it_has_no_metric_in_common_with() -> None:
    sessions = [session([10, 20], at=0, name="train_loss"), session([10, 20], at=50), session([10], at=90, base=500)]
    points, (note,) = join_sessions(sessions)
    assert values(points) == {10: 510} and "from there to step 20" in note
    assert [point.step for point in points if "train_loss" in point.metrics] == [10, 20]


def test_sessions_of_one_id_that_overlap_are_one_training() -> None:
    sessions = [session([0, 10, 20], at=0), session([10, 20], at=1.5, base=500)]
    assert values(join_sessions(sessions, is_one_training=True)[0]) == {0: 0, 10: 510, 20: 520}


def test_steps_that_begin_anew_with_each_epoch_are_put_behind_and_a_rewound_epoch_is_cut() -> None:
    rows = [(epoch, step) for epoch in (0, 1, 1, 2) for step in (0, 10)]
    stream = [
        SourcePoint(at=at, step=step, metrics={"train/epoch": epoch, "val_loss": at})
        for at, (epoch, step) in enumerate(rows)
    ]
    points, notes = join_sessions([stream])
    assert [*values(points).values()] == [0, 1, 4, 5, 6, 7] and [*values(points)] == [0, 10, 11, 21, 22, 32]
    assert len(notes) == 2 and "each epoch" in notes[0] and "went back to step 11" in notes[1]


STEPS = st.lists(st.integers(0, 6), min_size=1, max_size=6)
EPOCHS = st.none() | st.lists(st.integers(0, 3), min_size=6, max_size=6)
HISTORIES = st.lists(st.tuples(STEPS, st.integers(0, 20), st.sampled_from(["val_loss", "loss"]), EPOCHS), max_size=5)


@given(HISTORIES, st.booleans(), st.booleans())
def test_every_history_comes_to_what_the_slow_twin_says(
    history: list[tuple[list[int], int, str, list[int] | None]], counts_steps: bool, is_one_training: bool
) -> None:
    sessions = []
    for i, (steps, start, name, epochs) in enumerate(history):
        sessions.append(session(steps, at=start, base=100.0 * i, name=name))
        for point, epoch in zip(sessions[-1], epochs or (), strict=False):
            point.metrics["epoch"] = epoch
    points, _ = join_sessions(sessions, counts_steps=counts_steps, is_one_training=is_one_training)
    joined = {(point.step, name): value for point in points for name, value in point.metrics.items()}
    assert joined == joined_values(sessions, counts_steps=counts_steps, is_one_training=is_one_training)
    assert [point.step for point in points] == sorted(point.step for point in points)
