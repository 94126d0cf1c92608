"""Whether AdaPM's state in 8 or 16 bits, and weights in bfloat16, end with the loss of float32, to a margin.

    python -m benchmarks.small_precision
    python -m benchmarks.small_precision --seeds 1 2 3 --steps 50

gpt2-tiny on the interpreter's source; a seed has the same first weights, batches and sketches in every way. Losses are
worked out in float32 from the weights as they are, so that precision differs in the optimizer alone; what is compared
is that of the validation text, after a schedule that ends at zero. Each way is held against float32 weights and state
of the same optimizer, by the comparisons' own paired t-test; the intervals of all ways of an optimizer hold together
with 95 %. A way is as good if its whole interval lies within `MARGIN`, and not worse if it ends below it; the margin
was fixed before the first run, and is the comparisons' own default.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.result_file import write_result
from optim.builder import build
from orchestrator.analysis.estimator import paired_difference
from orchestrator.analysis.verdicts import signed_text
from orchestrator.records import Difference
from worker.data.batches import Batches, validation_sequences
from worker.data.preparation import ensure_dataset
from worker.models import build_model

RESULT = Path("benchmarks/results/small-precision.json")
MARGIN = 0.01
"""Nats."""
SEEDS = range(1, 9)
STEPS = 100
LEARNING_RATE = 1e-3
WARM_UP_STEPS = 15
"""The steps of the warm-up: at a rate of 2e-3, or with six steps of warm-up, rounding moves the loss of these first
steps by hundredths of a nat either way, and no margin can be decided."""
BASELINE = "float32"
WAYS: dict[str, tuple[torch.dtype, dict[str, Any]]] = {
    BASELINE: (torch.float32, {}),
    "bfloat16 state": (torch.float32, {"state_dtype": "bfloat16"}),
    "8-bit state": (torch.float32, {"state_dtype": "int8"}),
    "bfloat16 weights, rounded by chance": (torch.bfloat16, {"bf16_stochastic_round": True}),
    "bfloat16 weights, float32 copies": (torch.bfloat16, {"master_weights": True}),
}
"""Type of weights, options of the optimizer."""
OPTIMIZERS = {"adapm-mini": tuple(WAYS), "adapm": (BASELINE, "8-bit state")}


def final_loss(optimizer_name: str, way: str, seed: int, steps: int, folder: Path) -> float:
    """The validation loss of one training, in nats a token."""
    dtype, options = WAYS[way]
    dataset = ensure_dataset("python-stdlib", "byte", folder)
    batches = Batches(dataset.train, seed=seed, sequences=8, length=64)
    model = nn.Module.to(build_model("gpt2-tiny", seed), dtype)
    optimizer = build(optimizer_name, model, lr=LEARNING_RATE, options={**options, "seed": seed})
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARM_UP_STEPS, (steps - step) / (steps - WARM_UP_STEPS))
    )
    for step in range(steps):
        _loss(model, batches.batch(step)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    held_out = validation_sequences(dataset.validation, sequences=256, length=64)
    with torch.no_grad():
        return _loss(model, held_out).item()


def _loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    exact = {name: value.float() for name, value in model.named_parameters()}
    logits = torch.func.functional_call(model, exact, (tokens[:, :-1],)).logits
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def verdict(difference: Difference) -> str:
    """Return the conclusion of the interval about the margin."""
    if difference.low is None or difference.high is None:
        return "not tested"
    if difference.is_within_margin:
        return "as good"
    if difference.high < MARGIN:
        return "not worse"
    return "worse" if difference.low > MARGIN else "undecided"


def differences(losses: dict[str, list[float]]) -> dict[str, Difference]:
    """Each way of an optimizer against float32, among so many comparisons."""
    difference_by_way: dict[str, Difference] = {}
    for way, values in losses.items():
        if way != BASELINE:
            candidate, baseline = dict(enumerate(values)), dict(enumerate(losses[BASELINE]))
            difference = paired_difference(candidate, baseline, comparisons=len(losses) - 1, margin=MARGIN)
            if difference is not None:
                difference_by_way[way] = difference
    return difference_by_way


def _report(optimizer: str, losses: dict[str, list[float]]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for way, difference in differences(losses).items():
        low, high = (None if bound is None else signed_text(bound) for bound in (difference.low, difference.high))
        sentence = verdict(difference)
        print(f"{optimizer:<12}{way:<38}{signed_text(difference.mean):>9} ({low} to {high})  {sentence}", flush=True)
        figures = {
            "mean": difference.mean,
            "low": difference.low,
            "high": difference.high,
            "p_value": difference.p_value,
            "verdict": sentence,
        }
        rows.append({"optimizer": optimizer, "way": way, **figures})
    return rows


def main() -> None:
    """Train every way, print the verdicts and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[*SEEDS])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--optimizers", nargs="+", choices=OPTIMIZERS, default=[*OPTIMIZERS])
    parser.add_argument("--json", type=Path, default=RESULT, help="where to write the figures")
    chosen = parser.parse_args()
    losses: dict[str, dict[str, list[float]]] = {
        name: {way: [] for way in OPTIMIZERS[name]} for name in chosen.optimizers
    }
    with tempfile.TemporaryDirectory() as folder:
        for count, seed in enumerate(chosen.seeds, 1):
            for name, of_ways in losses.items():
                for way, values in of_ways.items():
                    start = time.process_time()
                    values.append(final_loss(name, way, seed, chosen.steps, Path(folder)))
                    spent = time.process_time() - start
                    print(f"seed {seed:<4}{name:<12}{way:<38}{values[-1]:>9.5f}{spent:>8.1f} CPU s", flush=True)
            figures = {
                "torch": torch.__version__,
                "steps": chosen.steps,
                "learning_rate": LEARNING_RATE,
                "seeds": chosen.seeds[:count],
                "margin_nats": MARGIN,
                "losses": losses,
                "verdicts": [row for name, of_ways in losses.items() for row in _report(name, of_ways)],
            }
            write_result(chosen.json, "small_precision", figures)


if __name__ == "__main__":
    main()
