"""Time and transient memory of `step()` on the real shapes of a model: AdaPM and AdaPM-mini beside torch's AdamW.

    python -m benchmarks.optimizer_step --model 124m --threads 2 --json benchmarks/results/step.json
    python -m benchmarks.optimizer_step --model 1.5b --device cuda --json benchmarks/results/step-cuda.json
    python -m benchmarks.optimizer_step --optimizers lion muon soap
    python -m benchmarks.optimizer_step --model 124m --pairs --optimizers all --json benchmarks/results/catalog.json

The optimizers take turns in one process, and who begins moves on by one every round, so that a busy machine slows all
of them alike. With `--pairs` each takes turns with fused AdamW alone and is forgotten before the next one begins: the
states of the whole catalog would not fit into memory together. The table shows the median and the quartiles of the
rounds and three ratios to torch's fused AdamW: of medians, of the least over the repetitions of their medians, and of
CPU time (all threads), which other programs on the machine disturb least. Then the seconds of the first step (state,
and what is compiled), and the peak memory that a step takes for a while, in units of the model's largest block.
Gradients are random, of magnitude 1e-3, and shared.
"""

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, process_time

import torch
from torch import Tensor, nn
from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto.modeling_auto import AutoModelForCausalLM
from transformers.models.gpt2.configuration_gpt2 import GPT2Config
from transformers.models.llama.configuration_llama import LlamaConfig

from benchmarks.result_file import processor
from benchmarks.transient_memory import peak_transient_bytes
from optim import catalog
from optim.adapm import AdaPM
from optim.adapm.devices import MATMUL_PRECISIONS
from optim.builder import build
from optim.state import state_bytes

CONFIGS: Mapping[str, PreTrainedConfig] = {
    "tiny": GPT2Config(
        vocab_size=256, n_positions=256, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0
    ),
    "124m": GPT2Config(),
    "1.5b": GPT2Config(n_embd=1600, n_layer=48, n_head=25),
    "llama-1b": LlamaConfig(
        vocab_size=128256,
        hidden_size=2048,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=8192,
        tie_word_embeddings=True,
    ),
}
_BASELINE = "adamw"
_USUAL = ("adapm", "adapm-mini")
_COMPILE = {"auto": None, "yes": True, "no": False}
_FOREACH = "adamw (foreach)"
_LEARNING_RATE = 1e-3


def new_model(config: PreTrainedConfig) -> nn.Module:
    """A model of that configuration, on the device that torch makes tensors on."""
    model: nn.Module = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]  # no types for it
    return model


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The steps of one optimizer."""

    step_seconds: list[float]
    """The seconds of each round, all repetitions in order."""
    cpu_seconds: list[float]
    """The CPU time of this process in the same steps."""
    first_step_seconds: float
    """The step that allocates the state, and compiles."""
    repetitions: int
    transient_bytes: int
    """Peak of what a step allocates, above what was there before."""
    state_bytes: int
    """The optimizer's state after its first steps."""

    def quartiles(self) -> tuple[float, float, float]:
        """Lower quartile, median and upper quartile of the rounds, in seconds."""
        lower, middle, upper = quantiles(self.step_seconds, n=4, method="inclusive")
        return lower, middle, upper

    def least_median(self) -> float:
        """The least, over the repetitions, of the median of their rounds, in seconds."""
        rounds = len(self.step_seconds) // self.repetitions
        starts = range(0, len(self.step_seconds), rounds)
        return min(median(self.step_seconds[start : start + rounds]) for start in starts)


def measure(
    config: PreTrainedConfig,
    names: list[str],
    *,
    rounds: int,
    repetitions: int,
    device: torch.device,
    compile: bool | None,
    precision: str | None = None,
) -> dict[str, Measured]:
    """Every optimizer on a model of its own, after two steps of warming up."""
    torch.manual_seed(0)
    gradients: list[Tensor] = []
    optimizers = {name: _prepared(name, config, gradients, device, compile, precision) for name in names}
    first = {name: _timed(optimizer, device)[0] for name, optimizer in optimizers.items()}
    for optimizer in optimizers.values():
        optimizer.step()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(rounds * repetitions):
        for name in _rotated(names, number):
            times[name].append(_timed(optimizers[name], device))
    return {
        name: Measured(
            step_seconds=[wall for wall, _ in times[name]],
            cpu_seconds=[cpu for _, cpu in times[name]],
            first_step_seconds=first[name],
            repetitions=repetitions,
            transient_bytes=peak_transient_bytes(optimizer.step, device),
            state_bytes=state_bytes(optimizer).total_bytes,
        )
        for name, optimizer in optimizers.items()
    }


