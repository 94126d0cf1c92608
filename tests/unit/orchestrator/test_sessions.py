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


def test_a_second_training_at_the_same_time_is_no_part_of_the_run() -> None:
    training = session([0, 10], at=3, base=500)
    points, (note,) = join_sessions([session([0, 10, 20, 30, 40], at=0), training])
    assert values(points) == {step: step for step in range(0, 50, 10)} and "2 trainings" in note
    evaluation = session([10, 20], at=3, name="accuracy")
    points, notes = join_sessions([session([0, 10, 20, 30, 40], at=0), evaluation])
    assert len(points) == 5 and values(points).keys() == {0, 10, 20, 30, 40} and notes == [], (
        "another process may log other metrics of it"
    )


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
