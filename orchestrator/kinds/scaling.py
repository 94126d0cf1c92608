"""Scaling experiments: one workload at several model sizes and token budgets, a comparison at each of them.

    sizes × budgets = cells;   a cell × candidates × learning rates × seeds = a comparison (`comparison.py`)

The workload is a template: its model and its steps are those of the first cell, and nobody writes them. All cells' runs
belong to one experiment; which cell a run belongs to, its model and its steps say. Every cell tunes as a comparison
does.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from orchestrator.design import Cell
from orchestrator.kinds.comparison import ComparisonSpec, TunedExperiment
from orchestrator.kinds.experiment import AnswerKind, PlannedRun, RunBudget
from orchestrator.kinds.fields import LearningRates
from orchestrator.kinds.tuning import Tuning
from orchestrator.tuning.tuner import RunFact
from worker.catalog import datasets as data_catalog
from worker.catalog import presets
from worker.catalog.presets import parameter_count
from worker.schema import WHOLE_NUMBER, Spec, SpecFault, is_stored, raise_faults, require_known
from worker.spec.run import Workload

MOST_STEPS = 1_000_000_000
"""The bound of `worker.schema.Count`."""
TOKENS = 1e18
"""More than anybody will train on; a larger number is a mistake."""


class Size(Spec):
    """A model of a scaling experiment."""

    model: str
    micro_batch_sequences: Annotated[int, Field(strict=True, ge=1, le=65_536)] | Literal["auto"] | None = None
    """The micro-batch as in `execution`, for this size; null: the workload's."""
    learning_rates: dict[str, LearningRates] = Field(default_factory=dict)
    """Candidate's name → its learning rates at this size."""

    @field_validator("model")
    @classmethod
    def _require_known_model(cls, value: str) -> str:
        return require_known("model", value, presets.names())


class TokenBudget(Spec):
    """The training budget of each size: give one of the two."""

    tokens: Annotated[int, Field(ge=1, le=TOKENS), WHOLE_NUMBER] | None = None
    tokens_per_parameter: Annotated[float, Field(strict=True, gt=0, le=1e6)] | None = None

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        if (self.tokens is None) == (self.tokens_per_parameter is None):
            budget = self.model_dump(exclude_none=True)
            raise_faults("TokenBudget", [((), budget, "must have either tokens or tokens_per_parameter")])
        return self

    def tokens_for(self, parameters: int) -> float:
        """Return the tokens for a model with so many parameters."""
        return float(self.tokens) if self.tokens is not None else (self.tokens_per_parameter or 0.0) * parameters


