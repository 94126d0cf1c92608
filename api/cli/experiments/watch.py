"""`adapm-bench watch ID`: follow an experiment to its end, live on a terminal, in plain lines elsewhere."""

import time
from collections.abc import Callable
from contextlib import nullcontext

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from api.cli.console import (
    FAILED,
    INTERRUPTED,
    LINE_SECONDS,
    Json,
    complain,
    console,
    fail,
    plain,
    print_json,
    program,
    text_table,
)
from api.cli.experiments.show import Id
from api.cli.service import Url, open_client
from api.client.client import Client
from dashboards.text.words import time_left
from orchestrator.jobs import CLAIMABLE, LIVE, RunStatus
from orchestrator.records import ExperimentRecord, RunRecord

UNHAPPY = (RunStatus.FAILED, RunStatus.CANCELLED)
MOST_NAMED = 5
"""Runs without a result that are named at the end."""
REFRESH_SECONDS = 0.5


def watch(id: Id, url: Url = None, json: Json = False) -> None:
    """Show progress until every run has ended; exit code 0 if all succeeded. Ctrl-C stops watching, not the runs."""
    try:
        with open_client(url, retries=4) as client:
            experiment = list(client.watch(id))[-1] if json else follow(client, id)
            unhappy = [] if json else [run for run in client.runs(experiment_id=id) if run.status in UNHAPPY]
    except KeyboardInterrupt:
        fail(f"the runs continue; `adapm-bench cancel {id}` stops them", INTERRUPTED)
    if json:
        print_json(experiment)
    else:
        for run in unhappy[:MOST_NAMED]:
            complain(f"{run.id} {run.state_word()}: {run.reason or 'no reason was given'}")
        if len(unhappy) > MOST_NAMED:
            complain(f"and {len(unhappy) - MOST_NAMED} more; `adapm-bench show {experiment.id}` lists them all")
        print(f"ended; next: {program()} compare {experiment.id}")
    if experiment.counts.by_status.get(RunStatus.SUCCEEDED, 0) < experiment.counts.total:
        raise typer.Exit(FAILED)


def follow(client: Client, experiment_id: str, check: Callable[[], None] = lambda: None) -> ExperimentRecord:
    """Show progress until every run has ended; returns the experiment as it is then.

    `check` is called before every look and may raise: for a service that is ours and may have failed.
    """
    screen, last_line, printed_at = console(), "", 0.0
    with Live(console=screen, transient=True, auto_refresh=False) if screen.is_terminal else nullcontext() as live:
        while True:
            check()
            experiment = client.experiment(experiment_id)
            runs, is_complete = client.runs(experiment_id=experiment_id), experiment.counts.done()
            hindrance = client.health().hindrance
            line = progress_line(experiment, runs, hindrance)
            if live is not None:
                live.update(_display(experiment, runs, hindrance), refresh=True)
            elif line != last_line and (is_complete or time.monotonic() - printed_at >= LINE_SECONDS):
                print(line, flush=True)
                last_line, printed_at = line, time.monotonic()
            if is_complete:
                return experiment
            time.sleep(REFRESH_SECONDS)


def progress_line(experiment: ExperimentRecord, runs: tuple[RunRecord, ...], hindrance: str | None) -> str:
    """Return `3/12 runs ended; about 2 min 40 s left; 21,500 tokens/s; training adapm lr 0.004 seed 1 (step 120/240,
    loss 2.610)`, and why the service begins no run, if anything is in the way."""
    parts = [f"{experiment.counts.ended()}/{experiment.runs_planned()} runs ended"]
    if duration := time_left(experiment):
        parts.append(f"{duration} left")
    if experiment.progress.tokens_per_second:
        parts.append(f"{experiment.progress.tokens_per_second:,.0f} tokens/s")
    at_work = [
        f"training {plain(run.candidate)} lr {run.lr:g} seed {run.seed} (step {run.step}/{run.steps_total}"
        + (")" if run.last_train_loss is None else f", loss {run.last_train_loss:.3f})")
        for run in runs
        if run.status in LIVE
    ]
    # What the first run that waits with a reason says: one that fits nowhere would be waited for in silence.
    reasons = [f"waiting: {plain(run.reason)}" for run in runs if run.status in CLAIMABLE and run.reason]
    return "; ".join(parts + (at_work or reasons[:1]) + ([hindrance] if hindrance else []))


def _display(experiment: ExperimentRecord, runs: tuple[RunRecord, ...], hindrance: str | None) -> RenderableType:
    progress = experiment.progress
    bar = ProgressBar(total=max(progress.steps_total, 1), completed=progress.steps_done, width=60)
    rows = [
        (
            run.candidate,
            f"{run.lr:g}",
            str(run.seed),
            f"{run.step}/{run.steps_total}",
            *("" if loss is None else f"{loss:.3f}" for loss in (run.last_train_loss, run.last_val_loss)),
            "" if run.tokens_per_second is None else f"{run.tokens_per_second:,.0f}",
        )
        for run in runs
        if run.status in LIVE
    ]
    columns = ("training now", "lr", "seed", "step", "train loss", "val loss", "tokens/s")
    waiting = tuple(run for run in runs if run.status not in LIVE)
    line = Text(progress_line(experiment, () if rows else waiting, hindrance))
    return Group(line, bar, text_table(columns, rows, columns[1:]))
