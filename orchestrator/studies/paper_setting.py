"""The paper's setting (arXiv 2510.09103, section 5.1), for GPUs.

From the paper: 512 sequences of 1,024 tokens a step, weight decay 0.1, cosine decay after 2,000 warm-up steps, gradient
clipping at 1.0, betas (0.9, 0.95), eps 1e-8, OpenWebText for GPT-2, C4 for Llama, learning rates tuned for every
method, five repetitions. The optimizers' part of it is their catalog's default.

Ours, because the paper does not say: the number of steps, the end of the cosine (nanoGPT's tenth), bf16 autocast, and
the centres of the learning-rate grids.
"""

from collections.abc import Sequence

from optim import catalog
from optim.catalog import Scalar
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import Tuning
from worker.spec.parts import Probes
from worker.spec.run import Budget, DataSpec, Evaluation, Execution, Resources, Schedule, Workload

STEPS = 50_000
"""26 G tokens: some 20 for each parameter of the largest model, the compute-optimal share (Hoffmann et al. 2022)."""
SEEDS = (1, 2, 3, 4, 5)
"""Five repetitions, as in the paper."""
TUNING = Tuning(seeds=(0,), extend_grid=2)
CENTRES = {
    "gpt2-40m": 6e-4, "gpt2-124m": 6e-4, "gpt2-355m": 3e-4, "gpt2-774m": 2.5e-4, "gpt2-1.5b": 2e-4,
    "llama-130m": 1e-3, "llama-340m": 1e-3, "llama-350m": 1e-3,
}  # fmt: skip
"""Adam's learning rates by size: Brown et al. 2020, table 2.1, for GPT; Zhao et al. 2024 (GaLore) for Llama."""
ADAMS = frozenset({"adamw", "adam-mini", "adapm", "adapm-mini", "adamw-8bit", "adamw-4bit", "muon"})
"""Optimizers whose learning rate is Adam's; the others' centre is their catalog's."""
NO_STEPS = "The paper gives no number of steps: 50,000 (26 G tokens) is ours."


def workload(
    model: str, *, steps: int = STEPS, probes: Probes | None = None, execution: Execution | None = None
) -> Workload:
    """Pretraining as the paper has it."""
    llama = model.startswith("llama")
    return Workload(
        model=model,
        data=DataSpec(
            dataset="c4" if llama else "openwebtext",
            tokenizer="llama2" if llama else "gpt2",
            sequence_length_tokens=1024,
        ),
        budget=Budget(steps=steps, batch_sequences=512),
        schedule=Schedule(warmup_steps=2000, final_lr_ratio=0.1),
        evaluation=Evaluation(every_steps=1000, sequences=512),
        clip_grad_norm=1.0,
        precision="bf16",
        execution=execution or Execution(micro_batch_sequences="auto"),
        probes=probes,
    )


def candidate(
    model: str,
    optimizer: str,
    label: str | None = None,
    options: dict[str, Scalar] | None = None,
    rules: Sequence[str] = (),
) -> Candidate:
    """A candidate at Adam's rate for the model: ablations share their hyperparameters."""
    return Candidate(
        optimizer=optimizer, label=label, options=options or {}, rules=tuple(rules), learning_rates=(CENTRES[model],)
    )


def tuned_candidate(model: str, optimizer: str) -> Candidate:
    """A candidate on a ×2 grid around its usual rate."""
    centre = CENTRES[model] if optimizer in ADAMS else catalog.entry(optimizer).learning_rate
    return Candidate(optimizer=optimizer, learning_rates=(centre / 2, centre, 2 * centre))


def comparison(
    name: str,
    work: Workload,
    candidates: Sequence[Candidate],
    *,
    baseline: str,
    seeds: tuple[int, ...] = SEEDS,
    tuning: Tuning | None = None,
) -> ComparisonSpec:
    """A comparison at this scale: a GPU a run."""
    return ComparisonSpec(
        name=f"study {name}, paper",
        workload=work,
        candidates=tuple(candidates),
        seeds=seeds,
        baseline=baseline,
        tuning=tuning,
        resources=Resources(cpus=4, gpus=1),
    )
