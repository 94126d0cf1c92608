"""The demo itself: a service, the built-in comparison submitted or found, followed to its end, and its answer."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Never

import typer

from api.cli.admin.own_service import service
from api.cli.admin.up import Data, Port, Slots, read_settings
from api.cli.console import complain, console, plain
from api.cli.experiments.follow import follow
from api.cli.service import FAILED, fail
from api.cli.tables.comparison import comparison_table, loss_memory_chart
from api.client.client import Client, ClientError
from api.processes.data_folder import read_note
from dashboards.text import formats
from orchestrator.errors import OrchestratorError
from orchestrator.kinds.comparison import Candidate, ComparisonSpec, Tuning
from orchestrator.records import CandidateRow, Comparison, ExperimentRecord
from worker.spec.run import Budget, DataSpec, Evaluation, Schedule, Workload

LEARNING_RATES = (2e-3, 4e-3, 8e-3)
"""Around the best rate of all three at this size, so that it has a worse one on either side."""

DEMO = ComparisonSpec(
    name="AdaPM and AdaPM-mini against AdamW",
    workload=Workload(
        model="gpt2-nano",
        data=DataSpec(dataset="python-stdlib", tokenizer="byte", sequence_length_tokens=128),
        budget=Budget(steps=150, batch_sequences=8),
        schedule=Schedule(warmup_steps=15, final_lr_ratio=0.1),
        evaluation=Evaluation(every_steps=30, sequences=128),
    ),
    candidates=tuple(
        Candidate(optimizer=name, learning_rates=LEARNING_RATES) for name in ("adamw", "adapm", "adapm-mini")
    ),
    tuning=Tuning(seeds=(0,), extend_grid=2),
    seeds=(1, 2, 3, 4, 5),
    baseline="adamw",
)
"""AdaPM and AdaPM-mini against AdamW on a GPT-2 of 0.08 M parameters."""


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """The experiment at its end, its answer, and the address of its page."""

    experiment: ExperimentRecord
    comparison: Comparison
    page: str
    is_up: bool
    """Whether the service that shows the page goes on."""


def run(data: Data, port: Port, slots: Slots, fresh: bool) -> DemoResult:
    """Run it, or go on with it, and print its answer."""
    settings = read_settings(data=data, port=port, slots=slots)
    signal.signal(signal.SIGTERM, _interrupt)
    is_up = read_note(settings.data_folder) is not None
    try:
        with service(settings, port_given=port is not None) as (url, check):
            experiment, comparison = _compare(url, fresh, check)
    except ClientError as error:
        fail(error)
    except OrchestratorError as error:
        complain(f"error: {error}")
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt:
        print("stopped. What was trained is kept; the same command goes on from there.", flush=True)
        raise typer.Exit(130) from None
    page = f"{url if is_up else f'http://{settings.host}:{settings.port}'}/experiments/{experiment.id}"
    return DemoResult(experiment=experiment, comparison=comparison, page=page, is_up=is_up)


def conclusion(comparison: Comparison) -> str:
    """The answer in one sentence: who ends where against the baseline, with what share of its state."""
    baseline = next((row for row in comparison.rows if row.is_baseline), None)
    told = [
        _against(row, baseline, comparison.loss_unit)
        for row in comparison.rows
        if baseline is not None and row is not baseline
    ]
    if baseline is None or baseline.val_loss is None:
        return "Nothing can be concluded: the baseline has no loss."
    seeds = baseline.val_loss.n
    return formats.sentence(f"Each at its tuned learning rate, over {seeds} fresh seeds: {'; '.join(told)}.")


def _against(row: CandidateRow, baseline: CandidateRow, unit: str) -> str:
    found, state = row.difference, row.optimizer_state_bytes
    if found is None or state is None or not baseline.optimizer_state_bytes:
        return f"{row.title} cannot be held against {baseline.title}"
    name = f"{row.title} with {formats.percent(state / baseline.optimizer_state_bytes)} of its optimizer state"
    interval = "one seed"
    if found.low is not None and found.high is not None:
        interval = f"95 % interval {found.low:+.4f} to {found.high:+.4f}"
    if not found.decides():
        return f"{name} is not told apart from {baseline.title} ({interval})"
    side = "below" if found.mean < 0 else "above"
    return f"{name} ends {abs(found.mean):.4f}{unit} {side} {baseline.title} ({interval})"


def _compare(url: str, fresh: bool, check: Callable[[], None]) -> tuple[ExperimentRecord, Comparison]:
    """Submit the built-in comparison (or find it), follow it to its end, and print its answer."""
    key = f"demo-{DEMO.content_hash()[:16]}" + (f"-{time.time_ns()}" if fresh else "")
    with Client(url, retries=4) as client:
        submission = client.submit(DEMO, key=key)
        experiment = submission.experiment
        _announce(url, experiment, created=submission.created)
        if not experiment.counts.done():
            experiment = follow(client, experiment.id, check)
        comparison = client.compare(experiment.id)
    out = console()
    out.print()
    out.print(comparison_table(comparison))
    out.print(loss_memory_chart(comparison))
    out.print(f"\n{plain(conclusion(comparison))}\n")
    return experiment, comparison


def _announce(url: str, experiment: ExperimentRecord, *, created: bool) -> None:
    counts, tuning = experiment.counts, DEMO.tuning
    assert tuning is not None
    if created:
        rates, seeds = len(DEMO.candidates[0].learning_rates), ", ".join(map(str, tuning.seeds))
        grids = f"{len(DEMO.candidates)} optimizers × {rates} learning rates on seed {seeds}"
        final = f"each at its best on {len(DEMO.seeds)} other seeds"
        runs = len(DEMO.candidates) * (rates * len(tuning.seeds) + len(DEMO.seeds))
        print(f"submitted {experiment.id}: {grids}, then {final}: {runs} runs")
    elif counts.done():
        print(f"{experiment.id} is complete from an earlier call (--fresh runs it again)")
    else:
        print(f"going on with {experiment.id}: {counts.ended()} of {experiment.runs_planned()} runs are done")
    print(f"dashboard: {url}/experiments/{experiment.id}", flush=True)


def _interrupt(_number: int, _frame: FrameType | None) -> Never:
    raise KeyboardInterrupt
