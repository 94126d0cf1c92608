"""The cost of the worker around a training: measuring, reporting, checkpoints, the library's model, resuming, memory.

    python -m benchmarks.worker_overhead --model gpt2-tiny --rounds 60 --json benchmarks/results/worker.json

Three loops take turns in one process, step by step, and who begins moves on by one every round:

    worker   the worker's own loop: batches, steps with all meters, points into a file
    bare     the same model, batches, clipping and optimizer in ten lines of PyTorch
    plain    a small script's own GPT-2 (`plain_gpt.py`) with torch's fused AdamW

Wall-clock and CPU seconds are both given: on a busy machine the second is the steadier. Checkpoints are timed by
themselves, since their clock would run while the others take their turns: one, by the time between two, is added to the
ratio. Then a resume, and a worker of its own for the memory before the model.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.plain_gpt import PlainGPT
from optim.builder import build
from worker.catalog.presets import preset
from worker.data.batches import Batches
from worker.data.preparation import ensure_dataset
from worker.data.shards import TokenDataset
from worker.meters.clock import DeviceClock
from worker.meters.memory import MemoryMeter
from worker.models import build_model
from worker.records.result import Point
from worker.reporting.reporter import FileReporter, read_reports
from worker.run import CHECKPOINT_FOLDER, CHECKPOINT_SECONDS
from worker.spec.run import Budget, DataSpec, Evaluation, OptimizerSpec, Resources, RunSpec, Workload
from worker.tasks.next_token import Pretraining
from worker.termination import Termination
from worker.training.checkpoint import LARGEST_SHARE, CheckpointStore
from worker.training.device import MemoryCap, configured_device, synchronize
from worker.training.loop import Training, TrainingContext
from worker.training.progress import TrainingProgress
from worker.training.step import Stepper

WARMUP = 3
"""Steps before the rounds: the worker records two."""
_RSS = (
    "import sys, json\n"
    "from pathlib import Path\n"
    "from worker.run import Folders, run\n"
    "from worker.reporting.reporter import Reporter\n"
    "from worker.spec.run import RunSpec\n"
    "spec, folder, datasets = RunSpec.model_validate_json(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])\n"
    "result = run(spec, Reporter(), Folders(run_folder=folder, dataset_folder=datasets))\n"
    "print(result.peak_memory.host_rss_before_bytes)\n"
)


@dataclass(frozen=True, kw_only=True)
class Times:
    """The times of one loop's steps, one value a round."""

    wall_seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)


