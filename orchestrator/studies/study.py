"""`Study`: one claim of the paper (or of ours) as data: what to run at which scale, and a pure function to its verdict.

    plans ─► experiments (comparisons, sweeps) ─► records ─► `gathering.py` ─► Evidence ─► `judge` ─► Finding

A study has no training code of its own. A new one is a `Study` in a module of `paper/` or `beyond/`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.analysis.laws.records import FormName
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import Judgement
from worker.catalog import presets
from worker.records.result import Observation, Result
from worker.spec.run import Workload
from worker.spec.task import RegressionTask, RlhfTask

START_SECONDS = 5.0
"""Roughly, importing torch and building the model."""
CPU_FLOPS = 6e10
"""Roughly, one core of a recent server on gpt2-tiny."""
GPU_FLOPS = 6e13
"""Some 40 % of an A6000's 155 TFLOP/s in bf16, with which the paper trains all but its largest model."""
REGRESSION_STEP_SECONDS = 1e-3
"""Roughly, a step of one sample in 1,000 dimensions on one core."""
GENERATION_FACTOR = 8.0
"""On a GPU, a step of `rlhf` by one of `sft` on as many tokens, roughly: two answers are generated token by token, and
scored. On a core a token costs as much alone as among others: measured at the tiny scale were 5 s a run, of 8
estimated."""


def device_seconds(spec: ExperimentSpec) -> float:
    """What an experiment costs, roughly, before it is run: of all runs, one after another.

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
    """Weights of a preset, roughly: 12 h² a layer, and its embedding."""
    preset = presets.preset(model)
    return 12.0 * preset.layers * preset.hidden_size**2 + preset.vocabulary_size * preset.hidden_size


Numbers = dict[str, float]
"""Named figures."""


@dataclass(frozen=True, kw_only=True)
class StudyPart:
    """One experiment of a study."""

    name: str
    spec: ExperimentSpec

    def key(self) -> str:
        """Its idempotency key: by content, so that studies share experiments and a re-run finds what there is."""
        return f"study-{self.spec.content_hash()[:40]}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a study does at one scale."""

    parts: tuple[StudyPart, ...] = ()
    compute: Callable[[], Numbers] | None = None
    """What is computed without training, in seconds."""
    version: str = ""
    """Of `compute`: figures of another version are not compared."""

    def run_count(self) -> int:
        """Runs, at most."""
        return sum(part.spec.run_count() for part in self.parts)

    def specs(self) -> list[ExperimentSpec]:
        """What is submitted for it."""
        return [part.spec for part in self.parts]

    def device_hours(self) -> float:
        """Roughly, by the FLOPs of all runs (`study.py`)."""
        return sum(device_seconds(part.spec) for part in self.parts) / 3600.0


@dataclass(frozen=True, kw_only=True)
class Study:
    """One question with its claim, its plans and its judge."""

    name: str
    title: str
    question: str
    claim: str
    """What the paper says, in a sentence; of studies beyond the paper, what is held against what."""
    source: str
    """Where the paper says so."""
    plans: Mapping[StudyScale, Plan]
    judge: Callable[[Evidence], Judgement]
    """Pure: the same evidence gives the same words."""
    about_large_models: bool = True
    """Whether the claim is about models that the tiny scale does not train."""
    caveats: tuple[str, ...] = ()
    """Where the setting is ours because the paper gives none."""
    observe: Callable[[Sequence[Observation]], Numbers] | None = None
    """From what the probes of a run saw to the few figures that are kept of it. Pure."""
    extract: Callable[[Result], Numbers] | None = None
    """From a run's result to figures that are kept besides its loss. Pure."""
    law: FormName | None = None
    """The form of the scaling laws that are fitted over the parts; None where none are."""
    axis: str = "measured"
    """What the figures of its finding are, for the figure's axis."""
    order: int = field(default=100)
    """Place in lists: the paper's order."""
