"""The memory that `adapm-bench models MODEL --memory GIB` counts, against the peak that the worker measures in a run.

    python -m benchmarks.counted_memory --json benchmarks/results/counted-memory.json

Every cell trains two steps of two micro-batches on random tokens, on one thread; the worker's own meter records the
second. Three ways: float32; bfloat16 with activation checkpointing; and so few tokens that the optimizer's step, not
the backward pass, is the highest moment.
"""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.result_file import write_result
from optim.builder import build
from optim.catalog import entry
from worker.distributed.process_group import ALONE
from worker.footprint.count import footprint
from worker.models import build_model, prepare
from worker.records.footprint import Footprint
from worker.spec.parts import Precision
from worker.spec.run import Budget, DataSpec, Execution, OptimizerSpec, RunSpec, Schedule, Workload
from worker.tasks.next_token import NextTokenTask
from worker.training.step import Stepper

MODELS = ("gpt2-micro", "gpt2-tiny", "llama-tiny")
OPTIMIZERS = ("adamw", "adam-mini", "adapm", "adapm-mini", "muon", "lion")


@dataclass(frozen=True, kw_only=True)
class Way:
    """The training of the cells of one table."""

    precision: Precision
    checkpointing: bool
    length: int
    sequences: int
    """The sequences of a micro-batch; a step has two."""


WAYS = (
    Way(precision="fp32", checkpointing=False, length=128, sequences=4),
    Way(precision="bf16", checkpointing=True, length=128, sequences=4),
    Way(precision="fp32", checkpointing=False, length=8, sequences=1),
)


class RandomTokens(NextTokenTask):
    """Batches of random tokens."""

    def _batch(self, step: int, share: slice) -> tuple[Tensor, Tensor, int]:
        generator = torch.Generator().manual_seed(step)
        text = torch.randint(0, 256, (self._sequences, self._length + 1), generator=generator)[share]
        return text[:, :-1], text[:, 1:], self.tokens_per_step


def measured_bytes(model: str, optimizer: str, way: Way) -> tuple[int, str]:
    """(the peak of tensors in the second step, its phase), by the worker's meter."""
    spec = RunSpec(
        workload=Workload(
            model=model,
            data=DataSpec(dataset="python-stdlib", sequence_length_tokens=way.length),
            budget=Budget(steps=2, batch_sequences=2 * way.sequences),
            schedule=Schedule(warmup_steps=0),
            precision=way.precision,
            execution=Execution(activation_checkpointing=way.checkpointing),
        ),
        optimizer=OptimizerSpec(name=optimizer, lr=entry(optimizer).learning_rate),
        seed=0,
    )
    trained = build_model(model, 0)
    prepare(trained, spec.workload.execution)
    built = build(optimizer, trained, lr=spec.optimizer.lr)
    nothing = torch.zeros(1, way.length, dtype=torch.int64)
    task = RandomTokens(trained, "", (nothing, nothing), spec, ALONE)
    stepper = Stepper(task, built, spec.workload, torch.device("cpu"), way.sequences)
    stepper.take(0)
    meter = stepper.breakdown_meter()
    stepper.take(1, meter)
    result = meter.result(2, way.sequences)
    return result.peak_bytes, result.phase


def counted_bytes(counted: Footprint, way: Way) -> dict[str, int]:
    """Optimizer → the peak that was counted."""
    fits = counted.fit(1.0, way.sequences).fits
    return {fit.optimizer: fit.peak_bytes for fit in fits if fit.checkpointing is way.checkpointing}


def main() -> None:
    """Count, measure, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=None, help="where to write the figures")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    cells = []
    for way in WAYS:
        for model in MODELS:
            memory = footprint(model, OPTIMIZERS, precision=way.precision, sequence_length_tokens=way.length)
            counted = counted_bytes(memory, way)
            for optimizer in OPTIMIZERS:
                measured, phase = measured_bytes(model, optimizer, way)
                error = counted[optimizer] / measured - 1
                cells.append(
                    {
                        **asdict(way),
                        "model": model,
                        "optimizer": optimizer,
                        "measured_bytes": measured,
                        "counted_bytes": counted[optimizer],
                        "error": error,
                        "phase": phase,
                    }
                )
                ways = f"{way.precision:5} {'checkpointing' if way.checkpointing else '':14} {way.length:4} tokens"
                print(
                    f"{ways} {model:11} {optimizer:11} {measured:>12,} {counted[optimizer]:>12,} {error:+8.2%} {phase}",
                    flush=True,
                )
    if chosen.json is not None:
        write_result(chosen.json, "counted_memory", {"torch": torch.__version__, "cells": cells})


if __name__ == "__main__":
    main()