def main() -> None:
    """Measure, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gpt2-tiny", help="a GPT-2 preset")
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--json", type=Path, default=None, help="where to write the figures")
    chosen = parser.parse_args()
    spec = _spec(chosen)
    with tempfile.TemporaryDirectory() as folder, configured_device(spec.resources) as device:
        figures = measure(spec, Path(folder), device, chosen.rounds)
    print(table(figures))
    if chosen.json is not None:
        facts = {"arguments": {k: v for k, v in vars(chosen).items() if k != "json"}, "torch": torch.__version__}
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps({**facts, **figures}, indent=2) + "\n")


def measure(spec: RunSpec, folder: Path, device: torch.device, rounds: int) -> dict[str, Any]:
    """Every figure of this benchmark."""
    dataset = ensure_dataset("python-stdlib", "byte", folder / "datasets")
    worker, run_folder = _training(spec, dataset, folder / "run", device), folder / "run"
    worker.resume(None)
    loops: dict[str, Callable[[], None]] = {
        "worker": worker.advance,
        "bare": _bare(spec, dataset, device, build_model(spec.workload.model, spec.seed), plain=False),
        "plain": _bare(spec, dataset, device, PlainGPT(preset(spec.workload.model)), plain=True),
    }
    times = _take_turns(loops, rounds, device)
    checkpoint_seconds = _checkpoint_seconds(worker)
    points = [point for point in read_reports(run_folder, Point) if point.step > WARMUP]
    data_share = sum(point.data_seconds or 0.0 for point in points) / sum(point.step_seconds or 1.0 for point in points)
    return {
        "load_average_at_end": os.getloadavg()[0],
        "times": {name: asdict(loop_times) for name, loop_times in times.items()},
        "tokens_per_step": spec.workload.tokens() // spec.workload.budget.steps,
        "data_share": data_share,
        "checkpoint_seconds": checkpoint_seconds,
        "checkpoint_share": checkpoint_seconds / max(CHECKPOINT_SECONDS, checkpoint_seconds / LARGEST_SHARE),
        **_resume(spec, dataset, folder / "run", device),
        "host_rss_before_model_bytes": _rss_before_model(spec, folder),
    }


def table(figures: dict[str, Any]) -> str:
    """The figures against their targets."""
    times: dict[str, dict[str, list[float]]] = figures["times"]
    tokens: int = figures["tokens_per_step"]
    lines = [f"{'loop':<10}{'median ms':>12}{'tokens/s':>12}{'CPU ms a step':>16}"]
    for name, loop_times in times.items():
        median = statistics.median(loop_times["wall_seconds"])
        cpu = statistics.fmean(loop_times["cpu_seconds"])
        lines.append(f"{name:<10}{1e3 * median:>12.2f}{tokens / median:>12.0f}{1e3 * cpu:>16.2f}")
    share: float = figures["checkpoint_share"]
    for peer in ("bare", "plain"):
        cpu, wall = (_ratio(times, kind, peer) + share for kind in ("cpu_seconds", "wall_seconds"))
        lines.append(f"worker / {peer}: {cpu:.4f} in CPU time, {wall:.4f} in wall-clock time")
    lines.append(f"of it checkpoints: {share:.4f}, {figures['checkpoint_seconds']:.3f} s each")
    lines.append(f"data: {100 * figures['data_share']:.3f} % of the step time")
    lines.append(f"resume: {figures['resume_seconds']:.3f} s beyond {figures['read_seconds']:.3f} s of reading")
    rss = figures["host_rss_before_model_bytes"] / 2**20
    lines.append(f"worker before the model: {rss:.0f} MiB resident")
    return "\n".join(lines)


def _ratio(times: dict[str, dict[str, list[float]]], kind: str, peer: str) -> float:
    """The worker's time by another loop's in the same round: the median over the rounds."""
    pairs = zip(times["worker"][kind], times[peer][kind], strict=True)
    return statistics.median(worker_time / peer_time for worker_time, peer_time in pairs)


def _checkpoint_seconds(worker: Training) -> float:
    """The median of three checkpoints."""
    seconds = []
    for _ in range(3):
        started = perf_counter()
        worker.save()
        seconds.append(perf_counter() - started)
    return statistics.median(seconds)


def _spec(chosen: argparse.Namespace) -> RunSpec:
    return RunSpec(
        workload=Workload(
            model=chosen.model,
            data=DataSpec(sequence_length_tokens=chosen.length),
            budget=Budget(steps=1_000_000, batch_sequences=chosen.sequences),
            evaluation=Evaluation(every_steps=1_000_000, sequences=1),
        ),
        optimizer=OptimizerSpec(name="adamw", lr=1e-4),
        seed=0,
        resources=Resources(cpus=chosen.threads, gpus=int(chosen.gpu)),
    )


def _training(spec: RunSpec, dataset: TokenDataset, folder: Path, device: torch.device) -> Training:
    """Return a training as `worker/run.py` builds it."""
    model = build_model(spec.workload.model, spec.seed)
    nn.Module.to(model, device)
    optimizer = build(spec.optimizer.name, model, lr=spec.optimizer.lr, options={})
    batch = spec.workload.budget.batch_sequences
    stepper = Stepper(Pretraining(model, dataset, spec), optimizer, spec.workload, device, batch)
    context = TrainingContext(
        device=device,
        reporter=FileReporter(folder),
        checkpoints=CheckpointStore(folder / CHECKPOINT_FOLDER, spec.content_hash()),
        checkpoint_seconds=float("inf"),
        memory=MemoryMeter(device),
        clock=DeviceClock(),
        termination=Termination(),
        cap=MemoryCap(device, None),
    )
    return Training(stepper, spec.workload, TrainingProgress(steps=spec.workload.budget.steps), context)


def _bare(
    spec: RunSpec, dataset: TokenDataset, device: torch.device, model: nn.Module, *, plain: bool
) -> Callable[[], None]:
    """A step of a loop that measures and keeps nothing but its loss."""
    nn.Module.to(model, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.optimizer.lr, fused=True)
    sequences, length = spec.workload.budget.batch_sequences, spec.workload.data.sequence_length_tokens
    batches = Batches(dataset.train, seed=spec.seed, sequences=sequences, length=length)
    step = 0

    def take() -> None:
        nonlocal step
        tokens = batches.batch(step).to(device)
        step += 1
        logits = model(tokens[:, :-1]) if plain else model(tokens[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]  # torch publishes no types for it
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    return take


def _take_turns(loops: dict[str, Callable[[], None]], rounds: int, device: torch.device) -> dict[str, Times]:
    """Time one step of each, round after round."""
    names = list(loops)
    times = {name: Times() for name in names}
    for number in range(-WARMUP, rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            synchronize(device)
            wall, cpu = perf_counter(), process_time()
            loops[name]()
            synchronize(device)
            wall, cpu = perf_counter() - wall, process_time() - cpu
            if number >= 0:
                times[name].wall_seconds.append(wall)
                times[name].cpu_seconds.append(cpu)
    return times


def _resume(spec: RunSpec, dataset: TokenDataset, folder: Path, device: torch.device) -> dict[str, float]:
    """Seconds to be ready for the next step from a checkpoint that was just written, and those of reading it."""
    store = CheckpointStore(folder / CHECKPOINT_FOLDER, spec.content_hash())
    training = _training(spec, dataset, folder, device)
    started = perf_counter()
    store.newest()
    read = perf_counter() - started
    training.resume(None)
    synchronize(device)
    return {"read_seconds": read, "resume_seconds": max(0.0, perf_counter() - started - 2 * read)}


def _rss_before_model(spec: RunSpec, folder: Path) -> int:
    """Resident bytes of a fresh worker process just before it makes its model, by its own result."""
    workload = spec.workload.model_copy(update={"model": "gpt2-tiny", "budget": Budget(steps=2, batch_sequences=2)})
    small = spec.model_copy(update={"workload": workload})
    arguments = (small.model_dump_json(), str(folder / "alone"), str(folder / "datasets"))
    answer = subprocess.run([sys.executable, "-c", _RSS, *arguments], capture_output=True, text=True, check=True)
    return int(answer.stdout.split()[-1])


if __name__ == "__main__":
    main()
