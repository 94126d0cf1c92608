"""The two scales of studies: how each trains, at which learning rates, and the plans that many studies share.

`tiny` trains on a CPU core in seconds. `paper` is the paper's setting (arXiv 2510.09103, section 5.1), for GPUs: 512
sequences of 1,024 tokens a step, weight decay 0.1, cosine decay after 2,000 warm-up steps, gradient clipping at 1.0,
betas (0.9, 0.95), eps 1e-8, OpenWebText for GPT-2, C4 for Llama, learning rates tuned for every method, five
repetitions. The optimizers' part of it is their catalog's default. Ours, because the paper does not say: the number of
steps, the end of the cosine (nanoGPT's tenth), bf16 autocast, and the centres of the learning-rate grids.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from optim import catalog
from optim.catalog import Scalar
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import Tuning
from orchestrator.studies.evidence import StudyScale
from orchestrator.studies.study import Plan, StudyPart
from worker.spec.parts import Probes
from worker.spec.run import Budget, DataSpec, Evaluation, Execution, Resources, Schedule, Workload

STEPS = {StudyScale.TINY: 150, StudyScale.PAPER: 50_000}
"""50,000 are 26 G tokens: some 20 for each parameter of the largest model, the compute-optimal share (Hoffmann et al.
2022)."""
NO_STEPS = "The paper gives no number of steps: 50,000 (26 G tokens) is ours."
SEEDS = {StudyScale.TINY: (1, 2, 3), StudyScale.PAPER: (1, 2, 3, 4, 5)}
"""Five repetitions, as in the paper."""
TUNING = {StudyScale.TINY: Tuning(seeds=(0,), extend_grid=3), StudyScale.PAPER: Tuning(seeds=(0,), extend_grid=2)}
"""As far as to a rate that is worse on either side: at the edge of its grid an optimizer is not tuned."""
RESOURCES = {StudyScale.TINY: Resources(), StudyScale.PAPER: Resources(cpus=4, gpus=1)}

TINY_MODEL = "gpt2-tiny"
TINY_RATE = 4e-3
"""Of runs whose losses are not compared: those that are probed, or timed."""
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
    model: str = TINY_MODEL,
    *,
    steps: int | None = None,
    batch_sequences: int | None = None,
    probes: Probes | None = None,
    execution: Execution | None = None,
) -> Workload:
    """Pretraining: on the next bytes of the interpreter's own library, or as the paper has it."""
    steps = steps or STEPS[scale]
    if scale is StudyScale.TINY:
        return Workload(
            model=model,
            data=DataSpec(dataset="python-stdlib", tokenizer="byte", sequence_length_tokens=64),
            budget=Budget(steps=steps, batch_sequences=batch_sequences or 8),
            schedule=Schedule(warmup_steps=steps // 10, final_lr_ratio=0.1),
            evaluation=Evaluation(every_steps=max(steps // 5, 1), sequences=64),
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
        budget=Budget(steps=steps, batch_sequences=batch_sequences or 512),
        schedule=Schedule(warmup_steps=2000, final_lr_ratio=0.1),
        evaluation=Evaluation(every_steps=1000, sequences=512),
        clip_grad_norm=1.0,
        precision="bf16",
        execution=execution or Execution(micro_batch_sequences="auto"),
        probes=probes,
    )


def candidate(scale: StudyScale, model: str, optimizer: str) -> Candidate:
    """A candidate at one rate, that of Adam for the model: runs whose losses are not compared, or of one optimizer."""
    rate = TINY_RATE if scale is StudyScale.TINY else PAPER_CENTRES[model]
    return Candidate(optimizer=optimizer, learning_rates=(rate,))


def tuned_candidate(scale: StudyScale, model: str, optimizer: str) -> Candidate:
    """A candidate on a ×2 grid around its usual rate."""
    if scale is StudyScale.TINY:
        return Candidate(optimizer=optimizer, learning_rates=TINY_GRIDS.get(optimizer, TINY_GRID))
    centre = PAPER_CENTRES[model] if optimizer in ADAMS else catalog.entry(optimizer).learning_rate
    return Candidate(optimizer=optimizer, learning_rates=(centre / 2, centre, 2 * centre))


def comparison(
    scale: StudyScale,
    name: str,
    work: Workload,
    candidates: Sequence[Candidate],
    *,
    baseline: str,
    seeds: tuple[int, ...] | None = None,
    tuning: Tuning | None = None,
    resources: Resources | None = None,
) -> ComparisonSpec:
    """A comparison at that scale: at the paper's a GPU a run."""
    return ComparisonSpec(
        name=f"study {name}, {scale.value}",
        workload=work,
        candidates=tuple(candidates),
        seeds=seeds or SEEDS[scale],
        baseline=baseline,
        tuning=tuning,
        resources=resources or RESOURCES[scale],
    )


def tuned_comparison(
    name: str,
    optimizers: Sequence[str],
    scale: StudyScale,
    *,
    model: str,
    part: str = GPT2,
    seeds: tuple[int, ...] | None = None,
    baseline: str = "adamw",
    tiny_steps: int | None = None,
) -> StudyPart:
    """Optimizers against one of them at equal tuning: over their grids, then seeds at each winner."""
    work = workload(scale, model, steps=tiny_steps if scale is StudyScale.TINY else None)
    chosen = [tuned_candidate(scale, model, each) for each in optimizers]
    spec = comparison(scale, name, work, chosen, baseline=baseline, seeds=seeds, tuning=TUNING[scale])
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
    seeds: tuple[int, ...] | None = None,
) -> StudyPart:
    """Variants of AdaPM by their labels: at the tiny scale each tuned, at the paper's all at AdaPM's rate."""
    tiny = scale is StudyScale.TINY
    model = TINY_MODEL if tiny else paper_model
    adapm = (tuned_candidate if tiny else candidate)(scale, model, "adapm").model_dump()
    chosen = [
        Candidate.model_validate(adapm | {"label": label, "options": dict(each.options), "rules": each.rules})
        for label, each in variants.items()
    ]
    tuning = TUNING[scale] if tiny else None
    spec = comparison(scale, name, workload(scale, model), chosen, baseline=baseline, seeds=seeds, tuning=tuning)
    return StudyPart(name=part, spec=spec)


def ablations(
    name: str, variants: Mapping[str, Variant], *, baseline: str, seeds: tuple[int, ...] | None = None
) -> dict[StudyScale, Plan]:
    """The same ablation at both scales."""
    return {
        scale: Plan(parts=(ablation(name, variants, scale, baseline=baseline, seeds=seeds),)) for scale in StudyScale
    }


def one_part(tiny: StudyPart, paper: StudyPart) -> dict[StudyScale, Plan]:
    """The plans of a study with one experiment at each scale."""
    return {StudyScale.TINY: Plan(parts=(tiny,)), StudyScale.PAPER: Plan(parts=(paper,))}
