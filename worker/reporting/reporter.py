"""The port between a training and whoever listens: points while it runs, one result at its end.

Reporter ◄── FileReporter    a folder: runs without a service
         ◄── HttpReporter    the service (worker/reporting/http.py)
         ◄── LoggedReporter  another one, with what people want to read of it in the log

`Reporter` itself tells nobody: it is that of all ranks but the first, which hears the commands and reports for all.
"""

import logging
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from pydantic import ValidationError

from worker.files import write_atomically
from worker.records.protocol import CheckpointNotice, Command, Failure, Stopped
from worker.records.result import Observation, Point, Record, Result, TextSamples
from worker.spec.run import RunSpec
from worker.words import pluralize

logger = logging.getLogger(__name__)

MOST_LOGGED: Final = 50
"""Lines of a log on steps, and as many on evaluations: some 15 kB in all, for a tail of a page."""


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

    def finish(self, result: Result) -> None:
        """Deliver the result, after all points. Unlike the others this may wait for a network."""

    def report_stop(self, stopped: Stopped) -> None:
        """Deliver that a command was obeyed; may wait like `finish`."""

    def fail(self, failure: Failure) -> None:
        """Deliver that the run broke down; may wait like `finish`."""


Report = Point | Observation | TextSamples
"""The report of a step."""
Reported = TypeVar("Reported", Point, Observation, TextSamples)


def valid_reports(reported: list[Reported], after_step: int | None) -> list[Reported]:
    """Return the reports of earlier attempts that the attempt going on after that step does not report again."""
    return [report for report in reported if after_step is not None and report.step <= after_step]


class LoggedReporter(Reporter):
    """Hands on to another reporter what it is told, and writes the story of the training into the log: a bounded number
    of lines, however long the training is."""

    def __init__(self, reporter: Reporter, spec: RunSpec) -> None:
        self._reporter = reporter
        self._steps = spec.workload.budget.steps
        self._unit = spec.workload.task.batch_unit
        self._loss_name = spec.workload.task.loss_name
        batch, length = spec.workload.budget.batch_sequences, spec.workload.data.sequence_length_tokens
        self._step_tokens = batch * length
        self._what = (
            f"{spec.workload.model} with {spec.optimizer.name} at learning rate {spec.optimizer.lr:g}, "
            f"seed {spec.seed}: {pluralize(self._steps, 'step')} of {self._step_tokens} {self._unit}"
        )
        evaluations = self._steps // spec.workload.evaluation.every_steps + 2
        self._evaluations_a_line = -(-evaluations // MOST_LOGGED)
        self._evaluations = 0
        self._step = 0
        self._checkpoint_step: int | None = None

    def begin(self, after_step: int | None) -> None:
        """Say what is trained, and from where on."""
        logger.info("training %s, %s", self._what, f"going on after step {after_step}" if after_step else "from step 0")
        self._reporter.begin(after_step)

    def command(self) -> Command:
        return self._reporter.command()

    def point(self, point: Point) -> None:
        """Tell of some steps and evaluations."""
        self._reporter.point(point)
        is_last = point.step >= self._steps
        if point.val_loss is not None:
            if self._evaluations % self._evaluations_a_line == 0 or is_last:
                logger.info("step %d of %d: %s %.4f", point.step, self._steps, self._loss_name, point.val_loss)
            self._evaluations += 1
        is_due = point.step * MOST_LOGGED // self._steps > self._step * MOST_LOGGED // self._steps
        self._step = point.step
        if point.step and (is_due or is_last):
            share = 100 * point.step // self._steps
            logger.info("step %d of %d (%d %%): %s", point.step, self._steps, share, self._describe(point))

    def _describe(self, point: Point) -> str:
        seconds, loss, rate, norm = point.step_seconds, point.train_loss, point.lr, point.grad_norm
        figures = [
            "training loss is no number" if loss is None else f"training loss {loss:.4f}",
            "" if rate is None else f"learning rate {rate:.3g}",
            "" if norm is None else f"gradient norm {norm:.3g}",
            "" if not seconds else f"{1000 * seconds:.1f} ms a step, {self._step_tokens / seconds:,.0f} {self._unit}/s",
            "" if self._checkpoint_step is None else f"checkpoint of step {self._checkpoint_step}",
        ]
        return ", ".join(filter(None, figures))

    def observe(self, observation: Observation | TextSamples) -> None:
        """Hand it on: the run's page shows it."""
        self._reporter.observe(observation)

    def persist(self) -> None:
        self._reporter.persist()

    def checkpoint(self, notice: CheckpointNotice) -> None:
        """Remember it for the next line: checkpoints come every few seconds."""
        self._reporter.checkpoint(notice)
        self._checkpoint_step = notice.step

    def note(self, text: str) -> None:
        """Log it, and hand it on."""
        logger.warning("%s", text)
        self._reporter.note(text)

    def finish(self, result: Result) -> None:
        """Say what came of it, once it is delivered."""
        peak, parts = result.peak_memory, result.memory_breakdown
        figures = [
            "" if parts is None else f"{parts.peak_bytes / 1e6:,.1f} MB of tensors",
            "" if peak.allocator_bytes is None else f"{peak.allocator_bytes / 1e6:,.1f} MB allocated",
            f"{peak.host_rss_bytes / 1e6:,.0f} MB of the process on the host",
        ]
        state_mb = result.optimizer_state_bytes / 1e6
        logger.info("peak memory: %s; optimizer state %.1f MB", ", ".join(filter(None, figures)), state_mb)
        self._reporter.finish(result)
        logger.info(
            "ended after %s, %.1f s of its device: %s",
            pluralize(result.steps, "step"),
            result.device_seconds,
            result.verdict_reason,
        )

    def report_stop(self, stopped: Stopped) -> None:
        self._reporter.report_stop(stopped)
        logger.info("stopped at step %d: %s", stopped.step, stopped.command.value)

    def fail(self, failure: Failure) -> None:
        """Hand it on: why is in the log already."""
        self._reporter.fail(failure)


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
    checkpoints and notes the checkpoint folder and the log tell."""

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

    def finish(self, result: Result) -> None:
        self._end(RESULT_NAME, result)

    def report_stop(self, stopped: Stopped) -> None:
        self._end(ENDING_NAME, stopped)

    def fail(self, failure: Failure) -> None:
        self._end(ENDING_NAME, failure)

    def _end(self, name: str, record: Record) -> None:
        self._close()
        write_atomically(self.folder / name, record.model_dump_json(indent=2) + "\n")

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
