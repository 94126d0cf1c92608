"""The built-in comparison of `adapm-bench demo`: AdaPM and AdaPM-mini against AdamW on a GPT-2 of 0.08 M parameters."""

from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import Tuning
from worker.spec.run import Budget, DataSpec, Evaluation, Schedule, Workload

LEARNING_RATES = (2e-3, 4e-3, 8e-3)
"""Around the best rate of all three at this size, so that it has a worse one on either side."""

DEMO = ComparisonSpec(
    name="AdaPM and AdaPM-mini against AdamW",
    workload=Workload(
        model="gpt2-nano",
        data=DataSpec(dataset="python-stdlib", tokenizer="byte", sequence_length_tokens=128),
        budget=Budget(steps=150, batch_sequences=8),
        schedule=Schedule(warmup_steps=15, final_lr_ratio=0.1),
        evaluation=Evaluation(every_steps=30, sequences=128),
    ),
    candidates=tuple(
        Candidate(optimizer=name, learning_rates=LEARNING_RATES) for name in ("adamw", "adapm", "adapm-mini")
    ),
    tuning=Tuning(seeds=(0,), extend_grid=2),
    seeds=(1, 2, 3, 4, 5),
    baseline="adamw",
)
