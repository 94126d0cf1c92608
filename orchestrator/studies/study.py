"""`Study`: a question as a file, `study.yaml`: what is trained at up to three scales, and what is claimed of it.

    study.yaml ─► specifications ─► experiments ─► `gathering.py` ─► result.SCALE.json ─► `claims.py` ─► Finding
    figures.py ─► what the claims of a study need beyond the metrics of all comparisons: probes, theory, laws

A study has no training code and no experiment of a kind of its own.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from orchestrator.analysis.laws.records import FormName
from orchestrator.errors import OrchestratorError
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.records import SECONDS_PER_HOUR
from orchestrator.specs.faults import validation_faults
from orchestrator.specs.text import SpecTextError, parse
from worker.catalog import presets
from worker.records.result import Observation, Result
from worker.schema import Spec, SpecFault, canonical_json, raise_faults
from worker.spec.run import Workload
from worker.spec.task import RegressionTask, RlhfTask

if TYPE_CHECKING:
    from orchestrator.studies.result import Figure, StudyResult

START_SECONDS = 3.0
"""Roughly, of a run on a warm worker: building model and data, and the result."""
CPU_FLOPS = 6e10
"""Roughly, one core of a recent server on gpt2-tiny."""
GPU_FLOPS = 6e13
"""The assumed speed, some 40 % of an A6000's 155 TFLOP/s in bf16, with which the paper trains all but its largest
model."""
REGRESSION_STEP_SECONDS = 1e-3
"""Roughly, a step of one sample in 1,000 dimensions on one core."""
GENERATION_FACTOR = 8.0
"""The rough ratio of a step of `rlhf` to one of `sft` on as many tokens, on a GPU: two answers are generated token by
token, and scored. On a core a token costs as much alone as among others."""

Text = Annotated[str, Field(min_length=1, max_length=2_000)]
Bound = Annotated[float, Field(strict=True, ge=-1e6, le=1e6)]
Numbers = dict[str, float]
"""Named figures."""


class StudyError(OrchestratorError):
    """A file is not a study, and why."""


class StudyScale(StrEnum):
    """The size of a study."""

    TINY = "tiny"
    """Minutes to an hour on a CPU core: models of 0.08 to 1 million parameters, trained for a moment."""
    MIDDLE = "middle"
    """Hours on a CPU core: smaller models on 20 tokens for each parameter, as compute-optimal trainings have
    (Hoffmann et al. 2022)."""
    PAPER = "paper"
    """The paper's setting (arXiv 2510.09103, section 5.1), for GPUs."""


class StudyClaim(Spec):
    """A claimed figure: which metric of whom, and the bounds within which it lies."""

    metric: Text
    """`loss_difference`: final loss minus the other's, paired by seed; `speed_up`: how many times fewer tokens than the
    baseline to its final loss; `state_share`: bytes of optimizer state by the other's. Else a figure that the study's
    own module measures."""
    candidate: Text
    """The subject of the figure: a candidate, or whatever the study's module measures the metric of."""
    against: Text | None = None
    """The other candidate. Default: the baseline."""
    part: Text | None = None
    """The experiment that it is about. Default: each."""
    at_least: Bound | None = None
    at_most: Bound | None = None
    """The upper bound; without a bound nothing is claimed, and the figure is shown beside the paper's."""
    paper: Bound | None = None
    """The paper's figure; it decides nothing."""

    @model_validator(mode="after")
    def _require_order(self) -> Self:
        faults: list[SpecFault] = []
        if self.at_least is not None and self.at_most is not None and self.at_least >= self.at_most:
            faults.append((("at_most",), self.at_most, "must be more than at_least"))
        raise_faults(type(self).__name__, faults)
        return self

    def has_bound(self) -> bool:
        """Return whether anything is claimed."""
        return self.at_least is not None or self.at_most is not None


class Study(Spec):
    """A question with its specifications and claims: the fields of `study.yaml`."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
    title: Text
    question: Text
    claim: Text
    """The paper's claim, in a sentence; of studies beyond the paper, the comparison."""
    source: Text
    """The place in AdaPM's paper (`figure 4c`), another paper with its arXiv number, or the claim's owner."""
    claims: Annotated[tuple[StudyClaim, ...], Field(min_length=1, max_length=64)]
    """All of them have to hold, in every experiment that they are about."""
    scales: Annotated[dict[StudyScale, dict[str, ExperimentSpec]], Field(min_length=1)]
    """The specifications of each scale by the names of its parts; none if everything is computed."""
    caveats: tuple[Text, ...] = ()
    """The parts of the setting that are ours because the paper gives none."""
    order: int = 1000
    """The place in lists: studies that decide for an optimizer first, theory last."""

    @model_validator(mode="before")
    @classmethod
    def _name_experiments(cls, fields: Any) -> Any:
        """Name the specifications of a study, which need no name of their own."""
        match fields:
            case {"name": str(name), "scales": dict(scales)}:
                named = {
                    scale: {
                        part: {"name": f"study {name} {part}, {scale}", **spec} if isinstance(spec, dict) else spec
                        for part, spec in parts.items()
                    }
                    if isinstance(parts, dict)
                    else parts
                    for scale, parts in scales.items()
                }
                return fields | {"scales": named}
        return fields

    @model_validator(mode="after")
    def _require_candidates(self) -> Self:
        faults: list[SpecFault] = []
        for index, claim in enumerate(self.claims):
            if claim.metric not in SHARED_METRICS:
                continue
            parts_named = {part for parts in self.scales.values() for part in parts}
            if claim.part is not None and claim.part not in parts_named:
                allowed = f"must be one of {', '.join(sorted(parts_named))}"
                faults.append((("claims", index, "part"), claim.part, allowed))
                continue
            if claim.metric == "speed_up" and claim.against is not None:
                allowed = "must be left out: a speed-up is the comparison's own, over its baseline"
                faults.append((("claims", index, "against"), claim.against, allowed))
            specs = [spec for parts in self.scales.values() for spec in parts.values()]
            baselines = {spec.baseline_name() for spec in specs if isinstance(spec, ComparisonSpec)}
            if claim.metric == "loss_difference" and claim.against is not None and claim.candidate in baselines:
                allowed = "is the baseline, which has no difference; exchange candidate and against"
                faults.append((("claims", index, "candidate"), claim.candidate, allowed))
            for field in ("candidate", "against"):
                name = getattr(claim, field)
                choices = {
                    candidate.name()
                    for parts in self.scales.values()
                    for part, spec in parts.items()
                    if isinstance(spec, ComparisonSpec) and claim.part in (None, part)
                    for candidate in spec.candidates
                }
                if name is not None and name not in choices:
                    faults.append((("claims", index, field), name, f"must be one of {', '.join(sorted(choices))}"))
        raise_faults(type(self).__name__, faults)
        return self

    def run_count(self, scale: StudyScale) -> int:
        """Return the number of runs, at most."""
        return sum(spec.run_count() for spec in self.scales[scale].values())

    def device_hours(self, scale: StudyScale) -> float:
        """Return the rough device-hours, by the FLOPs of all runs."""
        return sum(device_seconds(spec) for spec in self.scales[scale].values()) / SECONDS_PER_HOUR


