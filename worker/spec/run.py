"""Specifications of training: `RunSpec`, the frozen, hashable description of one run.

A spec is validated once, at the border, with every fault named; afterwards it is trusted. It imports no torch.

    RunSpec  = Workload (equal between compared optimizers) + OptimizerSpec + seed + Resources
    Workload = a task (task.py) + the parts that every task has (parts.py)
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from optim import catalog
from optim.catalog import Scalar
from worker.catalog import datasets as data_catalog
from worker.catalog import presets
from worker.schema import Spec, SpecFault, canonical_json, is_stored, omit_default, raise_faults, require_known
from worker.spec.parts import MOST_SAMPLED_EVALUATIONS
from worker.spec.parts import Budget as Budget
from worker.spec.parts import DataSpec as DataSpec
from worker.spec.parts import EmaDecay as EmaDecay
from worker.spec.parts import Evaluation as Evaluation
from worker.spec.parts import Execution as Execution
from worker.spec.parts import Precision as Precision
from worker.spec.parts import Probes as Probes
from worker.spec.parts import Samples as Samples
from worker.spec.parts import Schedule as Schedule
from worker.spec.task import LINEAR_MODEL, AnyTask, PretrainTask, defaults_of, fill_defaults

Seed = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]
_WHAT = r"(?:full|low-rank|none|rank:[1-9][0-9]*|per:(?:element|row|neuron|head))"
RuleText = Annotated[str, Field(max_length=200, pattern=rf"^[!-~]+={_WHAT}(?:,{_WHAT})*$")]
"""The state of some blocks instead of the plan's, `*.mlp.*.weight=rank:8`; as in `adapm-bench models --rule`."""
Rules = Annotated[tuple[RuleText, ...], Field(max_length=64)]
LearningRate = Annotated[float, Field(strict=True, gt=0, le=1e6, allow_inf_nan=False)]


OWN_OPTIMIZERS = f"one of your own is allowed by {catalog.VARIABLE} in the environment of the service"


def _require_known_optimizer(name: str) -> str:
    if is_stored() or catalog.knows(name):
        return name
    return require_known("optimizer", name, catalog.names(), OWN_OPTIMIZERS)


OptimizerName = Annotated[str, AfterValidator(_require_known_optimizer)]


