"""`adapm-bench demo`: the main job, end to end: start the service, submit the built-in comparison, watch, compare.

It goes on where an interrupted one ended, and shows the stored answer where one is complete.
"""

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from shlex import quote
from typing import Annotated

import typer

from api.cli.answer_tables import comparison_table
from api.cli.console import FAILED, Json, complain, console, plain, print_json, program
from api.cli.experiments.watch import follow
from api.cli.own_service import exit_in_order, own_service
from api.cli.settings import Data, Port, Slots, environment_settings
from api.client.client import Client
from api.processes.data_folder import read_note
from dashboards.text import formats, words
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import Tuning
from orchestrator.records import Comparison, ExperimentRecord
from worker.spec.run import Budget, DataSpec, Evaluation, Schedule, Workload

LEARNING_RATE = 8e-3
"""The learning rate that the search of all three starts from."""

DEMO = ComparisonSpec(
    name="AdaPM and AdaPM-mini against AdamW",
    workload=Workload(
        model="gpt2-nano",
        data=DataSpec(dataset="python-stdlib", tokenizer="byte", sequence_length_tokens=64),
        budget=Budget(steps=150, batch_sequences=8),
        schedule=Schedule(warmup_steps=45, final_lr_ratio=0.1),
        evaluation=Evaluation(every_steps=50, sequences=1024),
    ),
    candidates=tuple(
        Candidate(optimizer=name, learning_rates=(LEARNING_RATE,)) for name in ("adamw", "adapm", "adapm-mini")
    ),
    tuning=Tuning(),
    seeds=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
    baseline="adamw",
)
"""AdaPM and AdaPM-mini against AdamW on the tiny scale of the studies, with 45 steps of warm-up in place of 15: all
three end lower, and AdamW's seeds nearer to one another (docs/LOG.md)."""

Again = Annotated[
    bool, typer.Option("--again", help="Run the comparison again, even if its results are in the data folder.")
]


def demo(data: Data = None, port: Port = None, slots: Slots = None, again: Again = False, json: Json = False) -> None:
    """Compare AdaPM, AdaPM-mini and AdamW on a tiny GPT-2 and real text, end to end, in minutes on a CPU."""
    settings = environment_settings(data_folder=data, port=port, slots=slots)
    is_up = read_note(settings.data_folder) is not None
    with redirect_stdout(sys.stderr) if json else nullcontext():
        with exit_in_order(), own_service(settings, port_given=port is not None) as (url, check):
            experiment, comparison = _compare(url, again, check)
        if not json:
            # A port of 0 was any free one: the next service's may be another.
            base = url if is_up else f"http://{settings.host}:{settings.port}" if settings.port else ""
            options = [f"--data {quote(str(data))}"] * (data is not None) + [f"--port {port}"] * (port is not None)
            service = " ".join([program(), "up", *options])
            later = "" if is_up else f" (once `{service}` has started the service)"
            print(f"Its page: {base}/experiments/{experiment.id}{later}")
            # On the usual data folder the others find the service by its note there.
            print_next_steps(experiment.id, "" if is_up else service, f" --url {base}" if base and data else "")
    if json:
        print_json({"experiment": experiment, "comparison": comparison})
    if experiment.counts.by_status.get(RunStatus.SUCCEEDED, 0) < experiment.counts.total:
        complain(f"not every run succeeded; `{program()} show` says why, and --again runs the comparison again")
        raise typer.Exit(FAILED)


def _compare(url: str, is_repeat: bool, check: Callable[[], None]) -> tuple[ExperimentRecord, Comparison]:
    """Submit the built-in comparison (or find it), follow it to its end, and print its answer."""
    key = f"demo-{DEMO.content_hash()[:16]}" + (f"-{time.time_ns()}" if is_repeat else "")
    with Client(url, retries=4) as client:
        submission = client.submit(DEMO, key=key)
        experiment = submission.experiment
        _announce(url, experiment, created=submission.created)
        if not experiment.counts.done():
            experiment = follow(client, experiment.id, check)
        comparison = client.compare(experiment.id)
    screen = console()
    screen.print()
    screen.print(comparison_table(comparison))
    screen.print(f"\n{plain(conclusion(comparison))}\n")
    return experiment, comparison


def _announce(url: str, experiment: ExperimentRecord, *, created: bool) -> None:
    counts, tuning = experiment.counts, DEMO.tuning
    assert tuning is not None
    if created:
        tuned = f"{len(DEMO.candidates)} optimizers × {tuning.trials} trials × {len(tuning.seeds)} tuning seeds"
        judged = f"{len(DEMO.seeds)} judging seeds each"
        print(f"submitted {experiment.id}: {tuned}, then {judged}: {DEMO.run_count()} runs")
    elif counts.done():
        print(f"{experiment.id} is complete from an earlier call; --again runs it again")
    else:
        print(f"continuing {experiment.id}: {counts.ended()} of {experiment.runs_planned()} runs are done")
    print(f"dashboard: {url}/experiments/{experiment.id}", flush=True)


def conclusion(comparison: Comparison) -> str:
    """Return the answer in one sentence: each candidate's loss, state and time against the baseline's."""
    baseline = next((row for row in comparison.rows if row.is_baseline), None)
    if baseline is None or baseline.val_loss is None:
        return "Nothing can be concluded: the baseline has no loss."
    clauses = [
        f"{row.title}: {words.candidate_clause(row, baseline, comparison.loss_unit)}"
        for row in comparison.rows
        if row is not baseline
    ]
    return formats.sentence("; ".join(clauses) + ".")


def print_next_steps(id: str, service: str, url: str) -> None:
    """Print commands to copy: `service` starts the service (empty if one runs); `url` is the option that names it."""
    bench = program()
    steps = [
        (service, "the service and its dashboard; keep it running for the others"),
        (f"{bench} compare {id} --json{url}", "the figures for a script"),
        (f"{bench} show {id}{url}", "every run"),
        (f"{bench} optimizers", "what else can be compared, with its options"),
        (f"{bench} init -o my.yaml", "your own comparison to edit"),
        (f"{bench} submit my.yaml{url}", "and to run"),
    ]
    steps = steps if service else steps[1:]
    width = max(len(command) for command, _ in steps)
    print("\nNext:")
    for command, purpose in steps:
        print(f"  {command:<{width}}  {purpose}")
