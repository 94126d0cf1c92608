"""What an experiment of any kind answers for itself: its runs, whether they become more, what they ask for.

A kind is a class beside this one, its line in `kind.py`, and its place in the lists that CONTRIBUTING.md names. Where
this answers, ask it and not which kind it is.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from optim.catalog import Scalar
from worker.schema import Spec
from worker.spec.run import RunSpec, Workload


class PlannedRun(Spec):
    """One run of an expansion, with the candidate that it belongs to."""

    candidate: str
    spec: RunSpec


@dataclass(frozen=True, kw_only=True)
class Share:
    """The runs of one candidate on one workload."""

    candidate: str
    optimizer: str
    options: Mapping[str, Scalar]
    """Those that all of its runs have."""
    searched: frozenset[str]
    """Hyperparameters that differ from run to run, but for the learning rate."""
    has_rules: bool
    """Whether some blocks keep something else than what the optimizer's plan says."""
    workload: Workload
    runs: int
    """At most, where the experiment may grow."""

    def tokens(self) -> int:
        """Of all of its runs."""
        return self.runs * self.workload.tokens()


class Experiment(Spec):
    """What a user submits."""

    title: ClassVar[str]
    """What sentences call the kind."""
    run_noun: ClassVar[str] = "run"
    """What sentences call one of its runs."""

    @abstractmethod
    def run_count(self) -> int:
        """How many runs there will be, at most where it grows."""

    @abstractmethod
    def first_runs(self) -> tuple[PlannedRun, ...]:
        """The runs that it begins with, in the order of the queue."""

    @abstractmethod
    def grows(self) -> bool:
        """Whether runs are added after the submission."""

    @abstractmethod
    def shares(self) -> tuple[Share, ...]:
        """What it asks for: the runs of each candidate on each workload, in the order of its cells and candidates."""

    @abstractmethod
    def may_need_less(self) -> bool:
        """Whether `run_count`, and what the runs do, are upper bounds: tuning may need fewer rates, a sweep stops
        trials early or runs out of its device-hours."""

    def device_hours_budget(self) -> float | None:
        """What it gives itself: it begins nothing that would not fit any more. None: it has no such limit."""
        return None

    def models(self) -> tuple[str, ...]:
        """What is trained, in the order of the runs."""
        return tuple(dict.fromkeys(share.workload.model for share in self.shares()))
