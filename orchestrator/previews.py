"""A preview: what a specification would mean if it were submitted; nothing is stored.

Faults, the number of runs, their tokens, what each candidate keeps in memory, and the device-hours that they may take,
by the pace of runs that were measured here.
"""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median
from typing import Any

from pydantic import ValidationError

from orchestrator.experiments import Candidate, ComparisonSpec
from orchestrator.faults import Fault, validation_faults
from orchestrator.footprints import Footprints, Question
from orchestrator.hidden_faults import with_hidden_faults
from orchestrator.records import RunRecord
from worker import presets
from worker.record import Record

MEASURED_RUNS = 60
"""So many of a model's last runs make the estimate of what more of them cost."""
ASKED = {"rank_ratio", "state_dtype"}
STATELESS = {"eps", "weight_decay", "clip", "refresh_interval", "inner_iterations", "seed"}
"""Options that no byte of state depends on."""
RunsOfModel = Callable[[str], Sequence[RunRecord]]
"""The newest runs of a model that have succeeded, newest first."""


class CandidateMemory(Record):
    """What training a candidate keeps at the least: parameters, gradients, optimizer state; activations come on top."""

    candidate: str
    state_bytes: int
    total_bytes: int


class CostEstimate(Record):
    """What the runs may cost, by the pace of measured ones."""

    device_hours: float
    device: str
    """On which device that pace was measured; another one has another pace."""
    measured_runs: int
    assumed: tuple[str, ...]
    """Candidates without a measured run: they are taken to be as fast as the mean of all others."""


class Preview(Record):
    """What a specification would mean."""

    faults: tuple[Fault, ...] = ()
    missing: tuple[str, ...] = ()
    """A sentence for each thing that has to be prepared before it can be submitted."""
    name: str | None = None
    runs: int | None = None
    """With tuning, at most; null where there are faults, like everything below."""
    growing: bool = False
    """Whether the number is an upper bound."""
    steps: int | None = None
    """Of all runs."""
    tokens: int | None = None
    cost: CostEstimate | None = None
    """Null where no run of this model was ever measured here."""
    memory: tuple[CandidateMemory, ...] = ()
    """Empty where this model's footprint was not counted yet."""

    def accepted(self) -> bool:
        """Whether it can be submitted as it is."""
        return not self.faults and not self.missing


def preview(
    fields: Any, *, missing: Callable[[ComparisonSpec], Sequence[str]], measured: RunsOfModel, footprints: Footprints
) -> Preview:
    """Look at what would be the body of a submission, whatever it is."""
    try:
        spec = ComparisonSpec.model_validate(fields)
    except ValidationError as error:
        return Preview(faults=with_hidden_faults(validation_faults(error, ComparisonSpec), fields))
    runs = spec.run_count()
    return Preview(
        missing=tuple(missing(spec)),
        name=spec.name,
        runs=runs,
        growing=spec.tuning is not None and spec.tuning.extend_grid > 0,
        steps=runs * spec.workload.budget.steps,
        tokens=runs * spec.workload.tokens(),
        cost=_cost(spec, measured(spec.workload.model)),
        memory=tuple(_memory(spec, footprints)),
    )


def _cost(spec: ComparisonSpec, measured: Sequence[RunRecord]) -> CostEstimate | None:
    """Seconds a token of each candidate's optimizer × tokens, and what a run's start takes; of runs on the newest run's
    device only."""
    paces: dict[str, list[float]] = {}
    starts: list[float] = []
    device = None
    for run in measured:
        if run.result is None or not run.result.tokens:
            continue
        device = device or run.result.environment.device_name
        if run.result.environment.device_name == device:
            productive = run.result.productive_seconds or run.result.device_seconds
            paces.setdefault(run.optimizer, []).append(productive / run.result.tokens)
            starts.append(max(run.result.device_seconds - productive, 0.0))
    if device is None:
        return None
    means = {optimizer: fmean(found) for optimizer, found in paces.items()}
    others = fmean(means.values())
    seconds = sum(
        _runs_of(spec, candidate) * (spec.workload.tokens() * means.get(candidate.optimizer, others) + median(starts))
        for candidate in spec.candidates
    )
    return CostEstimate(
        device_hours=seconds / 3600,
        device=device,
        measured_runs=sum(map(len, paces.values())),
        assumed=tuple(one.name() for one in spec.candidates if one.optimizer not in means),
    )


def _runs_of(spec: ComparisonSpec, candidate: Candidate) -> int:
    """As `ComparisonSpec.run_count`, of one candidate."""
    rates = len(candidate.learning_rates)
    if spec.tuning is None:
        return rates * len(spec.seeds)
    return (rates + spec.tuning.extend_grid) * len(spec.tuning.seeds) + len(spec.seeds)


def _memory(spec: ComparisonSpec, footprints: Footprints) -> Iterator[CandidateMemory]:
    """Of every candidate whose footprint is known."""
    for candidate in spec.candidates:
        question = _question(spec, candidate)
        known = footprints.known(question) if question else None
        kept = {one.optimizer: one.state_bytes for one in known.optimizers} if known else {}
        state_bytes = kept.get(candidate.optimizer)
        if known and state_bytes is not None:
            total = known.parameter_bytes + known.gradient_bytes + state_bytes
            yield CandidateMemory(candidate=candidate.name(), state_bytes=state_bytes, total_bytes=total)


def _question(spec: ComparisonSpec, candidate: Candidate) -> Question | None:
    """The question whose answer holds for the candidate; None where only a count of its own would tell."""
    model, options = spec.workload.model, candidate.options
    if model not in presets.names() or candidate.rules or options.keys() - ASKED - STATELESS:
        return None
    if presets.preset(model).vocabulary_of_tokenizer and spec.workload.data.tokenizer != "byte":
        return None
    try:
        return Question.of(model, options.get("rank_ratio"), options.get("state_dtype"))
    except ValueError:
        return None
