"""What the studies of fine-tuning share: generated chats and a tiny GPT-2, or UltraFeedback and Llama3-8B on a GPU."""

from dataclasses import dataclass

from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import Tuning
from orchestrator.studies import tiny_setting
from orchestrator.studies.evidence import Scale
from orchestrator.studies.study import Part, Plan
from worker.spec.run import Budget, DataSpec, Evaluation, Execution, Resources, Schedule, Workload
from worker.spec.task import RlhfTask, SftTask

OPTIMIZERS = ("adamw", "adapm")
SEEDS = (1, 2, 3)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What differs between the studies, and between their scales."""

    task: SftTask | RlhfTask
    length_tokens: int
    steps: int
    batch_sequences: int
    warmup_steps: int
    every_steps: int
    """From one evaluation to the next."""
    candidates: tuple[Candidate, ...]
    tuning: Tuning | None = None


def both(learning_rates: tuple[float, ...]) -> tuple[Candidate, ...]:
    """AdamW and AdaPM on the same grid."""
    return tuple(Candidate(optimizer=name, learning_rates=learning_rates) for name in OPTIMIZERS)


def plans(name: str, part: str, *, tiny: Setting, paper: Setting) -> dict[Scale, Plan]:
    """One experiment at each scale."""
    small = Workload(
        task=tiny.task,
        model="gpt2-tiny",
        data=DataSpec(dataset="chats", sequence_length_tokens=tiny.length_tokens),
        budget=Budget(steps=tiny.steps, batch_sequences=tiny.batch_sequences),
        schedule=Schedule(warmup_steps=tiny.warmup_steps),
        evaluation=Evaluation(every_steps=tiny.every_steps, sequences=64),
    )
    large = Workload(
        task=paper.task,
        model="llama3-8b",
        initial_weights="meta-llama/Meta-Llama-3-8B",
        data=DataSpec(dataset="ultrafeedback", tokenizer="llama3", sequence_length_tokens=paper.length_tokens),
        budget=Budget(steps=paper.steps, batch_sequences=paper.batch_sequences),
        schedule=Schedule(warmup_steps=paper.warmup_steps),
        evaluation=Evaluation(every_steps=paper.every_steps, sequences=256),
        precision="bf16",
        execution=Execution(micro_batch_sequences="auto", activation_checkpointing=True),
    )
    specs = {
        Scale.TINY: tiny_setting.comparison(name, small, tiny.candidates, baseline="adamw", tuning=tiny.tuning),
        Scale.PAPER: ComparisonSpec(
            name=f"study {name}, paper",
            workload=large,
            candidates=paper.candidates,
            seeds=SEEDS,
            baseline="adamw",
            tuning=paper.tuning,
            resources=Resources(cpus=8, gpus=1),
        ),
    }
    return {scale: Plan(parts=(Part(name=part, spec=spec),)) for scale, spec in specs.items()}
