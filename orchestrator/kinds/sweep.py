"""Sweeps: what a user submits to find good hyperparameters, each optimizer with a typed search space of its own.

Every optimizer gets the same number of trials: fairness is equal tuning. Trials are numbered, and take turns: of C
candidates, trial n is number n // C of candidate n % C. Each trial is one run of the store; which ones follow is found
while the sweep goes, by its driver (`orchestrator/sweeps/driver.py`).
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from optim import catalog
from optim.catalog import OptimizerEntry, Scalar
from orchestrator.design import Cell
from orchestrator.kinds.block_rules import PLAN, PREFIX, SUGGESTED, is_rule, pattern_fault, value_fault, values_of
from orchestrator.kinds.experiment import AnswerKind, Experiment, PlannedRun, RunBudget
from orchestrator.kinds.fields import NamedOptimizer, write_out_schedule
from orchestrator.tuning.line import LARGEST_RATE
from orchestrator.tuning.search_spaces import (
    Choice,
    Domain,
    FromCatalog,
    Range,
    ends,
    grid_size,
    settings_count,
    suggested_range,
    suggested_rates,
)
from worker.schema import SpecFault, is_stored, raise_faults
from worker.spec.run import (
    LearningRate,
    RunSpec,
    Seed,
    Workload,
    averaging_faults,
    option_faults,
)
from worker.words import pluralize

Algorithm = Literal["random", "grid", "tpe", "asha", "tpe-hyperband"]
LR = "lr"
WARMUP = "warmup_steps"
"""Hyperparameters that are not options of the optimizer."""
MOST_TRIALS = 1_000
"""The most trials of a sweep: a driver that is started again reports all of them to Tune once more, a few tenths of a
second each."""
DEFAULT_TRIALS = 16
STOPPING = frozenset({"asha", "tpe-hyperband"})
"""Algorithms that end trials before their budget."""


class SearchedCandidate(NamedOptimizer):
    """An optimizer of a sweep."""

    lr: LearningRate | None = None
    """The learning rate, if `space` has none; null: the centre of the catalog's grid."""
    space: Annotated[dict[str, Domain], Field(min_length=1, max_length=16)]
    """Domains of `lr`, `warmup_steps`, options of the optimizer, or `rule:PATTERN` (moments of the matching blocks).
    Default: `lr`, around the centre of the catalog's grid."""

    @model_validator(mode="before")
    @classmethod
    def _write_out_ranges(cls, fields: Any) -> Any:
        """Write out what the catalog suggests: a stored sweep must mean the same when the catalog has changed."""
        if is_stored() or not isinstance(fields, dict) or not catalog.knows(str(fields.get("optimizer"))):
            return fields
        fields = write_out_schedule(fields)
        entry, space = catalog.entry(fields["optimizer"]), fields.get("space")
        space = {LR: {"kind": "catalog"}} if space is None else space
        if not isinstance(space, dict):
            return fields
        return fields | {"space": {name: _explicit_range(entry, name, domain) for name, domain in space.items()}}

    @model_validator(mode="after")
    def _require_catalog_fit(self) -> Self:
        if is_stored():
            return self
        faults = option_faults(self.optimizer, self.options, self.rules)
        for name, domain in self.space.items() if catalog.find(self.optimizer) else ():
            faults += [(("space", name, *path), value, allowed) for path, value, allowed in self._misfits(name, domain)]
        raise_faults(type(self).__name__, faults)
        return self

    def _misfits(self, name: str, domain: Domain) -> list[SpecFault]:
        if is_rule(name):
            return self._rule_misfits(name, domain)
        option = catalog.entry(self.optimizer).option(name)
        if name not in (LR, WARMUP) and option is None:
            entry = catalog.entry(self.optimizer)
            names = ", ".join((LR, WARMUP, *(option.name for option in entry.options)))
            names += f", {PREFIX}PATTERN" if entry.has_plan else ""
            return [((), name, f"unknown hyperparameter of {self.optimizer}; known: {names}")]
        if name in self.options or (name == LR and self.lr is not None):
            return [((), name, "is held fixed as well; take it out of one of the two")]
        if isinstance(domain, FromCatalog):
            default = "none" if option is None else f"{option.default}"
            return [((), "catalog", f"has no range of its own in the catalog (its default is {default}); name one")]
        wrong = [(value, fault) for value in ends(domain) if (fault := self._fault(name, value))]
        return [((), value, fault) for value, fault in wrong[:1]]

    def _rule_misfits(self, name: str, domain: Domain) -> list[SpecFault]:
        """Return the faults of a search for the state of some blocks."""
        if not catalog.entry(self.optimizer).has_plan:
            return [((), name, f"cannot be searched: {self.optimizer} keeps to no block plan")]
        if (fault := pattern_fault(name)) is not None:
            return [((), name, fault)]
        if values_of([name], self.rules)[name] != PLAN:
            return [((), name, "is held fixed by rules as well; take it out of one of the two")]
        if not isinstance(domain, Choice):
            return [((), domain.kind, f"must be a choice of what the blocks keep, like {', '.join(SUGGESTED)}")]
        wrong = [(value, fault) for value in domain.values if (fault := value_fault(name, value))]
        return [((), value, fault) for value, fault in wrong[:1]]

    def _fault(self, name: str, value: Scalar) -> str | None:
        if name == LR:
            fine = not isinstance(value, bool) and isinstance(value, int | float) and 0 < value <= LARGEST_RATE
            return None if fine else f"must be a number in (0, {LARGEST_RATE:g}]"
        if name == WARMUP:
            fine = isinstance(value, int) and not isinstance(value, bool) and value >= 0
            return None if fine else "must be a whole number, at least 0"
        option = catalog.entry(self.optimizer).option(name)
        assert option is not None  # unknown names are refused before
        return option.fault(value)

    def ranges(self) -> dict[str, Range]:
        """Return the space of a valid candidate, in one order however it was written: the learning rate first."""
        named = sorted(self.space.items(), key=lambda item: (item[0] != LR, item[0] != WARMUP, item[0]))
        return {name: domain for name, domain in named if not isinstance(domain, FromCatalog)}

    def defaults(self, workload: Workload) -> dict[str, Scalar]:
        """Return the searched hyperparameters at their default values, without those that the catalog no longer
        knows."""
        if (entry := catalog.find(self.optimizer)) is None:
            return {}
        usual = entry.defaults() | {LR: entry.learning_rate, WARMUP: workload.schedule.warmup_steps}
        usual |= dict.fromkeys(filter(is_rule, self.ranges()), PLAN)
        return {name: usual[name] for name in self.ranges() if name in usual}

    def parameters_of(self, run: RunSpec) -> dict[str, Scalar]:
        """Return the hyperparameters that a trial's run has."""
        values = {**run.optimizer.options, LR: run.optimizer.lr, WARMUP: run.workload.schedule.warmup_steps}
        values |= values_of(self.ranges(), run.optimizer.rules)
        return {name: values[name] for name in self.ranges()}

    def grid_size(self) -> int:
        """Return the number of points of a grid over the space."""
        return grid_size(self.ranges().values())