HEADER = (
    f"{'optimizer':<19}{'median ms':>10}{'quartiles ms':>19}{'× fused':>9}{'× least':>9}{'× CPU':>7}{'first s':>9}"
    f"{'transient':>11}{'state GB':>10}"
)


def line(name: str, measurement: Measured, fused: Measured, largest_block_bytes: int) -> str:
    """Return a line for an optimizer; after its times: × fused AdamW (3), seconds, largest blocks, gigabytes."""
    lower, middle, upper = measurement.quartiles()
    spread = f"{lower * 1e3:.2f} – {upper * 1e3:.2f}"
    ratios = (
        middle / fused.quartiles()[1],
        measurement.least_median() / fused.least_median(),
        median(measurement.cpu_seconds) / median(fused.cpu_seconds),
    )
    return (
        f"{name:<19}{middle * 1e3:>10.2f}{spread:>19}{ratios[0]:>9.2f}{ratios[1]:>9.2f}{ratios[2]:>7.2f}"
        f"{measurement.first_step_seconds:>9.2f}{measurement.transient_bytes / largest_block_bytes:>11.2f}"
        f"{measurement.state_bytes / 1e9:>10.3f}"
    )


def main() -> None:
    """Measure, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(CONFIGS), default="tiny")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repetitions", type=int, default=3, help="of all the rounds")
    parser.add_argument("--compile", choices=sorted(_COMPILE), default="auto", help="for AdaPM and AdaPM-mini")
    parser.add_argument("--precision", choices=MATMUL_PRECISIONS, help="matmul_precision of AdaPM and AdaPM-mini")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--optimizers",
        nargs="*",
        default=list(_USUAL),
        help=f"catalog names besides {_BASELINE}, or `all`; default: {', '.join(_USUAL)}",
    )
    parser.add_argument("--pairs", action="store_true", help="one at a time beside fused AdamW: for many optimizers")
    parser.add_argument("--json", type=Path, default=None, help="where to write the figures")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    config = CONFIGS[chosen.model]
    wanted_names = catalog.names() if chosen.optimizers == ["all"] else chosen.optimizers
    names = [_FOREACH, *(name for name in wanted_names if name != _BASELINE)]
    groups = [[_BASELINE, name] for name in names] if chosen.pairs else [[_BASELINE, *names]]
    largest = _largest_block_bytes(config)
    print(HEADER)
    results: list[dict[str, object]] = []
    for group in groups:
        measured = measure(
            config,
            group,
            rounds=chosen.rounds,
            repetitions=chosen.repetitions,
            device=chosen.device,
            compile=_COMPILE[chosen.compile],
            precision=chosen.precision,
        )
        for name, measurement in measured.items():
            if name != _BASELINE or not results:
                print(line(name, measurement, measured[_BASELINE], largest), flush=True)
        results.append({name: asdict(measurement) for name, measurement in measured.items()})
    if chosen.json is not None:
        facts = {
            "model": chosen.model,
            "device": str(chosen.device),
            "machine": torch.cuda.get_device_name(chosen.device) if chosen.device.type == "cuda" else processor(),
            "threads": chosen.threads,
            "compile": chosen.compile,
            "precision": chosen.precision,
            "load_average_at_end": os.getloadavg()[0],
            "torch": torch.__version__,
            "largest_block_bytes": largest,
        }
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps({**facts, "measured_together": results}, indent=2) + "\n")


def _prepared(
    name: str,
    config: PreTrainedConfig,
    gradients: list[Tensor],
    device: torch.device,
    compile: bool | None,
    precision: str | None,
) -> torch.optim.Optimizer:
    """The optimizer on a model of its own; the first one draws the gradients that all of them have."""
    with device:  # where a large model is drawn in no time
        model = new_model(config)
    if not gradients:
        gradients.extend(torch.randn_like(parameter) * 1e-3 for parameter in model.parameters())
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    if name == _FOREACH:
        return torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, foreach=True)
    optimizer = build(name, model, lr=_LEARNING_RATE)
    if isinstance(optimizer, AdaPM):
        optimizer.compile = compile
        for group in optimizer.param_groups:
            group["matmul_precision"] = precision
    return optimizer


def _rotated(names: list[str], offset: int) -> Iterator[str]:
    start = offset % len(names)
    yield from names[start:]
    yield from names[:start]


def _timed(optimizer: torch.optim.Optimizer, device: torch.device) -> tuple[float, float]:
    """Seconds of one step, the device's work included, and CPU seconds of this process."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start, cpu = perf_counter(), process_time()
    optimizer.step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter() - start, process_time() - cpu


def _largest_block_bytes(config: PreTrainedConfig) -> int:
    with torch.device("meta"):
        model = new_model(config)
    return max(parameter.nbytes for parameter in model.parameters())


if __name__ == "__main__":
    main()
