"""What a training would have been with nobody in the way: every point and every loss, to compare with to the bit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.records import RunRecord
from worker.record import Point, Result
from worker.reporter import MemoryReporter
from worker.run import Folders, run
from worker.spec import RunSpec

PointValues = tuple[int, int, float | None, float | None, float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class Course:
    """All of a training that does not depend on when and where it ran."""

    points: tuple[PointValues, ...]
    """(step, tokens, training loss, validation loss, rate, gradient norm) of every point, in order."""
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
    """By the hash of its specification: the course of each different training, in this process, one after another."""
    different: dict[str, RunSpec] = {each.spec.content_hash(): each.spec for each in runs}
    courses = {}
    for name, spec in different.items():
        reporter = MemoryReporter()
        result = run(spec, reporter, Folders(run_folder=folder / name, dataset_folder=datasets))
        courses[name] = course_of(reporter.points, result)
    return courses
