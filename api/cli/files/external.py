"""External runs, which a loop of somebody's own logs: `sync` sends what lies on disk, `judge` prints the verdicts."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from api.cli.console import (
    FAILED,
    Json,
    complain,
    console,
    fail,
    plain,
    plain_table,
    print_json,
    sentences,
    text_table,
)
from api.cli.service import Url, open_client
from api.client.messages import ClientError
from api.client.spool import FOLDER, FOLDER_VARIABLE, RunSpool, SpoolError, Synced, find
from dashboards.text import formats
from dashboards.text.words import external_facts
from orchestrator.external_runs import ExternalExperiment, ExternalJudgement
from worker.words import pluralize

Folder = Annotated[
    Path | None,
    typer.Argument(help="A folder of spools, or one; default: $ADAPM_BENCH_RUNS, else adapm-runs.", metavar="DIR"),
]
Name = Annotated[
    str | None, typer.Argument(help="An experiment's id or name; without one all are listed.", metavar="EXPERIMENT")
]
MetricOption = Annotated[
    str | None, typer.Option("--metric", help="What to judge by, lower is better; default: the validation loss.")
]
BaselineOption = Annotated[
    str | None, typer.Option("--baseline", help="Hold the others against this candidate; default: the first one.")
]
WorkloadOption = Annotated[
    str | None, typer.Option("--workload", help="Judge the runs of this workload, where there are several.")
]
MarginOption = Annotated[
    float | None, typer.Option("--margin", min=0.0, help="A difference below it is none that matters.")
]
MOST_LINES_NAMED = 8
"""Torn lines that are named of a spool."""


def sync(folder: Folder = None, url: Url = None, json: Json = False) -> None:
    """Send the runs that a training loop of your own has logged; what is there already stays as it is."""
    where = folder or Path(os.environ.get(FOLDER_VARIABLE) or FOLDER)
    if not where.exists():
        fail(f"{where} does not exist; runs are logged below the folder that a training is started in")
    paths, sent, refused = find(where), [], 0
    with open_client(url) as client:
        for path in paths:
            try:
                sent.append(RunSpool(path).send(client))
                if sent[-1].torn:
                    complain(_torn_words(sent[-1]))
            except (SpoolError, OSError) as error:
                complain(str(error))
                refused += 1
            except ClientError as error:
                if error.status is None or error.status in (401, 403):  # no other spool would fare better
                    raise
                complain(f"{path}: {error}")
                refused += 1
    if json:
        print_json([vars(each) for each in sent])
    else:
        for name in dict.fromkeys(each.experiment for each in sent):
            runs = {each.run_id for each in sent if each.experiment == name}
            lines = sum(each.sent for each in sent if each.experiment == name)
            print(f"{plain(name)}: {pluralize(len(runs), 'run')}, {pluralize(lines, 'new line')}")
            print(f"  adapm-bench judge '{plain(name)}'")
        if not paths:
            print(f"{where} has no runs; start_run of api.client makes them")
    if refused:
        raise typer.Exit(FAILED)


def _torn_words(synced: Synced) -> str:
    """Which lines of a spool cannot be read, and what becomes of them."""
    shown = ", ".join(map(str, synced.torn[:MOST_LINES_NAMED])) + (", …" if len(synced.torn) > MOST_LINES_NAMED else "")
    lines, they, count, them = (
        ("line", "it", "counts", "it") if len(synced.torn) == 1 else ("lines", "they", "count", "them")
    )
    return (
        f"{synced.path}, {lines} {shown}: no whole JSON in UTF-8; {they} {count} as torn, the others are kept, and the "
        f'file stays as it is. To send {them} once mended, change "part" in line 1, and sync again'
    )


def judge(
    experiment: Name = None,
    metric: MetricOption = None,
    baseline: BaselineOption = None,
    workload: WorkloadOption = None,
    margin: MarginOption = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Judge external runs, which you logged or imported: verdicts, intervals, and what nobody could check."""
    with open_client(url, listed_by="judge") as client:
        if experiment is None:
            found = client.external_experiments()
            print_json(found) if json else console().print(_experiments_table(found))
            return
        judged = client.judge(experiment, metric=metric, baseline=baseline, workload=workload, margin=margin or None)
    print_json(judged) if json else console().print(judgement_view(judged))


def _experiments_table(found: tuple[ExternalExperiment, ...]) -> RenderableType:
    if not found:
        return Text(
            "no external runs yet; adapm-bench sync sends what a loop of your own has logged, and adapm-bench import "
            "takes over what other tools have"
        )
    rows = ((one.id, one.name, external_facts(one), ", ".join(one.candidates)) for one in found)
    return text_table(("id", "external experiment", "runs", "candidates"), rows)


def judgement_view(judged: ExternalJudgement) -> RenderableType:
    """What speaks against the verdicts first, then the table, the verdicts, and what nobody could check."""
    head = Text(plain(judged.experiment), style="bold")
    head.append(f"  (external runs: logged, not measured by the bench; {plain(judged.metric)})", style="yellow")
    table = plain_table(
        "candidate", "lr", plain(judged.metric)[:24], f"Δ to {plain(judged.baseline)[:16]}", "runs", "rates"
    )
    for row in judged.rows:
        loss, difference = row.loss, row.difference
        table.add_row(
            plain(row.candidate),
            formats.rate(row.lr),
            "—" if loss is None else formats.loss(loss.mean) + _half(loss.half_width()),
            "baseline" if row.is_baseline else "—" if difference is None else formats.difference(difference.mean),
            "0" if loss is None else str(loss.n),
            str(len(row.learning_rates)),
        )
    lines = [("concern", formats.sentence(each)) for each in judged.concerns]
    verdicts = [(row.candidate, formats.sentence(row.verdict)) for row in judged.rows]
    verdicts += [("not checked", formats.sentence(each)) for each in judged.unchecked]
    verdicts += [("note", formats.sentence(each)) for each in judged.notes]
    return Group(head, *([sentences(lines), Text()] if lines else []), table, sentences(verdicts))


def _half(half_width: float | None) -> str:
    return "" if half_width is None else f" ± {half_width:.4f}"