SHARED_METRICS = ("loss_difference", "speed_up", "state_share")
"""The metrics of every comparison; `claims.py` measures them."""


@dataclass(frozen=True, kw_only=True)
class StudyFigures:
    """The measures of a study's own module, `figures.py` beside `study.yaml`; every function is pure."""

    measure: "Callable[[Study, StudyResult], Sequence[Figure]]"
    """The figures that its claims name."""
    compute: Callable[[], Numbers] | None = None
    """The computation without training, in seconds."""
    version: str = ""
    """The version of `compute`: figures of another version are not compared."""
    observe: Callable[[Sequence[Observation]], Numbers] | None = None
    """The reduction of a run's observations to the few figures that are kept of it."""
    extract: Callable[[Result], Numbers] | None = None
    """The figures of a run's result that are kept besides its loss."""
    law: FormName | None = None
    """The form of the scaling laws that are fitted over the parts; None if none are."""


def read_study(path: Path) -> Study:
    """Return the study in a file; raises `StudyError` with every fault."""
    try:
        return Study.model_validate(parse(path.read_text(encoding="utf-8"), str(path)))
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{path} cannot be read: {error}") from error
    except SpecTextError as error:
        raise StudyError(str(error)) from error
    except ValidationError as error:
        faults = validation_faults(error, Study)
        raise StudyError("\n".join([f"{path} is not a study:", *(f"  {fault.text()}" for fault in faults)])) from error


def identity(spec: ExperimentSpec) -> str:
    """Return a hash of what a specification asks for, without its name and without what is the default: it survives a
    new field of specifications, and studies that ask for the same share the experiment."""
    fields = {name: value for name, value in _own_fields(spec).items() if name != "name"}
    return hashlib.sha256(canonical_json(fields)).hexdigest()


def _own_fields(value: Any) -> Any:
    """Return the record as JSON, without fields that have their default, but for `kind`, which distinguishes
    records."""
    match value:
        case BaseModel():
            fields = type(value).model_fields
            defaults = {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
            return {name: _own_fields(v) for name, v in value if name == "kind" or v != defaults[name]}
        case dict():
            return {name: _own_fields(v) for name, v in value.items()}
        case tuple() | list():
            return [_own_fields(v) for v in value]
    return value


def experiment_key(spec: ExperimentSpec) -> str:
    """Return the idempotency key under which a study submits a specification, and finds it again."""
    return f"study-{identity(spec)[:40]}"


def device_seconds(spec: ExperimentSpec) -> float:
    """Return the rough cost of an experiment before it is run: of all runs, one after another.

        run = start + weights × (6 × tokens trained on + 2 × tokens evaluated) / rate

    The rates are what one device achieves in such trainings: good for "minutes or days", not for bills.
    """
    return spec.run_count() * (START_SECONDS + _training_seconds(spec.workload, on_gpu=spec.resources.gpus > 0))


def _training_seconds(workload: Workload, *, on_gpu: bool) -> float:
    if isinstance(workload.task, RegressionTask):
        return workload.budget.steps * REGRESSION_STEP_SECONDS
    evaluation, length = workload.evaluation, workload.data.sequence_length_tokens
    evaluations = 1 + workload.budget.steps // evaluation.every_steps
    evaluated_tokens = evaluations * evaluation.sequences * length
    flops = weights(workload.model) * (6.0 * workload.tokens() + 2.0 * evaluated_tokens)
    if not on_gpu:
        return flops / CPU_FLOPS
    factor = GENERATION_FACTOR if isinstance(workload.task, RlhfTask) else 1.0
    return factor * flops / GPU_FLOPS


def weights(model: str) -> float:
    """Return the weights of a preset, roughly: 12 h² a layer, and its embedding."""
    preset = presets.preset(model)
    return 12.0 * preset.layers * preset.hidden_size**2 + preset.vocabulary_size * preset.hidden_size
