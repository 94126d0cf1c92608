"""Evidence: what a study measured at one scale, as a small record that can be kept, compared and judged anywhere."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from optim.catalog.records import Scalar
from orchestrator.analysis.laws.records import FitReport
from orchestrator.records import Difference, Interval, OpenInterval
from worker.records.result import Finite, Record
from worker.words import pluralize


class StudyScale(StrEnum):
    """How large a study is made."""

    TINY = "tiny"
    """Minutes on two CPU cores: it shows the mechanism, and says nothing about large models."""
    MIDDLE = "middle"
    """Hours on two CPU cores: small models on at least 20 tokens for each parameter, as compute-optimal ones get."""
    PAPER = "paper"
    """The paper's setting, for GPUs."""


class RunOutcome(Record):
    """How one run ended."""

    candidate: str
    lr: float
    seed: int
    ended: str
    """The result's verdict; the run's state where it has none."""
    loss: Finite | None = None
    """Final validation loss."""
    parameters: int | None = None
    tokens: int | None = None
    spec_hash: str | None = None
    observed: dict[str, Finite] = Field(default_factory=dict)
    """What the study took from the run's probes, or from its result."""
    hyperparameters: dict[str, Scalar] = Field(default_factory=dict)
    """Of a sweep's trial: those that were looked for."""


class CandidateOutcome(Record):
    """One candidate at its best learning rate, as the comparison has it; of a sweep, its best trial.

    Times are no part of it: they depend on what else the machine did.
    """

    candidate: str
    title: str
    is_baseline: bool = False
    best_lr: float | None = None
    edge_of_grid: bool = False
    loss: Interval | None = None
    difference: Difference | None = None
    """To the baseline, paired by seed; negative is better."""
    speed_up: OpenInterval | None = None
    """How many times fewer tokens than the baseline for its final loss."""
    lost: int = 0
    """Runs at the best rate that diverged or ran out of memory."""
    baseline_lost: int = 0
    """The same of the baseline: where both lost some, neither is shown to be the worse."""
    state_bytes: int | None = None


def read_rows(value: object) -> object:
    """The runs of a part, from the table that files keep: `{"columns": [name, …], "rows": [[value, …], …]}`.

    Anything else is left as it is. Raises ValueError for a row of another length than the columns.
    """
    match value:
        case {"columns": [*columns], "rows": [*rows]} if all(isinstance(name, str) for name in columns):
            return [dict(zip(columns, row, strict=True)) if isinstance(row, list) else row for row in rows]
    return value


class PartEvidence(Record):
    """One experiment of a study."""

    name: str
    spec_hash: str
    complete: bool
    """Whether every run has ended."""
    loss_unit: str = " nats"
    candidates: tuple[CandidateOutcome, ...]
    runs: Annotated[tuple[RunOutcome, ...], BeforeValidator(read_rows)]

    def candidate(self, name: str) -> CandidateOutcome | None:
        """The candidate of that name."""
        return next((each for each in self.candidates if each.candidate == name), None)

    def runs_of(self, candidate: str) -> tuple[RunOutcome, ...]:
        """All runs of a candidate."""
        return tuple(run for run in self.runs if run.candidate == candidate)


class Machine(Record):
    """Where something was measured."""

    device: str
    device_name: str
    threads: int
    python: str
    torch: str
    transformers: str
    platform: str
    cuda: str | None = None
    driver: str | None = None
    commit: str | None = None

    def sentence(self, commits: Sequence[str] = ()) -> str:
        """One line for people. `commits`: of the code that was measured, where it was more than this one."""
        commits = commits or ([self.commit] if self.commit else [])
        parts = [
            f"{self.device_name} ({self.device})",
            f"{pluralize(self.threads, 'thread')} a run",
            f"Python {self.python}",
        ]
        parts += [f"torch {self.torch}", f"transformers {self.transformers}"]
        parts += [f"driver {self.driver}"] if self.driver else []
        parts += (
            [f"commit{'s' if len(commits) > 1 else ''} {' '.join(each[:12] for each in commits)}"] if commits else []
        )
        return ", ".join(parts)


def machine_sentences(machines: Iterable[Machine]) -> tuple[str, ...]:
    """A line a machine, with all commits that were measured on it."""
    commits: dict[Machine, list[str]] = {}
    for each in machines:
        found = commits.setdefault(each.model_copy(update={"commit": None}), [])
        found += [each.commit] if each.commit else []
    return tuple(machine.sentence(measured) for machine, measured in commits.items())


class Evidence(Record):
    """All that a verdict is made of."""

    study: str
    scale: StudyScale
    parts: tuple[PartEvidence, ...] = ()
    computed: dict[str, Finite] = Field(default_factory=dict)
    """What was computed without training, by name."""
    computed_by: str | None = None
    """A hash of how: equal hashes mean the same computation."""
    fit: FitReport | None = None
    """Scaling laws over the parts, where the study is about them."""
    machines: tuple[Machine, ...] = ()
    withdrawn: str | None = None
    """Of a published result: why it may not be relied on until it is run anew; null where it may."""

    def part(self, name: str) -> PartEvidence | None:
        """The part of that name."""
        return next((each for each in self.parts if each.name == name), None)
