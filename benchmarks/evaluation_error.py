"""The change of a difference of two losses with another validation text, times the root of the text's tokens.

    python -m benchmarks.evaluation_error [--json FILE]

Trains a few optimizers on the same text and seed, takes the loss of every validation token, and prints for each pair
the standard deviation of the difference of a sequence's mean loss, times the root of the sequence's tokens. Divided by
the root of all validation tokens that is the standard error of the difference of the two final losses, which
`orchestrator.analysis.comparison.EVALUATION_ERROR` stands for. Two minutes on one core.
"""

import argparse
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from worker.reporting.reporter import Reporter
from worker.run import Folders, run
from worker.spec.run import RunSpec
from worker.tasks.next_token import NextTokenTask

TRAININGS: dict[tuple[str, int, int], dict[str, float]] = {
    ("gpt2-nano", 64, 1024): {"adamw": 0.004, "adapm": 0.004, "adapm-mini": 0.004, "lion": 0.0008},
    ("gpt2-tiny", 128, 512): {"adamw": 0.002, "adapm": 0.002, "muon": 0.01},
}
"""Model, tokens of a sequence, validation sequences ─► learning rate of each optimizer."""
STEPS = 150


class TokenLosses:
    """Takes the loss of every validation token at the end of each evaluation."""

    def __init__(self) -> None:
        self.newest = torch.empty(0)
        self._mean_loss = NextTokenTask.validation_loss

    @torch.no_grad()
    def __call__(self, task: NextTokenTask, micro_batch_sequences: int) -> float:
        """Replace `NextTokenTask.validation_loss`; keeps float32 (sequences, length)."""
        task.model.eval()
        inputs, targets = (torch.split(rows, micro_batch_sequences) for rows in task.validation)
        self.newest = torch.cat(
            [
                F.cross_entropy(task.model(x).logits.float().mT, y, reduction="none")
                for x, y in zip(inputs, targets, strict=True)
            ]
        )
        task.model.train()
        return self._mean_loss(task, micro_batch_sequences)


def main() -> None:
    """Train, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    arguments = parser.parse_args()
    token_losses = TokenLosses()
    # On purpose: the worker's own evaluation, with every token's loss kept.
    NextTokenTask.validation_loss = lambda task, sequences: token_losses(task, sequences)  # type: ignore[assignment, method-assign]
    pairs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for (model, length, sequences), rates in TRAININGS.items():
            losses = {}
            for optimizer, lr in rates.items():
                spec = _spec(model, length, sequences, optimizer, lr)
                folders = Folders(run_folder=Path(folder, model, optimizer), dataset_folder=Path(folder, "data"))
                folders.run_folder.mkdir(parents=True)
                run(spec, Reporter(), folders)
                losses[optimizer] = token_losses.newest
            for first, other in itertools.combinations(losses, 2):
                of_sequences = (losses[first] - losses[other]).mean(1)
                error = float(of_sequences.std()) * length**0.5
                pairs.append(
                    {"model": model, "pair": [first, other], "difference": float(of_sequences.mean()), "error": error}
                )
                print(
                    f"{model}  {first} - {other}: {pairs[-1]['difference']:+.4f} nats, {error:.2f} nats × √tokens",
                    flush=True,
                )
    if arguments.json:
        arguments.json.write_text(json.dumps(pairs, indent=2) + "\n")


def _spec(model: str, length: int, sequences: int, optimizer: str, lr: float) -> RunSpec:
    return RunSpec.model_validate(
        {
            "workload": {
                "model": model,
                "data": {"dataset": "python-stdlib", "tokenizer": "byte", "sequence_length_tokens": length},
                "budget": {"steps": STEPS, "batch_sequences": 16},
                "schedule": {"warmup_steps": STEPS // 10},
                "evaluation": {"every_steps": STEPS, "sequences": sequences},
            },
            "optimizer": {"name": optimizer, "lr": lr},
            "seed": 1,
        }
    )


if __name__ == "__main__":
    main()
