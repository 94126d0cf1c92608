"""The port between a training and whoever listens: points while it runs, one result at its end.

Reporter ◄── FileReporter  a folder: runs without a service
         ◄── HttpReporter  the service (worker/reporting/http.py)

`Reporter` itself notifies nobody: it is that of all ranks but the first, which hears the commands and reports for all.
"""

from pathlib import Path
from typing import IO, Any, Final, TypeVar

from pydantic import ValidationError

from worker.files import write_atomically
from worker.records.protocol import CheckpointNotice, Command, LastWord
from worker.records.result import Observation, Point, Result, TextSamples


class Reporter:
    """Takes what a run reports. Calls come from one thread, and none waits for a network."""

    def begin(self, after_step: int | None) -> None:
        """Report that training begins, from scratch (None) or after a checkpoint; later points of earlier attempts
        become void."""

    def command(self) -> Command:
        """Return the command to the run; raises `LeaseRevokedError` when it should not exist any more."""
        return Command.CONTINUE

    def point(self, point: Point) -> None:
        """Take a point; steps rise by one."""

    def observe(self, observation: Observation | TextSamples) -> None:
        """Take what a probe saw, or the model wrote, at a step, before that step's point."""

    def persist(self) -> None:
        """Return when every point so far would survive the death of this process."""

    def checkpoint(self, notice: CheckpointNotice) -> None:
        """Take note of a complete checkpoint."""

    def note(self, text: str) -> None:
        """Take what people should know of this attempt, in a sentence."""

    def finish(self, word: LastWord) -> None:
        """Deliver the result, that a command was obeyed, or that the run broke down, after all points. Unlike the
        others this may wait for a network."""


Report = Point | Observation | TextSamples
"""The report of a step."""
Reported = TypeVar("Reported", Point, Observation, TextSamples)


def valid_reports(reported: list[Reported], after_step: int | None) -> list[Reported]:
    """Return the reports of earlier attempts that the attempt going on after that step does not report again."""
    return [report for report in reported if after_step is not None and report.step <= after_step]


FILES: Final[dict[Any, str]] = {
    Point: "points.jsonl",
    Observation: "observations.jsonl",
    TextSamples: "samples.jsonl",
}
"""The file of each kind of report, a line each; it exists if there are any, and always for points."""
RESULT_NAME: Final = "result.json"
ENDING_NAME: Final = "ending.json"


class FileReporter(Reporter):
    """Writes the `FILES` of its reports, and at the end `result.json` or, where there is no result, `ending.json`. Of
    checkpoints and notes the checkpoint folder and the log report."""

    def __init__(self, folder: Path) -> None:
        """Report into `folder`, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._files: dict[str, IO[str]] = {}

    def begin(self, after_step: int | None) -> None:
        """Rewrite the reports of earlier attempts without the void ones, and drop what said how they ended."""
        self._close()
        for name in (RESULT_NAME, ENDING_NAME):
            (self.folder / name).unlink(missing_ok=True)
        for kind, name in FILES.items():
            if kind is Point or (self.folder / name).exists():
                valid = valid_reports(read_reports(self.folder, kind), after_step)
                write_atomically(self.folder / name, "".join(f"{report.model_dump_json()}\n" for report in valid))

    def point(self, point: Point) -> None:
        self._append(point)

    def observe(self, observation: Observation | TextSamples) -> None:
        self._append(observation)

    def persist(self) -> None:
        """Hand all lines to the system, and the files with them: this may be the last call."""
        self._close()

    def finish(self, word: LastWord) -> None:
        self._close()
        name = RESULT_NAME if isinstance(word, Result) else ENDING_NAME
        write_atomically(self.folder / name, word.model_dump_json(indent=2) + "\n")

    def _append(self, report: Report) -> None:
        name = FILES[type(report)]
        if name not in self._files:
            self._files[name] = (self.folder / name).open("a")
        self._files[name].write(f"{report.model_dump_json()}\n")

    def _close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}


def read_reports(folder: Path, kind: type[Reported]) -> list[Reported]:
    """Return the reports of that kind in a `FileReporter`'s folder; a last line that a kill cut short is left out."""
    try:
        lines = (folder / FILES[kind]).read_text().splitlines()
    except FileNotFoundError:
        return []
    reports = []
    for number, line in enumerate(lines, start=1):
        try:
            reports.append(kind.model_validate_json(line))
        except ValidationError:
            if number < len(lines):
                raise
    return reports
