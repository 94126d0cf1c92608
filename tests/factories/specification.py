"""A run of seconds: gpt2-tiny on short sequences."""

from worker.spec.run import Budget, DataSpec, Evaluation, OptimizerSpec, RunSpec, Schedule, Workload


def made_spec(
    *, optimizer: str = "adamw", lr: float = 2e-3, steps: int = 12, model: str = "gpt2-tiny", seed: int = 1
) -> RunSpec:
    """`steps` steps of 4 × 32 tokens, evaluated every 5 steps."""
    return RunSpec(
        workload=Workload(
            model=model,
            data=DataSpec(sequence_length_tokens=32),
            budget=Budget(steps=steps, batch_sequences=4),
            schedule=Schedule(warmup_steps=2),
            evaluation=Evaluation(every_steps=5, sequences=8),
        ),
        optimizer=OptimizerSpec(name=optimizer, lr=lr),
        seed=seed,
    )
