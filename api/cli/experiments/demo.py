"""`adapm-bench demo`: the main job, end to end: start the service, submit the built-in comparison, watch, compare.

It goes on where an interrupted one ended, and shows the stored answer where one is complete.
"""

import time
from collections.abc import Callable
from shlex import quote
from typing import Annotated

import typer

from api.cli.answer_tables import comparison_table, loss_memory_chart
from api.cli.console import FAILED, Json, complain, console, messages_on_stderr, plain, print_json, program
from api.cli.experiments.watch import follow
from api.cli.service import Data, Port, Slots, environment_settings, exit_in_order, own_service
from api.client.client import Client
from api.processes.data_folder import read_note
from dashboards.text import formats
from orchestrator.analysis.verdicts import interval_words
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import Tuning
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

Fresh = Annotated[
    bool, typer.Option("--fresh", help="Run the comparison again, even if its results are in the data folder.")
]


def demo(data: Data = None, port: Port = None, slots: Slots = None, fresh: Fresh = False, json: Json = False) -> None:
    """Compare AdaPM, AdaPM-mini and AdamW on a tiny GPT-2 and real text, end to end, in minutes on a CPU."""
    settings = environment_settings(data_folder=data, port=port, slots=slots)
    is_up = read_note(settings.data_folder) is not None
    with messages_on_stderr(as_json=json):
        with exit_in_order(), own_service(settings, port_given=port is not None) as (url, check):
            experiment, comparison = _compare(url, fresh, check)
        if not json:
            # A port of 0 was any free one: the next service's may be another.
            base = url if is_up else f"http://{settings.host}:{settings.port}" if settings.port else ""
            up = [f"--data {quote(str(data))}"] * (data is not None) + [f"--port {port}"] * (port is not None)
            service = " ".join([program(), "up", *up])
            later = "" if is_up else f" (once `{service}` has started the service)"
            print(f"Its page: {base}/experiments/{experiment.id}{later}")
            # On the usual data folder the others find the service by its note there.
            print_next_steps(experiment.id, "" if is_up else service, f" --url {base}" if base and data else "")
    if json:
        print_json({"experiment": experiment, "comparison": comparison})
    if experiment.counts.by_status.get(RunStatus.SUCCEEDED, 0) < experiment.counts.total:
        complain(f"not every run succeeded; `{program()} show` says why, and --fresh runs the comparison again")
        raise typer.Exit(FAILED)


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
        print(f"{experiment.id} is complete from an earlier call; --fresh runs it again")
    else:
        print(f"continuing {experiment.id}: {counts.ended()} of {experiment.runs_planned()} runs are done")
    print(f"dashboard: {url}/experiments/{experiment.id}", flush=True)


def conclusion(comparison: Comparison) -> str:
    """The answer in one sentence: who ends where against the baseline, with what share of its state."""
    baseline = next((row for row in comparison.rows if row.is_baseline), None)
    if baseline is None or baseline.val_loss is None:
        return "Nothing can be concluded: the baseline has no loss."
    clauses = [_clause(row, baseline, comparison.loss_unit) for row in comparison.rows if row is not baseline]
    seeds = baseline.val_loss.n
    return formats.sentence(f"Each at its tuned learning rate, over {seeds} fresh seeds: {'; '.join(clauses)}.")


def _clause(row: CandidateRow, baseline: CandidateRow, unit: str) -> str:
    """Where a candidate ends, held against the baseline."""
    found, state = row.difference, row.optimizer_state_bytes
    if found is None or state is None or not baseline.optimizer_state_bytes:
        return f"{row.title} cannot be held against {baseline.title}"
    name = f"{row.title} with {formats.percent(state / baseline.optimizer_state_bytes)} of its optimizer state"
    ends = interval_words(found.low, found.high, lambda end: f"{end:+.4f}")
    interval = f"95 % interval {ends}" if ends else "one seed" if found.n == 1 else "no interval"
    if not found.decides():
        return f"{name} is not told apart from {baseline.title} ({interval})"
    side = "below" if found.mean < 0 else "above"
    return f"{name} ends {abs(found.mean):.4f}{unit} {side} {baseline.title} ({interval})"


def print_next_steps(id: str, service: str, url: str) -> None:
    """Commands to copy: `service` starts one, unless one runs; `url` is how the others reach it."""
    bench = program()
    steps = [
        (service, "the service and its dashboard; keep it running for the others"),
        (f"{bench} compare {id} --json{url}", "the figures for a script"),
        (f"{bench} ls --experiment {id}{url}", "every run"),
        (f"{bench} optimizers", "what else can be compared, with its options"),
        (f"{bench} init -o my.yaml", "your own comparison to edit"),
        (f"{bench} submit my.yaml{url}", "and to run"),
    ]
    steps = steps if service else steps[1:]
    width = max(len(command) for command, _ in steps)
    print("\nNext:")
    for command, purpose in steps:
        print(f"  {command:<{width}}  {purpose}")
