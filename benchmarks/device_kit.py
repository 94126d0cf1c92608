"""The checks that need a device, in one command of nine minutes: `make gpu`.

    make gpu                                            installs what it needs, and measures
    python -m benchmarks.device_kit --device cpu        the same without a GPU: small models, and it says so

It writes benchmarks/results/device-NAME.json, and a page beside it.
Each stage is a process of its own with a limit, so that one that hangs costs its own minutes alone; none begins once
the time is up. What fails is in the result with the end of what it said, and the exit status is 1.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch

from api.client.client import Client
from benchmarks.load_processes import running_service
from benchmarks.result_file import processor, write_result
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from worker.spec.run import Budget, DataSpec, Evaluation, Resources, Schedule, Workload

SECONDS = 540.0
"""The time limit of `make gpu`, the installation included."""
RESULTS = Path("benchmarks/results")
_SAID_CHARACTERS = 4000
_GRACE_SECONDS = 5.0
_SHOWN = {
    "title",
    "val_loss",
    "difference",
    "peak_memory_bytes",
    "step_seconds",
    "optimizer_seconds",
    "optimizer_state_bytes",
    "energy_joules",
    "verdict",
    "verdicts",
}

Outcome = Literal["passed", "failed", "timed out", "not begun"]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage of the device's checks."""

    name: str
    command: Sequence[str]
    """Arguments of this Python; `{json}` is where its figures go."""
    limit_seconds: float
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of a stage."""

    name: str
    outcome: Outcome
    seconds: float
    said: str
    """Its last line; the end of its output if it did not pass."""
    figures: Any = None


def stages(device: str) -> list[Stage]:
    """Return the stages, the most important first, should time run out."""
    tests = (
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--timeout",
        "100",
        "--tb",
        "short",
        "--show-capture",
        "no",
    )
    placed = {"ADAPM_TEST_DEVICE": device}
    cuda = device == "cuda"
    models = ("124m", "1.5b", "llama-1b") if cuda else ("tiny",)
    sizes = (
        ("--rounds", "10", "--repetitions", "3") if cuda else ("--rounds", "2", "--repetitions", "1", "--threads", "1")
    )
    step = ("-m", "benchmarks.optimizer_step", "--device", device, "--pairs", *sizes, "--json", "{json}", "--model")
    steps = [
        Stage(
            name=f"step of {model}",
            command=(*step, model, "--optimizers", "adapm", "adapm-mini", "muon"),
            limit_seconds=90.0,
        )
        for model in models
    ]
    low_bit = Stage(
        name=f"step of {models[0]}, 8 bits",
        command=(*step, models[0], "--optimizers", "adamw-8bit"),
        limit_seconds=90.0,
    )
    return [
        Stage(
            name="kernels against torch",
            command=(*tests, "-m", "triton", "tests/unit/optim/adapm/test_kernels.py"),
            limit_seconds=120.0,
            environment={} if cuda else {"TRITON_INTERPRET": "1"},
        ),
        steps[0],
        Stage(
            name="comparison, from REST to verdict",
            command=("-m", "benchmarks.device_kit", "--device", device, "--comparison", "{json}"),
            limit_seconds=210.0,
        ),
        Stage(
            name="tests on the device",
            command=(
                *tests,
                "-m",
                "gpu",
                "tests/gpu",
                "tests/unit/optim/adapm/test_compiled.py",
                "tests/unit/worker/training/test_device.py",
                "tests/unit/worker/meters/test_breakdown.py",
            ),
            limit_seconds=180.0,
            environment=placed,
        ),
        *steps[1:],
        *([low_bit] if find_spec("torchao") else []),
    ]


def run_stage(stage: Stage, folder: Path, seconds_left: float) -> Finding:
    """Run it in a process group of its own, which ends when its time is up."""
    if seconds_left < 1.0:
        return Finding(name=stage.name, outcome="not begun", seconds=0.0, said="no time was left")
    figures, log = folder / f"{stage.name}.json", folder / f"{stage.name}.log"
    command = [sys.executable, *(part.replace("{json}", str(figures)) for part in stage.command)]
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **stage.environment},
            start_new_session=True,
        )
        try:
            process.wait(min(stage.limit_seconds, seconds_left))
            outcome: Outcome = "passed" if process.returncode == 0 else "failed"
        except subprocess.TimeoutExpired:
            outcome = "timed out"
        finally:
            _end(process)
    log_text = log.read_text(errors="replace").strip()
    try:
        results = json.loads(figures.read_text()) if figures.exists() else None
    except ValueError:  # it was ended while it wrote them
        results = None
    return Finding(
        name=stage.name,
        outcome=outcome,
        seconds=round(time.monotonic() - began, 1),
        said=log_text.rpartition("\n")[2] if outcome == "passed" else log_text[-_SAID_CHARACTERS:],
        figures=results,
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End what is left of a stage: it may clean up for some seconds."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def device_of(device: str) -> dict[str, str]:
    """Return the device, as results name it."""
    if device == "cpu":
        return {"name": processor(), "kind": "cpu", "load": f"{os.getloadavg()[0]:.1f}", "torch": torch.__version__}
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "kind": "cuda",
        "memory_gib": f"{properties.total_memory / 2**30:.1f}",
        "devices": str(torch.cuda.device_count()),
        "capability": f"{properties.major}.{properties.minor}",
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
    }


def page(device: Mapping[str, str], findings: Sequence[Finding], seconds: float) -> str:
    """Return the results as a page of Markdown."""
    lines = [f"# {device['name']}", "", ", ".join(f"{name} {value}" for name, value in device.items()), ""]
    if device["kind"] == "cpu":
        lines += [
            "**No GPU was here.** The CPU took its place with small models: this shows that the kit runs.",
            "",
        ]
    failed = [finding for finding in findings if finding.outcome != "passed"]
    lines += [f"{len(findings) - len(failed)} of {len(findings)} stages passed in {seconds:.0f} s.", ""]
    lines += ["| stage | outcome | s | |", "|---|---|--:|---|"]
    for finding in findings:
        sentence = finding.said.rpartition("\n")[2].replace("|", "\\|")[:120]
        lines.append(f"| {finding.name} | {finding.outcome} | {finding.seconds:.1f} | {sentence} |")
    for finding in findings:
        for key, table in (("measured_together", _step_table), ("rows", _verdict_table)):
            if finding.figures is not None and key in finding.figures:
                lines += ["", f"## {finding.name}", "", *table(finding.figures)]
    for finding in failed:
        lines += ["", f"## {finding.name}: {finding.outcome}", "", "```", finding.said, "```"]
    return "\n".join(lines) + "\n"


def _step_table(figures: Mapping[str, Any]) -> list[str]:
    lines = ["| optimizer | median ms | × fused AdamW | first step s | state GB |", "|---|--:|--:|--:|--:|"]
    for group in figures["measured_together"]:
        fused = _median(group["adamw"]["step_seconds"])
        for name, row in group.items():
            middle = _median(row["step_seconds"])
            if name != "adamw" or group is figures["measured_together"][0]:
                lines.append(
                    f"| {name} | {1e3 * middle:.3f} | {middle / fused:.2f} | {row['first_step_seconds']:.2f} "
                    f"| {row['state_bytes'] / 1e9:.3f} |"
                )
    return lines


def _verdict_table(figures: Mapping[str, Any]) -> list[str]:
    lines = ["| optimizer | loss | peak GB | step ms | verdict |", "|---|--:|--:|--:|---|"]
    for row in figures["rows"]:
        loss = "" if row["val_loss"] is None else f"{row['val_loss']['mean']:.4f}"
        peak, step = (row["peak_memory_bytes"] or 0) / 1e9, 1e3 * (row["step_seconds"] or 0.0)
        lines.append(f"| {row['title']} | {loss} | {peak:.3f} | {step:.2f} | {row['verdict']} |")
    return [*lines, "", *(f"* {note}" for note in figures["notes"])]


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def compare(device: str, path: Path) -> None:
    """AdamW, AdaPM and AdaPM-mini, submitted over REST to a service of its own and judged by it."""
    cuda = device == "cuda"
    spec = ComparisonSpec(
        name="AdaPM and AdaPM-mini against AdamW",
        workload=Workload(
            model="gpt2-124m" if cuda else "gpt2-nano",
            data=DataSpec(sequence_length_tokens=1024 if cuda else 64),
            budget=Budget(steps=100 if cuda else 10, batch_sequences=8 if cuda else 4),
            schedule=Schedule(warmup_steps=10 if cuda else 2, final_lr_ratio=0.1),
            evaluation=Evaluation(every_steps=50 if cuda else 5, sequences=16),
            precision="bf16" if cuda else "fp32",
        ),
        candidates=tuple(
            Candidate(optimizer=name, learning_rates=(6e-4 if cuda else 4e-3,))
            for name in ("adamw", "adapm", "adapm-mini")
        ),
        seeds=(1, 2),
        baseline="adamw",
        resources=Resources(cpus=1, gpus=int(cuda)),
    )
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        running_service(Path(folder), verb="up") as service,
        Client(f"http://{service.host}:{service.port}", retries=4) as client,
    ):
        experiment = client.submit(spec).experiment
        while not experiment.counts.done():
            time.sleep(0.5)
            experiment = client.experiment(experiment.id)
        answer = client.compare(experiment.id)
        runs = client.runs(experiment_id=experiment.id)
    rows = [row.model_dump(mode="json", include=_SHOWN) for row in answer.rows]
    path.write_text(json.dumps({"device": answer.device, "rows": rows, "notes": answer.notes}, indent=2) + "\n")
    unfinished = [f"{run.id}: {run.status} {run.reason or ''}" for run in runs if run.result is None]
    if unfinished or not answer.complete:
        raise SystemExit("not every run has a result:\n" + "\n".join(unfinished))
    print(f"{len(runs)} runs, judged: " + "; ".join(row.verdict for row in answer.rows))


def main() -> None:
    """Run every stage, write both files; exit 1 where one did not pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--began", type=float, default=time.time(), help="when `make gpu` did, in seconds since 1970")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for everything")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder for both files")
    parser.add_argument("--comparison", type=Path, help="only the comparison: where its figures go")
    chosen = parser.parse_args()
    device = ("cuda" if torch.cuda.is_available() else "cpu") if chosen.device == "auto" else chosen.device
    if chosen.comparison is not None:
        compare(device, chosen.comparison)
        return
    if device == "cpu":
        print("No GPU is used: the CPU takes its place with small models.", flush=True)
    findings = run_all(stages(device), chosen.began + chosen.seconds)
    facts = device_of(device)
    write_results(chosen.results, facts, findings, time.time() - chosen.began)
    if any(finding.outcome != "passed" for finding in findings):
        raise SystemExit(1)


def run_all(chosen: Sequence[Stage], end: float) -> list[Finding]:
    """Each in turn, until that time."""
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        for stage in chosen:
            findings.append(run_stage(stage, Path(folder), end - time.time()))
            result = findings[-1]
            print(
                f"{result.outcome:<10}{result.seconds:>7.1f} s  {result.name}: {result.said.rpartition(chr(10))[2]}",
                flush=True,
            )
    return findings


def write_results(folder: Path, facts: Mapping[str, str], findings: Sequence[Finding], seconds: float) -> None:
    """Write one JSON and one page, named by the device."""
    slug = "cpu" if facts["kind"] == "cpu" else "-".join(facts["name"].lower().split())
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"device": facts, "seconds": round(seconds), "stages": [asdict(finding) for finding in findings]}
    write_result(folder / f"device-{slug}.json", "device_kit", figures)
    (folder / f"device-{slug}.md").write_text(page(facts, findings, seconds))
    print(f"written: {folder / f'device-{slug}.json'} and .md")


if __name__ == "__main__":
    main()
