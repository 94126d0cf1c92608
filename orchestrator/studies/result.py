"""The result of a study at one scale, as a small file that is kept, compared and judged anywhere: `result.SCALE.json`.

Those that come with this version stand beside `study.yaml`; one's own in a folder of the study's name in the data
folder's `studies`.
"""

import json
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationError

from optim.catalog.records import Scalar
from orchestrator.analysis.laws.records import FitReport
from orchestrator.errors import OrchestratorError
from orchestrator.records import Difference, Interval, OpenInterval
from orchestrator.studies.study import StudyScale
from worker.files import write_atomically
from worker.records.result import Environment, Finite, Record, Verdict
from worker.words import pluralize


class ResultError(OrchestratorError):
    """A file of a result cannot be read."""


class RunOutcome(Record):
    """The end of a run."""

    candidate: str
    lr: float
    seed: int
    ended: str
    """The result's verdict; the run's state where it has none."""
    loss: Finite | None = None
    """Final validation loss."""
    tokens: int | None = None
    spec_hash: str | None = None
    observed: dict[str, Finite] = Field(default_factory=dict)
    """The values that the study took from the run's probes, or from its result."""
    hyperparameters: dict[str, Scalar] = Field(default_factory=dict)
    """The searched hyperparameters of a sweep's trial."""

    def ended_well(self) -> bool:
        """Return whether there is a trained model."""
        return self.ended == Verdict.CONVERGED and self.loss is not None


class CandidateOutcome(Record):
    """A candidate at its judged setting, as the comparison has it; of a sweep, its best trial.

    Times are no part of it: they depend on what else the machine did.
    """

    candidate: str
    title: str
    is_baseline: bool = False
    best_lr: float | None = None
    edge_of_grid: bool = False
    loss: Interval | None = None
    difference: Difference | None = None
    """The difference to the baseline, paired by seed; negative is better."""
    speed_up: OpenInterval | None = None
    """The ratio of the baseline's tokens for its final loss to this candidate's."""
    lost: int = 0
    """Judged runs that diverged or ran out of memory."""
    state_bytes: int | None = None


def read_rows(value: object) -> object:
    """Return the runs of a part, from the table that files keep: `{"columns": [name, …], "rows": [[value, …], …]}`.

    Anything else is left as it is. Raises ValueError for a row of another length than the columns.
    """
    match value:
        case {"columns": [*columns], "rows": [*rows]} if all(isinstance(name, str) for name in columns):
            return [dict(zip(columns, row, strict=True)) if isinstance(row, list) else row for row in rows]
    return value


class PartResult(Record):
    """An experiment of a study."""

    name: str
    identity: str
    """The identity of its specification (`study.identity`)."""
    complete: bool
    """Whether every run has ended."""
    loss_unit: str = " nats"
    candidates: tuple[CandidateOutcome, ...]
    runs: Annotated[tuple[RunOutcome, ...], BeforeValidator(read_rows)]
    """The judged runs, without those that tuned."""

    def candidate(self, name: str) -> CandidateOutcome | None:
        """Return the candidate of that name."""
        return next((outcome for outcome in self.candidates if outcome.candidate == name), None)

    def runs_of(self, candidate: str) -> tuple[RunOutcome, ...]:
        """Return all runs of a candidate."""
        return tuple(run for run in self.runs if run.candidate == candidate)

    def losses(self, candidate: str) -> dict[int, float]:
        """Return seed → final loss of the candidate's runs that ended well."""
        return {run.seed: run.loss for run in self.runs_of(candidate) if run.ended_well() and run.loss is not None}


class Machine(Environment):
    """The machine of a measurement, without its name."""

    host: str = ""

    def sentence(self) -> str:
        """Return one line for people, without the commit, which the stored result has."""
        parts = [
            f"{self.device_name} ({self.device})",
            f"{pluralize(self.threads, 'thread')} a run",
            f"Python {self.python}",
            f"torch {self.torch}",
            f"transformers {self.transformers}",
        ]
        return ", ".join([*parts, f"driver {self.driver}"] if self.driver else parts)


class StudyResult(Record):
    """All that a study's findings are made of."""

    study: str
    scale: StudyScale
    parts: tuple[PartResult, ...] = ()
    computed: dict[str, Finite] = Field(default_factory=dict)
    """The values that were computed without training, by name."""
    computed_by: str | None = None
    """The version of the computation."""
    fit: FitReport | None = None
    """Scaling laws over the parts, where the study is about them."""
    machines: tuple[Machine, ...] = ()

    def part(self, name: str) -> PartResult | None:
        """Return the part of that name."""
        return next((part for part in self.parts if part.name == name), None)


class Figure(Record):
    """A measured figure with its 95 % interval."""

    metric: str
    candidate: str
    """The subject: a candidate, a role of blocks, a regime."""
    part: str = ""
    """The experiment; empty of a figure over all of them."""
    value: Finite | None
    low: Finite | None = None
    high: Finite | None = None
    n: int | None = None
    """Seeds, or other repetitions."""
    note: str = ""


def interval_figure(
    metric: str, candidate: str, interval: Interval | None, *, part: str = "", note: str = ""
) -> Figure:
    """Return a figure from a mean with its interval; without a value where there is none. Several runs that agree to
    the last digit have no interval, and need none."""
    if interval is None:
        return Figure(metric=metric, candidate=candidate, part=part, value=None, note=note)
    low, high, mean = interval.low, interval.high, interval.mean
    if interval.n > 1 and low is None and high is None:
        low = high = mean
    return Figure(
        metric=metric, candidate=candidate, part=part, value=mean, low=low, high=high, n=interval.n, note=note
    )


def result_path(folder: Path, name: str, scale: StudyScale) -> Path:
    """Return the path of the result of one's own run, below the data folder's `studies`."""
    return folder / name / f"result.{scale.value}.json"


def read_result(path: Path) -> StudyResult | None:
    """Return the result in a file, or None if there is none. Raises `ResultError`."""
    try:
        return StudyResult.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        name = f"{path.parent.name}/{path.name}"
        raise ResultError(f"the file {name} is not a result of a study; remove it, and run the study again") from error


def write_result(path: Path, result: StudyResult) -> None:
    """Write it whole or not at all, runs as a table with a line for each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = result.model_dump(mode="json", exclude_defaults=True)
    defaults = {name: field.get_default(call_default_factory=True) for name, field in RunOutcome.model_fields.items()}
    for part in content.get("parts", []):
        columns = list(dict.fromkeys(name for run in part["runs"] for name in run))
        rows = [[run.get(name, defaults[name]) for name in columns] for run in part["runs"]]
        part["runs"] = {"columns": columns, "rows": rows}
    write_atomically(path, f"{_to_json(content, levels_of_lines=5)}\n")


def _to_json(value: object, *, levels_of_lines: int) -> str:
    """Return JSON whose outer levels have a line for each element: short, and readable where two versions differ."""
    match value:
        case dict() if value and levels_of_lines:
            inner = [f"{json.dumps(k)}: {_to_json(v, levels_of_lines=levels_of_lines - 1)}" for k, v in value.items()]
            return "{\n" + ",\n".join(inner) + "\n}"
        case list() if value and levels_of_lines:
            return "[\n" + ",\n".join(_to_json(v, levels_of_lines=levels_of_lines - 1) for v in value) + "\n]"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
