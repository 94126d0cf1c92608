"""The scales of studies: how each trains, at which learning rates, and the plans that many studies share.

`tiny` trains a model on a CPU core in seconds. `middle` trains smaller ones for minutes, each on 20 tokens for every
parameter, the compute-optimal share (Hoffmann et al. 2022). `paper` is the paper's setting (arXiv 2510.09103, section
5.1), for GPUs: 512 sequences of 1,024 tokens a step, weight decay 0.1, cosine decay after 2,000 warm-up steps,
gradient clipping at 1.0, betas (0.9, 0.95), eps 1e-8, OpenWebText for GPT-2, C4 for Llama, learning rates tuned for
every method, five repetitions. The optimizers' part of it is their catalog's default. Ours, because the paper does not
say: the number of steps, the end of the cosine (nanoGPT's tenth), bf16 autocast, and the centres of the grids.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from optim import catalog
from optim.catalog import Scalar
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import Tuning
from orchestrator.studies.evidence import StudyScale
from orchestrator.studies.study import Plan, StudyPart
from worker.spec.parts import Probes
from worker.spec.run import Budget, DataSpec, Evaluation, Execution, Resources, Schedule, Workload

TINY_STEPS = 150
MIDDLE_STEPS = {"gpt2-nano": 800, "gpt2-micro": 2_700, "gpt2-tiny": 8_400}
"""By model, of 32 × 64 tokens: 20 for each parameter."""
PAPER_STEPS = 50_000
"""26 G tokens: some 20 for each parameter of the largest model."""
NO_STEPS = "The paper gives no number of steps: 50,000 (26 G tokens) is ours."
SEEDS = (1, 2, 3, 4, 5)
"""Five repetitions, as in the paper."""
FEW_SEEDS = (1, 2, 3)
"""Of runs whose losses are not compared: those that are probed, or timed."""
EVALUATION_SEQUENCES = 1_024
"""With fewer the error of the evaluation rivals the differences of tuned optimizers."""

TINY_MODEL = "gpt2-tiny"
MIDDLE_MODEL = "gpt2-nano"
TINY_RATE = 4e-3
"""Of runs whose losses are not compared."""
TINY_GRID = (1e-3, 2e-3, 4e-3)
"""Around the best rates of Adam's relatives on these models: 1e-3 or below for AdamW, 2e-3 for AdaPM."""
TINY_GRIDS: dict[str, tuple[float, ...]] = {
    "adafactor": (1e-2, 2e-2, 4e-2),
    "galore": (8e-3, 1.6e-2, 3.2e-2),
    "fira": (8e-3, 1.6e-2, 3.2e-2),
    "apollo": (8e-3, 1.6e-2, 3.2e-2),
    "lion": (2.5e-4, 5e-4, 1e-3),
    "soap": (4e-3, 8e-3, 1.6e-2),
    "schedule-free-adamw": (4e-3, 8e-3, 1.6e-2),
}
"""×2 grids that hold the best rate at this size; all others have `TINY_GRID`."""
MIDDLE_FACTOR = 4.0
"""The smaller models of the middle scale train best at higher rates."""
PAPER_CENTRES = {
    "gpt2-40m": 6e-4, "gpt2-124m": 6e-4, "gpt2-355m": 3e-4, "gpt2-774m": 2.5e-4, "gpt2-1.5b": 2e-4,
    "llama-130m": 1e-3, "llama-340m": 1e-3, "llama-350m": 1e-3,
}  # fmt: skip
"""Adam's learning rates by size: Brown et al. 2020, table 2.1, for GPT; Zhao et al. 2024 (GaLore) for Llama."""
ADAMS = frozenset({"adamw", "adam-mini", "adapm", "adapm-mini", "adamw-8bit", "adamw-4bit", "muon"})
"""Optimizers whose learning rate is Adam's; the others' centre is their catalog's."""

GPT2 = "GPT-2"
"""The part of studies that have one."""