class Workload(Spec):
    """All that is equal between compared optimizers."""

    task: AnyTask = PretrainTask()
    """The task; it may have other defaults for the fields below."""
    model: str
    """A preset, which `adapm-bench models` lists."""
    initial_weights: str | None = None
    """Pretrained weights: an allowed repository, or `own/<name>`; null: random ones."""
    data: DataSpec = DataSpec()
    budget: Budget
    schedule: Schedule = Schedule()
    evaluation: Evaluation = Evaluation()
    ema_decay: EmaDecay | None = omit_default(None)
    """Decay of the moving average of the weights that is evaluated (one more copy of them); null: the last weights."""
    clip_grad_norm: Annotated[float, Field(strict=True, gt=0)] | None = 1.0
    """Threshold of the global gradient norm; null: no clipping."""
    precision: Precision = "fp32"
    """bf16: autocast; parameters stay in fp32."""
    execution: Execution = Execution()
    probes: Probes | None = None
    """Observations of gradients and momenta; null: none."""

    @field_validator("model")
    @classmethod
    def _check_model(cls, value: str) -> str:
        return require_known("model", value, (*presets.names(), LINEAR_MODEL))

    @model_validator(mode="before")
    @classmethod
    def _fill_task_defaults(cls, fields: Any) -> Any:
        return fill_defaults(fields, defaults_of(fields.get("task"))) if isinstance(fields, dict) else fields

    @field_validator("initial_weights")
    @classmethod
    def _check_weights(cls, value: str | None) -> str | None:
        if value is None or data_catalog.OWN_NAME.fullmatch(value):
            return value
        return require_known("initial weights", value, (*presets.PUBLISHED_WEIGHTS, "own/<name>"))

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if not is_stored():
            raise_faults(type(self).__name__, [*self._misfits(), *self.task.misfits(self)])
        return self

    def _misfits(self) -> list[SpecFault]:
        faults: list[SpecFault] = []
        if self.schedule.warmup_steps >= self.budget.steps:
            allowed = f"must be below budget.steps = {self.budget.steps}"
            faults.append((("schedule", "warmup_steps"), self.schedule.warmup_steps, allowed))
        micro_batch, batch = self.execution.micro_batch_sequences, self.budget.batch_sequences
        if isinstance(micro_batch, int) and micro_batch > batch:
            allowed = f"must be at most budget.batch_sequences = {batch}; null is the whole batch at once"
            faults.append((("execution", "micro_batch_sequences"), micro_batch, allowed))
        faults.extend(self._sample_faults())
        try:
            kind = data_catalog.dataset_kind(self.data.dataset)
        except KeyError as error:  # of a workload that was stored
            return [*faults, (("data", "dataset"), self.data.dataset, error.args[0])]
        if kind is not self.task.data_kind:
            fitting = ", ".join(data_catalog.dataset_names(self.task.data_kind))
            allowed = f"holds {kind}; the task {self.task.kind} trains on {self.task.data_kind}: {fitting}"
            faults.append((("data", "dataset"), self.data.dataset, allowed))
        return faults

    def _sample_faults(self) -> Iterator[SpecFault]:
        """Yield the obstacles to texts at evaluations."""
        samples, length = self.evaluation.samples, self.data.sequence_length_tokens
        if samples is None:
            return
        if self.task.data_kind is data_catalog.DataKind.DRAWN:
            yield (
                ("evaluation", "samples"),
                samples.model_dump(),
                f"must be null: the task {self.task.kind} has no text",
            )
        if samples.tokens >= length:
            allowed = f"must be below data.sequence_length_tokens = {length}, which has to hold the prompt, too"
            yield ("evaluation", "samples", "tokens"), samples.tokens, allowed
        if (count := self.budget.steps // self.evaluation.every_steps) > MOST_SAMPLED_EVALUATIONS:
            allowed = (
                f"makes {count:,} evaluations; with samples there are {MOST_SAMPLED_EVALUATIONS:,} at most: evaluate "
                "less often, or leave samples out"
            )
            yield ("evaluation", "every_steps"), self.evaluation.every_steps, allowed

    def tokens(self) -> int:
        """Training tokens of the whole budget."""
        return self.budget.steps * self.budget.batch_sequences * self.data.sequence_length_tokens

    def validation_tokens(self) -> int:
        """Tokens of the validation text, which is the same for all runs."""
        return self.evaluation.sequences * self.data.sequence_length_tokens


class OptimizerSpec(Spec):
    """An optimizer at one learning rate, with the options that differ from the catalog's defaults."""

    name: OptimizerName
    """A name of the catalog: `adapm-bench optimizers`."""
    lr: LearningRate
    """The learning rate."""
    options: dict[str, Scalar] = Field(default_factory=dict)
    """Options that differ from the optimizer's defaults."""
    rules: Rules = omit_default(())
    """The rules of a block plan; later ones win."""

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        if not is_stored():
            raise_faults(type(self).__name__, option_faults(self.name, self.options, self.rules))
        return self


class Resources(Spec):
    """The resources of one run."""

    cpus: Annotated[int, Field(strict=True, ge=1, le=1024)] = 1
    """Threads of each process."""
    gpus: Annotated[int, Field(strict=True, ge=0, le=1024)] = 0
    """GPUs in all, one for each process."""
    processes: Annotated[int, Field(strict=True, ge=1, le=1024)] | None = omit_default(None)
    """Processes that share every batch; null: one for each GPU, or one."""

    @model_validator(mode="after")
    def _require_a_device_for_each_process(self) -> Self:
        if self.gpus and self.processes not in (None, self.gpus):
            allowed = f"must be gpus = {self.gpus} or null: every process has one GPU"
            raise_faults(type(self).__name__, [(("processes",), self.processes, allowed)])
        return self

    def process_count(self) -> int:
        """Return the number of processes that train the run together."""
        return self.processes or max(1, self.gpus)

    def total_cpus(self) -> int:
        """Return the CPUs of all processes."""
        return self.cpus * self.process_count()

    def misfits(self, workload: Workload) -> list[SpecFault]:
        """Return every field of the workload that so many processes cannot share, located in what holds both."""
        count = self.process_count()
        if count == 1:
            return []
        request = f"resources asks for {count} processes"
        faults: list[SpecFault] = []
        if not workload.task.divisible:
            allowed = f"is trained by one process, but {request}"
            faults.append((("workload", "task"), workload.task.kind, allowed))
        batch, micro_batch = workload.budget.batch_sequences, workload.execution.micro_batch_sequences
        if batch % count:
            allowed = f"must be a multiple of {count}: {request}, with equal shares of every batch"
            faults.append((("workload", "budget", "batch_sequences"), batch, allowed))
        location = ("workload", "execution", "micro_batch_sequences")
        if micro_batch == "auto":
            faults.append(
                (location, micro_batch, f"must be a number or null: {request}, and each would find another one")
            )
        elif micro_batch is not None and not batch % count and micro_batch > batch // count:
            allowed = f"must be at most {batch // count}, the share of each process; null is the whole share at once"
            faults.append((location, micro_batch, allowed))
        if workload.execution.parallel == "fsdp":
            faults += _unsharded_parts(workload)
        return faults

    def sharding_faults(
        self, workload: Workload, optimizer: str, options: Mapping[str, object], location: tuple[str | int, ...]
    ) -> list[SpecFault]:
        """Return the faults if this optimizer, at that place of the specification, cannot train the requested
        shards."""
        if workload.execution.parallel != "fsdp" or self.process_count() == 1 or not catalog.knows(optimizer):
            return []
        reason = catalog.entry(optimizer).sharding_fault(options)
        if reason is None:
            return []
        able = ", ".join(entry.name for entry in catalog.entries() if entry.sharding_fault({}) is None)
        allowed = (
            f"{reason}, and workload.execution.parallel = fsdp gives each process a part; take ddp, or one of {able}"
        )
        return [(location, optimizer, allowed)]


def _unsharded_parts(workload: Workload) -> list[SpecFault]:
    """Return the parts of a workload that work on whole models only."""
    faults: list[SpecFault] = []
    if workload.probes is not None:
        allowed = "must be null with execution.parallel = fsdp: probes look at whole matrices; take ddp"
        faults.append((("workload", "probes"), workload.probes.model_dump(), allowed))
    if workload.evaluation.samples is not None:
        allowed = "must be null with execution.parallel = fsdp: one process writes them, and has a part of the model"
        faults.append((("workload", "evaluation", "samples"), workload.evaluation.samples.model_dump(), allowed))
    if workload.execution.compile:
        allowed = "must be false with execution.parallel = fsdp: a sharded model is not compiled; take ddp"
        faults.append((("workload", "execution", "compile"), True, allowed))
    return faults


class RunSpec(Spec):
    """A training, to the bit: the same spec on the same device gives the same losses."""

    workload: Workload
    optimizer: OptimizerSpec
    seed: Seed
    """Seeds the initial weights and the data order; equal seeds pair the runs of a comparison."""
    resources: Resources = Resources()

    @model_validator(mode="after")
    def _processes_can_share_it(self) -> Self:
        resources, chosen = self.resources, self.optimizer
        raise_faults(
            type(self).__name__,
            [
                *resources.misfits(self.workload),
                *resources.sharding_faults(self.workload, chosen.name, chosen.options, ("optimizer", "name")),
                *averaging_faults(self.workload.ema_decay, chosen.name, ("workload", "ema_decay")),
            ],
        )
        return self

    def training_hash(self) -> str:
        """SHA-256 of all but `resources`: what a checkpoint can be gone on from, by however many processes."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json", exclude={"resources"}))).hexdigest()


def averaging_faults(ema_decay: float | None, optimizer: str, location: tuple[str | int, ...]) -> list[SpecFault]:
    """Return a fault if weights are averaged that the optimizer averages itself."""
    if ema_decay is None or not catalog.knows(optimizer) or catalog.Need.MODES not in catalog.entry(optimizer).needs:
        return []
    return [(location, ema_decay, f"must be null: {optimizer} averages its weights by itself")]


def option_faults(optimizer: str, options: dict[str, Scalar], rules: tuple[str, ...] = ()) -> list[SpecFault]:
    """Return the faults of an optimizer's options, located under `options`, and of rules that it has no plan for."""
    if (entry := catalog.find(optimizer)) is None:  # of what was stored
        return [((), optimizer, f"unknown optimizer {optimizer!r}; {OWN_OPTIMIZERS}")]
    refusals = entry.faults(options)
    faults: list[SpecFault] = [(("options", name), options[name], allowed) for name, allowed in refusals]
    if rules and not entry.has_plan:
        faults.append((("rules",), list(rules), f"must be empty: {optimizer} keeps to no block plan"))
    return faults
