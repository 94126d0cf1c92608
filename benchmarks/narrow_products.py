"""How far TF32, once and in two parts, and bfloat16 in AdaPM's products with the gradient move a training, on a CPU.

    python -m benchmarks.narrow_products
    python -m benchmarks.narrow_products --steps 200 --seeds 1 2 3

gpt2-tiny on the interpreter's source, with the same weights, batches and sketches. Beside the final loss stands the
distance of all weights from those of IEEE float32, as a share of the way that these went; a training in IEEE float32 at
a learning rate of one part in a million more shows how far chaos alone takes them. The residual is the share
||L R - M|| / ||M|| of the momentum that the factors miss, found each way of the very momenta of the training in IEEE
float32, on average over its steps and blocks.
"""

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.result_file import write_result
from optim.adapm.low_rank import Factors, Momentum
from optim.adapm.solvers import SOLVERS, subspace
from optim.builder import build
from tests.twins.narrow_products import BFLOAT16_BITS, TF32_BITS, emulate_products
from worker.data.batches import Batches
from worker.data.preparation import ensure_dataset
from worker.models import build_model

RESULT = Path("benchmarks/results/narrow-products.json")
LEARNING_RATE = 4e-3
WAYS: dict[str, dict[str, Any]] = {
    "3 x tf32": {"bits": TF32_BITS, "in_parts": True},
    "tf32": {"bits": TF32_BITS},
    "bf16": {"bits": BFLOAT16_BITS},
}
CHAOS = "ieee, other rate"


class Residuals:
    """The solver `subspace`, which also tries every way on each momentum that it is given."""

    def __init__(self) -> None:
        self.of: dict[str, list[Tensor]] = {"ieee": [], **{way: [] for way in WAYS}}

    def solve(self, momenta: Sequence[Momentum], **how: Any) -> list[Factors]:
        exact = subspace(momenta, **how)
        self._add("ieee", exact, momenta)
        for way, how_narrow in WAYS.items():
            with emulate_products(**how_narrow):
                self._add(way, subspace([replace(one, precision="high") for one in momenta], **how), momenta)
        return exact

    def _add(self, way: str, found: Sequence[Factors], momenta: Sequence[Momentum]) -> None:
        for factors, momentum in zip(found, momenta, strict=True):
            dense = momentum.dense()
            missed = torch.linalg.vector_norm(factors.left @ factors.right - dense, dim=(-2, -1))
            self.of[way].append((missed / torch.linalg.vector_norm(dense, dim=(-2, -1))).flatten())


def train(seed: int, steps: int, narrow: dict[str, Any] | None, rate: float, folder: Path) -> tuple[nn.Module, float]:
    """The trained model, and the mean loss of its last ten steps."""
    dataset = ensure_dataset("python-stdlib", "byte", folder)
    batches = Batches(dataset.train, seed=seed, sequences=8, length=128)
    model = build_model("gpt2-tiny", seed)
    optimizer = build("adapm", model, lr=rate, options={"matmul_precision": "highest" if narrow is None else "high"})
    losses = []
    with nullcontext() if narrow is None else emulate_products(**narrow):
        for step in range(steps):
            tokens = batches.batch(step)
            logits = model(tokens[:, :-1]).logits
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()  # type: ignore[no-untyped-call]  # torch publishes no types for it
            losses.append(loss.item())
            optimizer.step()
            optimizer.zero_grad()
    return model, fmean(losses[-10:])


def _flat(model: nn.Module) -> Tensor:
    return torch.cat([value.detach().flatten() for value in model.parameters()]).double()


def main() -> None:
    """Train each way, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--json", type=Path, default=RESULT, help="where to write the figures")
    chosen = parser.parse_args()
    found = []
    print(f"{'seed':<6}{'products':<20}{'loss':>10}{'residual':>11}{'distance':>11}")
    with tempfile.TemporaryDirectory() as folder:
        for seed in chosen.seeds:
            residuals = Residuals()
            start = _flat(build_model("gpt2-tiny", seed))
            with patch.dict(SOLVERS, {"subspace": residuals.solve}):
                model, loss = train(seed, chosen.steps, None, LEARNING_RATE, Path(folder))
            exact = _flat(model)
            trained = {"ieee": (model, loss)}
            trained[CHAOS] = train(seed, chosen.steps, None, LEARNING_RATE * (1.0 + 1e-6), Path(folder))
            trained |= {way: train(seed, chosen.steps, one, LEARNING_RATE, Path(folder)) for way, one in WAYS.items()}
            for way, (model, loss) in trained.items():
                distance = ((_flat(model) - exact).norm() / (exact - start).norm()).item()
                residual = torch.cat(residuals.of["ieee" if way == CHAOS else way]).mean().item()
                print(f"{seed:<6}{way:<20}{loss:>10.5f}{residual:>11.5f}{distance:>11.2e}", flush=True)
                found.append({"seed": seed, "products": way, "loss": loss, "residual": residual, "distance": distance})
    write_result(chosen.json, "narrow_products", {"torch": torch.__version__, "steps": chosen.steps, "found": found})


if __name__ == "__main__":
    main()
