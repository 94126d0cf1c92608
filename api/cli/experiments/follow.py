"""Following an experiment to its end: a live display on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from api.cli.console import console, plain
from api.client.client import Client
from orchestrator.jobs import CLAIMABLE, LIVE
from orchestrator.records import ExperimentRecord, RunRecord

REFRESH_SECONDS = 0.5
LINE_SECONDS = 5.0
"""Without a terminal: at most one line in this time, so that a log stays short."""


def follow(client: Client, experiment_id: str, check: Callable[[], None] = lambda: None) -> ExperimentRecord:
    """Show progress until every run has ended; returns the experiment as it is then.

    `check` is called before every look and may raise: for a service that is ours and may have failed.
    """
    display = _follow_live if console().is_terminal else _follow_lines
    return display(client, experiment_id, check)


def progress_line(experiment: ExperimentRecord, runs: tuple[RunRecord, ...]) -> str:
    """`3/12 runs, 27 %; 21,500 tokens/s; 2:40 left; adapm lr 0.004 seed 1: step 120/240 loss 2.61`."""
    counts, progress = experiment.counts, experiment.progress
    share = progress.steps_done / progress.steps_total if progress.steps_total else 0.0
    parts = [f"{counts.ended()}/{experiment.runs_planned()} runs, {share:.0%}"]
    if progress.tokens_per_second:
        parts.append(f"{progress.tokens_per_second:,.0f} tokens/s")
    if progress.seconds_left is not None and not counts.done():
        parts.append(f"{duration(progress.seconds_left)} left")
    at_work = [_run_words(run) for run in runs if run.status in LIVE]
    return "; ".join(parts + (at_work or _why_nothing_runs(runs)))


def duration(seconds: float) -> str:
    """`2:40`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _why_nothing_runs(runs: tuple[RunRecord, ...]) -> list[str]:
    """What the first run that waits with a reason says: a run that fits nowhere would be waited for in silence."""
    reasons = [run.reason for run in runs if run.status in CLAIMABLE and run.reason]
    return [f"waiting: {plain(reasons[0])}"] if reasons else []


def _run_words(run: RunRecord) -> str:
    words = f"{plain(run.candidate)} lr {run.lr:g} seed {run.seed}: step {run.step}/{run.steps_total}"
    return words if run.last_train_loss is None else f"{words} loss {run.last_train_loss:.3f}"


def _follow_lines(client: Client, experiment_id: str, check: Callable[[], None]) -> ExperimentRecord:
    told = ""
    told_at = 0.0
    while True:
        check()
        experiment = client.experiment(experiment_id)
        line = progress_line(experiment, client.runs(experiment_id=experiment_id))
        if line != told and (time.monotonic() - told_at >= LINE_SECONDS or experiment.counts.done()):
            print(line, flush=True)
            told, told_at = line, time.monotonic()
        if experiment.counts.done():
            return experiment
        time.sleep(REFRESH_SECONDS)


def _follow_live(client: Client, experiment_id: str, check: Callable[[], None]) -> ExperimentRecord:
    with Live(console=console(), transient=True, auto_refresh=False) as live:
        while True:
            check()
            experiment = client.experiment(experiment_id)
            live.update(_display(experiment, client.runs(experiment_id=experiment_id)), refresh=True)
            if experiment.counts.done():
                return experiment
            time.sleep(REFRESH_SECONDS)


def _display(experiment: ExperimentRecord, runs: tuple[RunRecord, ...]) -> RenderableType:
    progress = experiment.progress
    bar = ProgressBar(total=max(progress.steps_total, 1), completed=progress.steps_done, width=60)
    return Group(Text(progress_line(experiment, ())), bar, _live_runs(runs))


def _live_runs(runs: tuple[RunRecord, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("training now", "lr", "seed", "step", "train loss", "val loss", "tokens/s"):
        table.add_column(heading, justify="left" if heading == "training now" else "right")
    for run in runs:
        if run.status in LIVE:
            table.add_row(
                plain(run.candidate),
                f"{run.lr:g}",
                str(run.seed),
                f"{run.step}/{run.steps_total}",
                _figure(run.last_train_loss),
                _figure(run.last_val_loss),
                "" if run.tokens_per_second is None else f"{run.tokens_per_second:,.0f}",
            )
    return table


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
