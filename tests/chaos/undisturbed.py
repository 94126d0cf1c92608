"""What a training would have been with nobody in the way: every point and every loss, to compare with to the bit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.records import RunRecord
from worker.records.result import Point, Result
from worker.reporting.reporter import MemoryReporter
from worker.run import Folders, run

VALUES = ("step", "tokens", "training loss", "validation loss", "rate", "gradient norm")
PointValues = tuple[int, int, float | None, float | None, float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class Course:
    """All of a training that does not depend on when and where it ran."""

    points: tuple[PointValues, ...]
    """`VALUES` of every point, in order."""
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


MOST_DIFFERENCES = 5


def differences(found: Course, expected: Course) -> list[str]:
    """Where the course of a training leaves that of an undisturbed one: the first few places, each with both values."""
    ours, theirs = ({point[0]: point for point in each.points} for each in (found, expected))
    told = []
    if steps := [point[0] for point in found.points if point[0] not in theirs]:
        told.append(f"points at the steps {steps}, where there should be none")
    if steps := [step for step in theirs if step not in ours]:
        told.append(f"no points at the steps {steps}")
    if len(ours) < len(found.points):
        told.append(f"{len(found.points) - len(ours)} points whose step has another one")
    for step in sorted(ours.keys() & theirs.keys()):
        for name, value, wanted in zip(VALUES, ours[step], theirs[step], strict=True):
            if value != wanted:
                told.append(f"step {step}: {name} {value!r} instead of {wanted!r}")
    for name, value, wanted in zip(
        ("final validation loss", "final training loss"), found.final_losses, expected.final_losses, strict=True
    ):
        if value != wanted:
            told.append(f"{name} {value!r} instead of {wanted!r}")
    if not told and found != expected:
        told.append("its points are in another order")
    more = len(told) - MOST_DIFFERENCES
    return [*told[:MOST_DIFFERENCES], f"{more} more differences"] if more > 0 else told


def undisturbed_courses(runs: Iterable[RunRecord], folder: Path, datasets: Path) -> dict[str, Course]:
    """By the id of the run: its course with nobody in the way, in this process. Equal trainings are made once."""
    known: dict[str, Course] = {}
    courses = {}
    for each in runs:
        assert each.spec is not None, f"the specification of {each.id} is damaged"
        name = each.spec.content_hash()
        if name not in known:
            reporter = MemoryReporter()
            result = run(each.spec, reporter, Folders(run_folder=folder / name, dataset_folder=datasets))
            known[name] = course_of(reporter.points, result)
        courses[each.id] = known[name]
    return courses