def workload(
    scale: StudyScale,
    model: str,
    *,
    steps: int | None = None,
    batch_sequences: int | None = None,
    evaluations: int | None = None,
    evaluation_sequences: int = EVALUATION_SEQUENCES,
    probes: Probes | None = None,
    execution: Execution | None = None,
) -> Workload:
    """Pretraining: on the next bytes of the interpreter's own library, or as the paper has it. `evaluations`: how often
    a CPU's run is evaluated besides before its first step; at the tiny scale an evaluation costs 50 steps."""
    if scale is not StudyScale.PAPER:
        tiny = scale is StudyScale.TINY
        steps = steps or (TINY_STEPS if tiny else MIDDLE_STEPS[model])
        return Workload(
            model=model,
            data=DataSpec(dataset="python-stdlib", tokenizer="byte", sequence_length_tokens=64),
            budget=Budget(steps=steps, batch_sequences=batch_sequences or (8 if tiny else 32)),
            schedule=Schedule(warmup_steps=steps // 10, final_lr_ratio=0.1),
            evaluation=Evaluation(
                every_steps=max(steps // (evaluations or (2 if tiny else 5)), 1), sequences=evaluation_sequences
            ),
            execution=execution or Execution(),
            probes=probes,
        )
    llama = model.startswith("llama")
    return Workload(
        model=model,
        data=DataSpec(
            dataset="c4" if llama else "openwebtext",
            tokenizer="llama2" if llama else "gpt2",
            sequence_length_tokens=1024,
        ),
        budget=Budget(steps=steps or PAPER_STEPS, batch_sequences=batch_sequences or 512),
        schedule=Schedule(warmup_steps=2000, final_lr_ratio=0.1),
        evaluation=Evaluation(every_steps=1000, sequences=evaluation_sequences),
        clip_grad_norm=1.0,
        precision="bf16",
        execution=execution or Execution(micro_batch_sequences="auto"),
        probes=probes,
    )


def candidate(scale: StudyScale, model: str, optimizer: str) -> Candidate:
    """A candidate at one rate, that of Adam for the model: runs whose losses are not compared, or of one optimizer."""
    rate = PAPER_CENTRES[model] if scale is StudyScale.PAPER else TINY_RATE
    return Candidate(optimizer=optimizer, learning_rates=(rate,))


def tuned_candidate(scale: StudyScale, model: str, optimizer: str) -> Candidate:
    """A candidate on a ×2 grid around its usual rate."""
    if scale is not StudyScale.PAPER:
        grid = TINY_GRIDS.get(optimizer, TINY_GRID)
        factor = MIDDLE_FACTOR if scale is StudyScale.MIDDLE else 1.0
        return Candidate(optimizer=optimizer, learning_rates=tuple(factor * rate for rate in grid))
    centre = PAPER_CENTRES[model] if optimizer in ADAMS else catalog.entry(optimizer).learning_rate
    return Candidate(optimizer=optimizer, learning_rates=(centre / 2, centre, 2 * centre))


def comparison(
    scale: StudyScale,
    name: str,
    work: Workload,
    candidates: Sequence[Candidate],
    *,
    baseline: str,
    seeds: tuple[int, ...] = SEEDS,
    tuning: Tuning | None = None,
    resources: Resources | None = None,
) -> ComparisonSpec:
    """A comparison at that scale: at the paper's a GPU a run."""
    return ComparisonSpec(
        name=f"study {name}, {scale.value}",
        workload=work,
        candidates=tuple(candidates),
        seeds=seeds,
        baseline=baseline,
        tuning=tuning,
        resources=resources or run_resources(scale),
    )


def run_resources(scale: StudyScale) -> Resources:
    """Of a run: a core, or a GPU."""
    return Resources(cpus=4, gpus=1) if scale is StudyScale.PAPER else Resources()


def tuned_comparison(
    name: str,
    optimizers: Sequence[str],
    scale: StudyScale,
    *,
    model: str,
    part: str = GPT2,
    baseline: str = "adamw",
    tiny_steps: int | None = None,
) -> StudyPart:
    """Optimizers against one of them at equal tuning: over their grids, then seeds at each winner."""
    work = workload(scale, model, steps=tiny_steps if scale is StudyScale.TINY else None)
    chosen = [tuned_candidate(scale, model, each) for each in optimizers]
    spec = comparison(scale, name, work, chosen, baseline=baseline, tuning=Tuning())
    return StudyPart(name=part, spec=spec)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What differs between the candidates of an ablation."""

    options: Mapping[str, Scalar] = field(default_factory=dict)
    rules: tuple[str, ...] = ()


def ablation(
    name: str,
    variants: Mapping[str, Variant],
    scale: StudyScale,
    *,
    baseline: str,
    paper_model: str = "gpt2-124m",
    part: str = GPT2,
    evaluations: int | None = None,
) -> StudyPart:
    """Variants of AdaPM by their labels, each tuned as AdaPM is."""
    model = {StudyScale.TINY: TINY_MODEL, StudyScale.MIDDLE: MIDDLE_MODEL, StudyScale.PAPER: paper_model}[scale]
    adapm = tuned_candidate(scale, model, "adapm").model_dump()
    chosen = [
        Candidate.model_validate(adapm | {"label": label, "options": dict(each.options), "rules": each.rules})
        for label, each in variants.items()
    ]
    work = workload(scale, model, evaluations=evaluations)
    spec = comparison(scale, name, work, chosen, baseline=baseline, tuning=Tuning())
    return StudyPart(name=part, spec=spec)


def plans(
    parts: Callable[[StudyScale], Iterable[StudyPart]], scales: Iterable[StudyScale] = StudyScale
) -> dict[StudyScale, Plan]:
    """The plans of a study from the experiments that it has at each scale."""
    return {scale: Plan(parts=tuple(parts(scale))) for scale in scales}


def ablation_plans(name: str, variants: Mapping[str, Variant], *, baseline: str) -> dict[StudyScale, Plan]:
    """The plans of a study that is one ablation."""
    return plans(lambda scale: (ablation(name, variants, scale, baseline=baseline),))