class ScalingSpec(TunedExperiment):
    """The fall of the loss with size and data for each optimizer: a law with intervals and predictions."""

    title: ClassVar[str] = "scaling experiment"
    answer: ClassVar[AnswerKind] = AnswerKind.LAW
    derived_fields: ClassVar[tuple[tuple[str, ...], ...]] = (("workload", "model"), ("workload", "budget", "steps"))

    kind: Literal["scaling"] = "scaling"
    tuning: Tuning | None = None
    """Tune the learning rate first, in every cell. Default: every seed at every rate in every cell."""
    sizes: Annotated[tuple[Size, ...], Field(min_length=1, max_length=32)]
    budgets: Annotated[tuple[TokenBudget, ...], Field(min_length=1, max_length=32)]
    warmup_share: Annotated[float, Field(strict=True, ge=0, lt=1)] | None = None
    """Warm-up as a share of each run's steps; null: `workload.schedule.warmup_steps` of every run."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_first_cell(cls, fields: Any) -> Any:
        """Return the workload with model and steps of the first cell, so that it is a whole one."""
        if is_stored() or not isinstance(fields, dict) or not isinstance(fields.get("workload"), dict):
            return fields
        template = fields["workload"]
        if not isinstance(template.get("budget", {}), dict):
            return fields
        model, steps = _first_cell(fields)
        faults: list[SpecFault] = []
        if template.get("model", model) != model:
            faults.append((("workload", "model"), template["model"], "is said by sizes; leave it out here"))
        if template.get("budget", {}).get("steps", steps) != steps:
            allowed = "follows from budgets; leave it out here"
            faults.append((("workload", "budget", "steps"), template["budget"]["steps"], allowed))
        raise_faults(cls.__name__, faults)
        return fields | {"workload": _complete_workload(template, model, steps)}

    def further_faults(self) -> list[SpecFault]:
        """Return the faults of sizes, budgets, and the cells that they make."""
        faults: list[SpecFault] = []
        names = {candidate.name() for candidate in self.candidates}
        for position, size in enumerate(self.sizes):
            if size.model in [earlier_size.model for earlier_size in self.sizes[:position]]:
                faults.append((("sizes", position, "model"), size.model, "is given twice; each must differ"))
            for name in size.learning_rates.keys() - names:
                allowed = f"no candidate has that name; known: {', '.join(sorted(names))}"
                faults.append((("sizes", position, "learning_rates", name), name, allowed))
        if self.tuning is not None and self.tuning.search:
            allowed = "must be left out: scaling experiments tune the learning rate alone"
            faults.append((("tuning", "search"), list(self.tuning.search), allowed))
        if self.warmup_share is not None and (steps := self.workload.schedule.warmup_steps):
            allowed = "must be left out where warmup_share says the warm-up of each run"
            faults.append((("workload", "schedule", "warmup_steps"), steps, allowed))
        if not self.workload.task.loss_unit:
            allowed = f"measures {self.workload.task.loss_name}, which has no scaling law in nats"
            faults.append((("workload", "task"), self.workload.task.kind, allowed))
        return faults or self._cell_training_faults()

    def _cell_training_faults(self) -> list[SpecFault]:
        faults: list[SpecFault] = []
        for position, size in enumerate(self.sizes):
            steps = [cell.steps for cell in self.cells() if cell.model == size.model]
            for step_count, next_count in pairwise(sorted(steps)):
                if step_count == next_count:
                    allowed = f"two budgets are {step_count} steps of {size.model}; each must differ"
                    faults.append((("budgets",), len(self.budgets), allowed))
            for cell in self.cells():
                if cell.model != size.model:
                    continue
                if not 1 <= cell.steps <= MOST_STEPS:
                    allowed = f"is {cell.steps} steps of {size.model}; must be 1 to {MOST_STEPS:,}"
                    faults.append((("budgets",), len(self.budgets), allowed))
                    continue
                try:
                    spec = self.comparison(cell)
                    type(spec)(**dict(spec))
                except ValidationError as error:
                    messages = "; ".join(fault["msg"] for fault in error.errors())
                    faults.append(
                        (("sizes", position), size.model, f"cannot be trained for {cell.steps} steps: {messages}")
                    )
        return faults

    def first_runs(self) -> tuple[PlannedRun, ...]:
        """Return the runs of every cell, or of its tuning, seed by seed and small models first, so that early results
        already span the sizes."""
        by_cell = [self.comparison(cell).first_runs() for cell in self.cells()]
        seeds = self.tuning.seeds if self.tuning else self.seeds
        return tuple(run for seed in seeds for runs in by_cell for run in runs if run.spec.seed == seed)

    def run_budgets(self) -> tuple[RunBudget, ...]:
        """Return the budget of each candidate in each cell."""
        return tuple(budget for cell in self.cells() for budget in self.comparison(cell).run_budgets())

    def cells(self) -> tuple[Cell, ...]:
        """Return every size at every budget, the smallest model first, each with its smallest budget first."""
        step_tokens = self.workload.budget.batch_sequences * self.workload.data.sequence_length_tokens
        vocabulary = data_catalog.vocabulary_size(self.workload.data.tokenizer)
        cells = []
        for size in self.sizes:
            parameters = parameter_count(presets.preset(size.model), vocabulary)
            for budget in self.budgets:
                steps = round(budget.tokens_for(parameters) / step_tokens)
                tokens = steps * step_tokens
                cells.append(Cell(model=size.model, steps=steps, parameters=parameters, tokens=tokens))
        return tuple(sorted(cells, key=lambda cell: (cell.parameters, cell.model, cell.steps)))

    def models(self) -> tuple[str, ...]:
        """Return the smallest first."""
        return tuple(dict.fromkeys(cell.model for cell in self.cells()))

    def follow_up_runs(self, runs: Sequence[RunFact]) -> tuple[PlannedRun, ...]:
        """Return the next runs of each cell."""
        return tuple(
            planned
            for cell in self.cells()
            for planned in self.comparison(cell).follow_up_runs(
                [run for run in runs if cell.holds(run.model, run.steps)]
            )
        )

    def comparison(self, cell: Cell | None = None) -> ComparisonSpec:
        """Return the comparison at one size and budget; without a cell at the largest ones. Nothing is checked: each
        cell was, with the whole."""
        cell = cell or self.cells()[-1]
        base_workload, execution = self.workload, self.workload.execution
        size = next(size for size in self.sizes if size.model == cell.model)
        if size.micro_batch_sequences is not None:
            execution = execution.model_copy(update={"micro_batch_sequences": size.micro_batch_sequences})
        schedule = base_workload.schedule
        if self.warmup_share is not None:
            warmup = min(round(self.warmup_share * cell.steps), cell.steps - 1)
            schedule = schedule.model_copy(update={"warmup_steps": warmup})
        budget = base_workload.budget.model_copy(update={"steps": cell.steps})
        changed = {"model": cell.model, "schedule": schedule, "budget": budget, "execution": execution}
        workload = base_workload.model_copy(update=changed)
        return ComparisonSpec.model_construct(
            name=f"{self.name[:60]} · {cell.model} · {workload.tokens():,} tokens",
            workload=workload,
            candidates=tuple(
                candidate
                if (rates := size.learning_rates.get(candidate.name())) is None
                else candidate.model_copy(update={"learning_rates": rates})
                for candidate in self.candidates
            ),
            tuning=self.tuning,
            seeds=self.seeds,
            baseline=self.baseline,
            equivalence_margin=self.equivalence_margin,
            all_pairs=self.all_pairs,
            resources=self.resources,
            priority=self.priority,
        )


def _complete_workload(template: Mapping[str, Any], model: str, steps: int) -> dict[str, Any]:
    """Return a template of a workload with its model and its steps."""
    return {**template, "model": model, "budget": {**template.get("budget", {}), "steps": steps}}


def _first_cell(fields: Mapping[str, Any]) -> tuple[str, int]:
    """Return the first cell's model and steps; if the fields are faulty, a cell that lets their own faults be shown."""
    model, steps = presets.names()[0], MOST_STEPS
    try:
        sizes = [Size.model_validate(size) for size in fields["sizes"]]
        model = sizes[0].model
        budgets = [TokenBudget.model_validate(budget) for budget in fields["budgets"]]
        template = fields["workload"]
        workload = Workload.model_validate(_complete_workload(template, model, MOST_STEPS))
        vocabulary = data_catalog.vocabulary_size(workload.data.tokenizer)
        parameters = parameter_count(presets.preset(model), vocabulary)
        steps = round(budgets[0].tokens_for(parameters) / (workload.tokens() / MOST_STEPS))
    except (ValidationError, KeyError, TypeError, IndexError):
        pass
    return model, min(max(steps, 1), MOST_STEPS)
