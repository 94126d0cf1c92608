"""The file reporter's files."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from worker.records.protocol import Failure, FailureKind
from worker.records.result import Point
from worker.reporting.reporter import FileReporter, read_reports


def test_a_line_that_a_kill_cut_short_is_left_out_and_does_not_spoil_the_next_attempt(tmp_path: Path) -> None:
    """Half a line at the end is not a point; one in the middle is damage and is said."""
    first = FileReporter(tmp_path)
    first.begin(None)
    first.point(Point(step=0, tokens=0))
    first.point(Point(step=1, tokens=1))
    first.persist()
    file = tmp_path / "points.jsonl"
    file.write_text(file.read_text()[:-9])
    assert read_reports(tmp_path, Point) == [Point(step=0, tokens=0)]

    second = FileReporter(tmp_path)
    second.begin(0)
    second.point(Point(step=1, tokens=1))
    second.persist()
    assert read_reports(tmp_path, Point) == [Point(step=0, tokens=0), Point(step=1, tokens=1)]

    file.write_text("half\n" + file.read_text())
    with pytest.raises(ValidationError):
        read_reports(tmp_path, Point)


def test_an_older_ending_is_gone_when_a_run_begins_again(tmp_path: Path) -> None:
    """A folder never says of a running run that it failed."""
    reporter = FileReporter(tmp_path)
    reporter.begin(None)
    reporter.finish(Failure(kind=FailureKind.PROGRAM, message="it broke", device_seconds=1.0))
    assert (tmp_path / "ending.json").exists()

    FileReporter(tmp_path).begin(None)
    assert not (tmp_path / "ending.json").exists()