class SweepSpec(Experiment):
    """Good hyperparameters of each optimizer on this workload."""

    title: ClassVar[str] = "sweep"
    run_noun: ClassVar[str] = "trial"
    answer: ClassVar[AnswerKind] = AnswerKind.FINDINGS
    has_driver: ClassVar[bool] = True

    kind: Literal["sweep"] = "sweep"
    candidates: Annotated[tuple[SearchedCandidate, ...], Field(min_length=1, max_length=16)]
    algorithm: Algorithm = "tpe"
    trials: Annotated[int, Field(strict=True, ge=1, le=MOST_TRIALS)] | None = None
    """Trials of each optimizer. Default: 16; of a grid all of its points."""
    concurrency: Annotated[int, Field(strict=True, ge=1, le=64)] = 2
    """Trials at a time. With more, TPE knows less when it chooses."""
    seed: Seed = 0
    """Seed of the search and of every trial."""

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        if not is_stored():
            faults = [*self.candidate_faults(self.candidates), *self._size_faults(), *self._step_faults()]
            raise_faults(type(self).__name__, faults)
        return self

    def _size_faults(self) -> list[SpecFault]:
        faults: list[SpecFault] = []
        if self.algorithm == "grid":
            sizes = [candidate.grid_size() for candidate in self.candidates]
            for index, size in enumerate(sizes):
                if size != sizes[0]:
                    allowed = f"makes a grid of {size} points, the first candidate's has {sizes[0]}: tune them equally"
                    faults.append((("candidates", index, "space"), size, allowed))
                elif self.trials is not None and self.trials < size:
                    allowed = f"must be at least {size}, the points of the grid; or leave it out, or set fewer points"
                    faults.append((("trials",), self.trials, allowed))
        if (count := self.run_count()) > MOST_TRIALS:
            allowed = f"makes {count} trials over all candidates; at most {MOST_TRIALS} in one sweep"
            faults.append((("trials",), self.trials, allowed))
        return list({fault[0]: fault for fault in faults}.values())

    def _step_faults(self) -> list[SpecFault]:
        faults: list[SpecFault] = []
        steps = self.workload.budget.steps
        for index, candidate in enumerate(self.candidates):
            domain = candidate.ranges().get(WARMUP)
            warmups = [end for end in (ends(domain) if domain else ()) if isinstance(end, int) and end >= steps]
            if warmups:
                location = ("candidates", index, "space", WARMUP)
                faults.append((location, warmups[-1], f"must be below workload.budget.steps = {steps}"))
            if candidate.schedule is not None:
                faults += candidate.schedule.faults(self.workload, ("candidates", index, "schedule"))
            faults += averaging_faults(self.workload.ema_decay, candidate.optimizer, ("workload", "ema_decay"))
        return faults

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the one seed, where others have several."""
        return (self.seed,)

    def trials_each(self) -> int:
        """Return the number of trials of each candidate."""
        if self.algorithm == "grid":
            return self.candidates[0].grid_size()
        return self.trials or DEFAULT_TRIALS

    def first_runs(self) -> tuple[PlannedRun, ...]:
        """Return none: its driver adds the trials, one after another."""
        return ()

    def grows(self) -> bool:
        """Return true."""
        return True

    def run_budgets(self) -> tuple[RunBudget, ...]:
        """Return the budget of each candidate."""
        return tuple(
            RunBudget(
                candidate=searched.name(),
                optimizer=searched.optimizer,
                options=searched.options,
                searched=frozenset(searched.space),
                has_rules=bool(searched.rules),
                workload=self.workload,
                runs=self.trials_each(),
            )
            for searched in self.candidates
        )

    def grace_steps(self) -> int:
        """Return the first rung of early stopping: a ninth of the budget, at least one evaluation."""
        return max(self.workload.evaluation.every_steps, self.workload.budget.steps // 9, 1)

    def may_stop_early(self) -> bool:
        """Return whether a trial may be ended before its budget."""
        return self.algorithm in STOPPING

    def candidate_of(self, number: int) -> SearchedCandidate:
        """Return the candidate of that trial."""
        return self.candidates[number % len(self.candidates)]

    def comparison(self, cell: Cell | None = None) -> None:
        """Return None: its trials have one seed and say nothing of chance."""

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Return the algorithm and its trials."""
        return (
            (
                "sweep",
                f"{self.algorithm}, {pluralize(self.run_count(), 'trial')}, {self.trials_each()} of each optimizer",
            ),
        )

    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each candidate whose space has fewer settings than it has trials."""
        trials = self.trials_each()
        counts = {candidate.name(): settings_count(candidate.ranges().values()) for candidate in self.candidates}
        return tuple(
            f"{trials} trials of {name}, but its space has only {pluralize(int(count), 'different setting')}: others "
            "repeat. Ask for fewer trials, or widen the space."
            for name, count in counts.items()
            if count < trials
        )

    def tuning_method(self) -> str:
        """Return the algorithm, its trials and their seed."""
        return f"{self.algorithm}, {pluralize(self.trials_each(), 'trial')} of each optimizer, all on seed {self.seed}."

    def searched_parameters(self, position: int, run: RunSpec) -> dict[str, Scalar]:
        """Return the searched hyperparameters of the trial of that number."""
        return self.candidate_of(position).parameters_of(run)


def _explicit_range(entry: OptimizerEntry, name: object, domain: object) -> object:
    """Return a range instead of `kind: catalog`, where the catalog has one."""
    if domain != {"kind": "catalog"} and not isinstance(domain, FromCatalog):
        return domain
    if is_rule(name):
        return Choice(values=SUGGESTED).model_dump()
    option = entry.option(str(name))
    suggested = suggested_rates(entry.learning_rate) if name == LR else suggested_range(option) if option else None
    return domain if suggested is None else suggested.model_dump()
