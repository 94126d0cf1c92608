"""The answers of an experiment of any kind about itself: its runs, their follow-ups, its result.

A kind is a class beside this one and its line in `registry.py`. Where this answers, ask it and not which kind it is:
queue, pages, files, reports, REST and command line know no kind by its name.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from optim.catalog import Scalar
from orchestrator.design import Cell
from orchestrator.kinds.fields import LimitSeconds
from orchestrator.names import Name
from orchestrator.tuning.tuner import RunFact
from worker.schema import Spec, SpecFault, omit_default
from worker.spec.run import Resources, RunSpec, Workload


class AnswerKind(StrEnum):
    """The kind of an experiment's answer. The tables of pages, figures and reports have a row for each."""

    COMPARISON = "comparison"
    """A leaderboard."""
    LAW = "scaling"
    """A scaling law over cells, each with a leaderboard of its own."""
    FINDINGS = "sweep"
    """The best that a search found for each optimizer."""


class PlannedRun(Spec):
    """A run of an expansion, with its candidate."""

    candidate: str
    spec: RunSpec


@dataclass(frozen=True, kw_only=True)
class RunBudget:
    """The runs of one candidate on one workload."""

    candidate: str
    optimizer: str
    options: Mapping[str, Scalar]
    """The options that all of its runs have."""
    searched: frozenset[str]
    """Hyperparameters that differ from run to run, but for the learning rate."""
    has_rules: bool
    """Whether some blocks keep something else than what the optimizer's plan says."""
    workload: Workload
    runs: int
    """The number of runs, at most if the experiment may grow."""

    def tokens(self) -> int:
        """Return the tokens of all of its runs."""
        return self.runs * self.workload.tokens()


class Experiment(Spec):
    """The specification that a user submits. Every kind has `candidates` and `seeds` as well."""

    title: ClassVar[str]
    """The name of the kind in sentences."""
    run_noun: ClassVar[str] = "run"
    """The name of its runs in sentences."""
    answer: ClassVar[AnswerKind] = AnswerKind.COMPARISON
    has_driver: ClassVar[bool] = False
    """Whether a process of its own adds its runs one after another (`orchestrator/sweeps/driver.py`). Else they are
    there from the submission on, and what follows from them is added once runs have ended."""
    derived_fields: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Paths of fields that are stored but that nobody writes: they follow from others."""

    kind: str
    name: Name
    """The experiment's name in tables."""
    workload: Workload
    """The training, the same for every candidate."""
    resources: Resources = Resources()
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = 0
    """Waiting runs of higher priority start first."""
    max_run_seconds: LimitSeconds | None = omit_default(None)
    """Seconds that one run may use its device, over all attempts; then it stops with a checkpoint."""
    deadline_seconds: LimitSeconds | None = omit_default(None)
    """Seconds from the submission; then runs stop with a checkpoint, or never start."""

    def candidate_faults(self, candidates: Sequence[Any]) -> list[SpecFault]:
        """Return the faults of candidates that every kind has: names that repeat, and resources that do not fit."""
        faults: list[SpecFault] = []
        names = [candidate.name() for candidate in candidates]
        for index, name in enumerate(names):
            if name in names[:index]:
                allowed = f"must differ from the other candidates' names; give it a label other than {name!r}"
                faults.append((("candidates", index, "label"), name, allowed))
        faults += self.resources.misfits(self.workload)
        for index, candidate in enumerate(candidates):
            where = ("candidates", index, "optimizer")
            faults += self.resources.sharding_faults(self.workload, candidate.optimizer, candidate.options, where)
        return faults

    def run_count(self) -> int:
        """Return the number of runs, at most if it grows."""
        return sum(budget.runs for budget in self.run_budgets())

    def run_sum(self) -> str:
        """Return the sum behind that number; empty if there is none."""
        return ""

    @abstractmethod
    def first_runs(self) -> tuple[PlannedRun, ...]:
        """Return the runs that it begins with, in the order of the queue."""

    @abstractmethod
    def run_budgets(self) -> tuple[RunBudget, ...]:
        """Return the runs of each candidate on each workload, in the order of its cells and candidates."""

    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each thing that keeps it from what it is for, though it can be submitted."""
        return ()

    @abstractmethod
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Return (name, value) of what only this kind has, in short: for a list of facts about the experiment."""

    @abstractmethod
    def tuning_method(self) -> str:
        """Return the method of tuning hyperparameters: sentences for a report."""

    @abstractmethod
    def comparison(self, cell: Cell | None = None) -> "Experiment | None":
        """Return the `ComparisonSpec` as which its runs are judged, or those of one of its cells; None if nothing
        can be compared."""

    def step_count(self) -> int:
        """Return the number of steps of all of its runs, at most if it grows."""
        return sum(budget.runs * budget.workload.budget.steps for budget in self.run_budgets())

    def grows(self) -> bool:
        """Return whether runs are added after the submission."""
        return False

    def adds_seeds(self) -> bool:
        """Return whether looks at the results so far add seeds (`analysis.comparison.added_seeds`)."""
        return False

    def follow_up_runs(self, runs: Sequence[RunFact]) -> tuple[PlannedRun, ...]:
        """Return the runs that follow from all of its runs so far; none if it has a driver, which adds them."""
        return ()

    def models(self) -> tuple[str, ...]:
        """Return the trained models, in the order of the runs."""
        return (self.workload.model,)

    def cells(self) -> tuple[Cell, ...]:
        """Return every size at every budget, the smallest first; none if there is one workload."""
        return ()

    def searched_parameters(self, position: int, run: RunSpec) -> dict[str, Scalar]:
        """Return the hyperparameters that were searched, at their values in the run of that position."""
        return {}
