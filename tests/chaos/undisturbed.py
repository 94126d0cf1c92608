"""The undisturbed training: every point and every loss, to compare with to the bit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.records import RunRecord
from tests.factories.reporters import reported
from worker.records.result import Point, Result
from worker.run import Folders

PointValues = tuple[int, int, float | None, float | None, float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class Course:
    """All of a training that does not depend on when and where it ran."""

    points: tuple[PointValues, ...]
    """Step, tokens, training loss, validation loss, rate and gradient norm of every point, in order."""
    final_losses: tuple[float | None, float | None]
    """Validation and training."""


def course_of(points: Sequence[Point], result: Result) -> Course:
    """The course of a training, by what it has reported."""
    return Course(
        points=tuple(
            (point.step, point.tokens, point.train_loss, point.val_loss, point.lr, point.grad_norm) for point in points
        ),
        final_losses=(result.final_val_loss, result.final_train_loss),
    )


def undisturbed_courses(runs: Iterable[RunRecord], folder: Path, datasets: Path) -> dict[str, Course]:
    """Return the undisturbed course of each run by its id, in this process. Equal trainings are made once."""
    course_by_hash: dict[str, Course] = {}
    courses = {}
    for record in runs:
        assert record.spec is not None, f"the specification of {record.id} is damaged"
        name = record.spec.content_hash()
        if name not in course_by_hash:
            folders = Folders(run_folder=folder / name, dataset_folder=datasets)
            reporter, result = reported(record.spec, folders)
            course_by_hash[name] = course_of(reporter.points, result)
        courses[record.id] = course_by_hash[name]
    return courses
