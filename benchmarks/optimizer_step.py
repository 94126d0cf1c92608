"""Time of `step()`: every optimizer of the catalog on the real shapes of a GPT-2, beside torch's foreach AdamW.

    python -m benchmarks.optimizer_step --model 124m --threads 2 --json step.json

The optimizers take turns in one process, so that a busy machine slows all of them alike; the table shows the median and
the fastest of the rounds, and their ratio to torch's fused AdamW. Gradients are random, of magnitude 1e-3.
"""

import argparse
import json
import platform
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from optim import catalog
from optim.build import build

_CONFIGS = {
    "tiny": GPT2Config(
        vocab_size=256, n_positions=256, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0
    ),
    "124m": GPT2Config(),
}
_BASELINE = "adamw"
_FOREACH = "adamw (foreach)"
_LEARNING_RATE = 1e-3


def measure(config: GPT2Config, rounds: int) -> dict[str, list[float]]:
    """Seconds of each `step()`: optimizer name → one figure a round, the first (allocating) round left out."""
    optimizers = {name: _prepared(name, config) for name in (*catalog.names(), _FOREACH)}
    seconds: dict[str, list[float]] = {name: [] for name in optimizers}
    for _ in range(rounds + 1):
        for name, optimizer in optimizers.items():
            start = perf_counter()
            optimizer.step()
            seconds[name].append(perf_counter() - start)
    return {name: figures[1:] for name, figures in seconds.items()}


def table(seconds: dict[str, list[float]]) -> str:
    """Optimizer, median and fastest step in milliseconds, ratio of medians to the fused AdamW."""
    fused = median(seconds[_BASELINE])
    lines = [f"{'optimizer':<18}{'median ms':>12}{'fastest ms':>12}{'× fused AdamW':>16}"]
    for name, figures in seconds.items():
        middle = median(figures)
        lines.append(f"{name:<18}{middle * 1e3:>12.2f}{min(figures) * 1e3:>12.2f}{middle / fused:>16.2f}")
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(_CONFIGS), default="tiny")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, default=None, help="where to write the figures")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    seconds = measure(_CONFIGS[chosen.model], chosen.rounds)
    print(table(seconds))
    if chosen.json is not None:
        about = {
            "model": chosen.model,
            "threads": chosen.threads,
            "machine": platform.processor() or platform.machine(),
        }
        chosen.json.write_text(json.dumps({**about, "torch": torch.__version__, "step_seconds": seconds}, indent=2))


def _prepared(name: str, config: GPT2Config) -> torch.optim.Optimizer:
    """The optimizer on a model of its own, gradients in place."""
    torch.manual_seed(0)
    model: nn.Module = GPT2LMHeadModel(config)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) * 1e-3
    if name == _FOREACH:
        return torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, foreach=True)
    return build(name, model, lr=_LEARNING_RATE)


if __name__ == "__main__":
    main()
