"""Experiments, runs and sweeps as people read them: lists, and everything about one."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from api.cli.console import facts_text, plain, text_table
from dashboards.text import costs, formats, words
from orchestrator.external_runs import ExternalExperiment, ExternalRun, Listed
from orchestrator.jobs import Outcome
from orchestrator.records import (
    AttemptRecord,
    DamagedExperiment,
    EventRecord,
    ExperimentRecord,
    QueuePosition,
    RunRecord,
    StateCounts,
)

NONE_YET = (
    "no experiments yet; `adapm-bench init` writes a first specification, `adapm-bench submit` queues it, "
    "`adapm-bench import` takes over what your own loop or another tool has logged"
)
NONE_SUCH = "no experiments match"


def experiments_table(experiments: Iterable[Listed], nothing: str = NONE_YET) -> RenderableType:
    """Return the table of experiments, a line each; with labels if any experiment has some."""
    listed = list(experiments)
    if not listed:
        return Text(nothing)
    labelled = any(e.labels for e in listed)
    rows = [
        (
            e.id,
            f"{e.name} ({mark})" if (mark := _mark(e)) else e.name,
            *([", ".join(e.labels)] if labelled else []),
            counts_text(e.counts),
            steps_text(e),
            formats.moment(e.created_at),
            formats.UNKNOWN if isinstance(e, ExternalExperiment) else formats.moment(e.ended_at),
        )
        for e in listed
    ]
    head = ("experiment", "name", *(["labels"] if labelled else []), "runs", "steps", "submitted", "ended")
    return text_table(head, rows)


def _mark(experiment: Listed) -> str:
    if isinstance(experiment, ExternalExperiment):
        return ", ".join(experiment.source_kinds)
    if isinstance(experiment, DamagedExperiment):
        return "damaged"
    return "refused today" if experiment.refused else ""


def runs_table(runs: Iterable[RunRecord]) -> RenderableType:
    """Return the table of runs, a line each."""
    rows = [
        (
            run.id,
            run.candidate,
            formats.rate(run.lr),
            str(run.seed),
            run.state_word(),
            f"{run.step}/{run.steps_total}",
            formats.loss(run.last_train_loss),
            formats.loss(run.last_val_loss),
            run.damaged
            or (run.result.verdict_reason if run.result and run.outcome() is not Outcome.FINISHED else run.reason)
            or "",
        )
        for run in runs
    ]
    if not rows:
        return Text("no runs match")
    return text_table(("run", "candidate", "lr", "seed", "state", "step", "train", "val", "reason"), rows)


def counts_text(counts: StateCounts) -> str:
    """Return `12: 3 finished, 2 running, 7 queued`."""
    states = counts.words()
    return f"{counts.total}: {states}" if states else str(counts.total)


def steps_text(experiment: Listed) -> str:
    """Return the share of the budget that is done: `480/2,880 (17 %)`; unknown for logged or imported runs."""
    if isinstance(experiment, ExternalExperiment):
        return formats.UNKNOWN
    steps_done, total = experiment.progress.steps_done, experiment.progress.steps_total
    return f"{steps_done:,}/{total:,} ({formats.percent(steps_done / total if total else None)})"


def experiment_view(experiment: ExperimentRecord, runs: tuple[RunRecord, ...]) -> RenderableType:
    """Return an experiment and its runs."""
    spec, note = experiment.spec, experiment.note
    cells, tokens = spec.cells(), formats.count(spec.workload.tokens())
    facts = (
        ("experiment", experiment.id),
        ("submitted", formats.moment(experiment.created_at)),
        ("ended", formats.moment(experiment.ended_at)),
        ("runs", counts_text(experiment.counts)),
        ("steps", steps_text(experiment)),
        *((("time left", time_left),) if (time_left := words.time_left(experiment)) else ()),
        *((("refused today", experiment.refused),) if experiment.refused else ()),
        *spec.facts(),
        ("answer", f"adapm-bench compare {experiment.id}"),
        ("model", ", ".join(spec.models())),
        ("data", spec.workload.data.dataset),
        ("budget", f"cells: {', '.join(cell.key for cell in cells)}" if cells else f"{tokens} tokens per run"),
        *((("clone of", experiment.cloned_from),) if experiment.cloned_from else ()),
        *((("labels", ", ".join(experiment.labels)),) if experiment.labels else ()),
    )
    parts: list[RenderableType] = [Text(plain(experiment.name), style="bold"), Text(facts_text(facts)), Text()]
    if note:
        author = note.editor or note.edited_by
        caption = f"note of {formats.moment(note.edited_at)}" + (f" by {plain(author)}" if author else "")
        lines = [plain(line.expandtabs(4)) for line in note.text.split("\n")]
        parts += [Text(caption, style="dim"), Text("\n".join(lines)), Text()]
    return Group(*parts, runs_table(runs))


def external_view(experiment: ExternalExperiment, runs: Iterable[ExternalRun]) -> RenderableType:
    """Return an experiment of logged or imported runs, and these."""
    facts = (
        ("experiment", experiment.id),
        ("not measured", ", ".join(experiment.source_kinds)),
        ("runs", counts_text(experiment.counts)),
        ("answer", f"adapm-bench compare {experiment.id}"),
    )
    rows = [
        (run.id, run.candidate, formats.rate(run.lr), formats.UNKNOWN if run.seed is None else str(run.seed), run.state,
         run.source)
        for run in runs
    ]  # fmt: skip
    table = text_table(("run", "candidate", "lr", "seed", "state", "source"), rows)
    return Group(Text(plain(experiment.name), style="bold"), Text(facts_text(facts)), Text(), table)


def run_view(
    run: RunRecord, attempts: tuple[AttemptRecord, ...], events: tuple[EventRecord, ...], standing: QueuePosition
) -> RenderableType:
    """Return a run, its result, its attempts and what happened to it."""
    title = f"{run.candidate} at {formats.rate(run.lr)}, seed {run.seed}"
    facts: tuple[tuple[str, str], ...] = (
        ("run", run.id),
        ("experiment", run.experiment_id),
        ("state", run.state_word()),
        ("reason", run.reason or formats.UNKNOWN),
        *([("in the queue", formats.queue_position(standing))] if standing.position is not None else []),
        ("step", f"{run.step}/{run.steps_total}"),
        ("device time", formats.duration(run.device_seconds)),
        *((("damaged", run.damaged),) if run.damaged else ()),
    )
    if (result := run.result) is not None:
        losses = f"{formats.loss(result.initial_val_loss)} to {formats.loss(result.final_val_loss)}"
        facts += (("result", formats.sentence(result.verdict_reason)), ("validation loss", losses))
        # `Peak tensors` as `peak tensors`; `MFU` stays.
        costs_of_run = costs.lines(result, run.spec) if run.spec else ()
        facts += tuple((name if name.isupper() else name[0].lower() + name[1:], value) for name, value in costs_of_run)
    parts: list[RenderableType] = [Text(plain(title), style="bold"), Text(facts_text(facts))]
    attempt_rows = [
        (
            str(attempt.attempt),
            formats.moment(attempt.started_at),
            formats.moment(attempt.ended_at),
            formats.duration(attempt.device_seconds),
            words.attempt_word(attempt, run),
            "; ".join(filter(None, (attempt.message, attempt.note))),
        )
        for attempt in attempts
    ]
    parts += [Text(), text_table(("attempt", "started", "ended", "device time", "outcome", "message"), attempt_rows)]
    event_rows = [
        (
            str(event.sequence),
            formats.moment(event.at),
            words.event_word(event.from_status, run) if event.from_status else formats.UNKNOWN,
            words.event_word(event.to_status, run),
            event.reason or "",
        )
        for event in events
    ]
    return Group(*parts, Text(), text_table(("event", "at", "from", "to", "reason"), event_rows))
