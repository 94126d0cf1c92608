"""The built-in comparison of `adapm-bench demo`: AdaPM and AdaPM-mini against AdamW on a tiny GPT-2, for a CPU."""

from orchestrator.experiments import Candidate, ComparisonSpec
from worker.spec import Budget, DataSpec, Evaluation, Schedule, Workload

LEARNING_RATES = (2e-3, 4e-3)
"""Two rates a factor of two apart, at which all three train well at this size; a real grid is wider."""

DEMO = ComparisonSpec(
    name="AdaPM and AdaPM-mini against AdamW",
    workload=Workload(
        model="gpt2-tiny",
        data=DataSpec(dataset="python-stdlib", tokenizer="byte", sequence_length_tokens=128),
        budget=Budget(steps=240, batch_sequences=8),
        schedule=Schedule(warmup_steps=24, final_lr_ratio=0.1),
        evaluation=Evaluation(every_steps=60, sequences=128),
    ),
    candidates=tuple(
        Candidate(optimizer=name, learning_rates=LEARNING_RATES) for name in ("adamw", "adapm", "adapm-mini")
    ),
    seeds=(1, 2),
    baseline="adamw",
)
