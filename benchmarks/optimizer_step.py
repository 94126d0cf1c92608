"""Time and transient memory of `step()`: every optimizer of the catalog on the real shapes of a GPT-2.

    python -m benchmarks.optimizer_step --model 124m --threads 2 --json benchmarks/results/step.json

The optimizers take turns in one process, and who begins moves on by one every round, so that a busy machine slows all
of them alike. The table shows the median and the quartiles of the rounds, the ratio of medians to torch's fused AdamW,
and the peak memory that a step takes for a while, in units of the model's largest block. Gradients are random, of
magnitude 1e-3, and shared by all.
"""

import argparse
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import quantiles
from time import perf_counter

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.transient_memory import peak_transient_bytes
from optim import catalog
from optim.build import build

_CONFIGS = {
    "tiny": GPT2Config(
        vocab_size=256, n_positions=256, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0
    ),
    "124m": GPT2Config(),
    "1.5b": GPT2Config(n_embd=1600, n_layer=48, n_head=25),
}
_BASELINE = "adamw"
_FOREACH = "adamw (foreach)"
_LEARNING_RATE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One optimizer's steps."""

    step_seconds: list[float]
    """One a round."""
    transient_bytes: int
    """Peak of what a step allocates, above what was there before."""

    def quartiles(self) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of the rounds, in seconds."""
        lower, middle, upper = quantiles(self.step_seconds, n=4, method="inclusive")
        return lower, middle, upper


def measure(config: GPT2Config, names: list[str], rounds: int, device: torch.device) -> dict[str, Measured]:
    """Every optimizer on a model of its own, after two steps of warming up."""
    torch.manual_seed(0)
    gradients: list[Tensor] = []
    optimizers = {name: _prepared(name, config, gradients, device) for name in names}
    for optimizer in optimizers.values():
        for _ in range(2):
            optimizer.step()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in _rotated(names, number):
            seconds[name].append(_timed(optimizers[name], device))
    return {
        name: Measured(
            step_seconds=seconds[name], transient_bytes=peak_transient_bytes(partial(_step, optimizer), device)
        )
        for name, optimizer in optimizers.items()
    }


def table(measured: dict[str, Measured], largest_block_bytes: int) -> str:
    """One line an optimizer."""
    fused = measured[_BASELINE].quartiles()[1]
    lines = [f"{'optimizer':<18}{'median ms':>11}{'quartiles ms':>20}{'× fused AdamW':>16}{'transient, blocks':>20}"]
    for name, found in measured.items():
        lower, middle, upper = found.quartiles()
        spread = f"{lower * 1e3:.2f} – {upper * 1e3:.2f}"
        blocks = found.transient_bytes / largest_block_bytes
        lines.append(f"{name:<18}{middle * 1e3:>11.2f}{spread:>20}{middle / fused:>16.2f}{blocks:>20.2f}")
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(_CONFIGS), default="tiny")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--optimizers", nargs="*", default=[], help=f"catalog names besides {_BASELINE}; default: all")
    parser.add_argument("--json", type=Path, default=None, help="where to write the figures")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    config = _CONFIGS[chosen.model]
    names = [_BASELINE, _FOREACH, *(n for n in chosen.optimizers or catalog.names() if n != _BASELINE)]
    measured = measure(config, names, chosen.rounds, chosen.device)
    largest = _largest_block_bytes(config)
    print(table(measured, largest))
    if chosen.json is not None:
        about = {
            "model": chosen.model,
            "device": str(chosen.device),
            "machine": _machine(chosen.device),
            "threads": chosen.threads,
            "load_average_at_end": os.getloadavg()[0],
            "torch": torch.__version__,
            "largest_block_bytes": largest,
        }
        found = {name: asdict(one) for name, one in measured.items()}
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps({**about, "optimizers": found}, indent=2) + "\n")


def _prepared(name: str, config: GPT2Config, gradients: list[Tensor], device: torch.device) -> torch.optim.Optimizer:
    """The optimizer on a model of its own; the first one draws the gradients that all of them have."""
    model = GPT2LMHeadModel(config).to(device)
    if not gradients:
        gradients.extend(torch.randn_like(parameter) * 1e-3 for parameter in model.parameters())
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    if name == _FOREACH:
        return torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, foreach=True)
    return build(name, model, lr=_LEARNING_RATE)


def _rotated(names: list[str], by: int) -> Iterator[str]:
    start = by % len(names)
    yield from names[start:]
    yield from names[:start]


def _step(optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()


def _timed(optimizer: torch.optim.Optimizer, device: torch.device) -> float:
    """Seconds of one step, the device's work included."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = perf_counter()
    optimizer.step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter() - start


def _largest_block_bytes(config: GPT2Config) -> int:
    with torch.device("meta"):
        model = GPT2LMHeadModel(config)
    return max(parameter.nbytes for parameter in model.parameters())


def _machine(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
