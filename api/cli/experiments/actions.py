"""`adapm-bench cancel|pause|resume|retry ID`: what can be asked of an experiment, or of one run;
`clone|edit|delete ID`: of an experiment.
"""

import sys
from typing import Annotated

import typer

from api.cli.console import Json, Yes, plain, print_json, refuse
from api.cli.experiments.show import AnyId, Id, find, find_experiment
from api.cli.experiments.submit import print_power, print_submission
from api.cli.listings import counts_text
from api.cli.service import Url, open_client, print_hindrance
from dashboards.text import formats
from orchestrator.external_runs import ExternalExperiment, ExternalRun, Listed
from orchestrator.jobs import RunAction
from orchestrator.kinds.fields import MOST_SEEDS
from orchestrator.kinds.sweep import SweepSpec
from orchestrator.records import AnyExperiment, RunRecord
from worker.words import pluralize

Undo = Annotated[bool, typer.Option("--undo", help="Restore a deleted one; `ls --deleted` lists those that can be.")]
AddedLabels = Annotated[list[str] | None, typer.Option(help="Add this label; repeatable.")]
RemovedLabels = Annotated[list[str] | None, typer.Option(help="Remove this label; repeatable.")]
NoteText = Annotated[str | None, typer.Option(help="Write this note, in Markdown; everybody can read it.")]
ClearNote = Annotated[bool, typer.Option("--clear-note", help="Remove the note.")]
Name = Annotated[str | None, typer.Option(help="The clone's name; default: the original's.")]
MoreSeeds = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST_SEEDS,
        help="Run the tuned settings of an ended experiment, or a sweep's best trials, on so many new seeds.",
    ),
]
Processes = Annotated[
    int | None, typer.Option(min=1, max=1024, help="For one run: the number of processes from now on.")
]


def cancel(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Cancel an experiment's unfinished runs, or one run. Training runs write a checkpoint and stop within seconds."""
    _apply(RunAction.CANCEL, id, url, json)


def pause(id: AnyId, url: Url = None, json: Json = False) -> None:
    """Pause an experiment's runs, or one run. Training runs write a checkpoint and stop within seconds."""
    _apply(RunAction.PAUSE, id, url, json)


def resume(id: AnyId, processes: Processes = None, url: Url = None, json: Json = False) -> None:
    """Continue paused runs from their checkpoints, to the same losses as without the pause."""
    _apply(RunAction.RESUME, id, url, json, processes)


def retry(id: AnyId, processes: Processes = None, url: Url = None, json: Json = False) -> None:
    """Queue failed or cancelled runs again; they continue from their last checkpoints."""
    _apply(RunAction.RETRY, id, url, json, processes)


def _apply(action: RunAction, id: str, url: str | None, json: bool, processes: int | None = None) -> None:
    record: RunRecord | AnyExperiment
    with open_client(url) as client:
        target = find(client, id)
        if isinstance(target, ExternalExperiment | ExternalRun):
            refuse(f"{id} is of logged or imported runs, which are never queued; nothing of it can be changed so")
        if isinstance(target, RunRecord):
            record = client.apply_to_run(target.id, action, processes)
        elif processes is not None:
            refuse(f"--processes is for one run; {id} is an experiment. `adapm-bench runs {id}` lists its runs")
        else:
            record = client.apply_to_experiment(target.id, action)
        if action in (RunAction.RESUME, RunAction.RETRY):
            print_hindrance(client)
    if json:
        print_json(record)
    elif isinstance(record, RunRecord):
        print(f"run {record.id}: {record.state_word()}")
    else:
        print_state(record)


def print_state(experiment: AnyExperiment) -> None:
    """Print how many runs of an experiment are in which state."""
    print(f"experiment {experiment.id}: {counts_text(experiment.counts)}")


def delete(id: Id, undo: Undo = False, yes: Yes = False, url: Url = None, json: Json = False) -> None:
    """Delete an experiment whose runs have all ended; --undo restores it for a while. Of runs that were logged or
    imported: for good."""
    with open_client(url) as client:
        if undo:
            restored = client.restore_experiment(id)
            print_json(restored) if json else print_state(restored)
            return
        target = find_experiment(client, id)
        description = f"experiment {target.id}, {target.name!r}, {pluralize(target.counts.total, 'run')}"
        if isinstance(target, ExternalExperiment):
            _confirm(f"Delete {description}, for good?", yes=yes)
            deleted = client.delete_external_experiment(target.id)
            print_json(deleted) if json else print(f"experiment {deleted.id} is deleted for good")
            return
        _confirm(f"Delete {description}?", yes=yes)
        experiment = client.delete_experiment(target.id)
    if json:
        print_json(experiment)
        return
    way_back = "it cannot be restored."
    if experiment.undo_until is not None:
        until = formats.moment(experiment.undo_until)
        way_back = f"until {until} `adapm-bench delete {experiment.id} --undo` brings it back."
    print(f"experiment {experiment.id} is deleted; {way_back} MLflow keeps its copy.")


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        refuse(f"{plain(question)} Nobody can confirm it here; give --yes")
    typer.confirm(plain(question), abort=True, err=True)


def clone(
    id: Id,
    name: Name = None,
    more_seeds: MoreSeeds = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Queue an experiment's specification again, as a new experiment that names the original."""
    with open_client(url) as client:
        source = client.experiment(id)
        if more_seeds is not None and isinstance(source.spec, SweepSpec):
            spec = client.sweep_comparison(source.id, seeds=more_seeds)
            if name is not None:
                spec = spec.model_copy(update={"name": name})
            # The key holds the specification: with other seeds, or a trial that was retried, this is another
            # comparison; the same one again changes nothing.
            submission = client.submit(spec, f"sweep-{source.id}-{spec.content_hash()[:32]}")
        else:
            keeps = more_seeds is not None
            submission = client.clone_experiment(id, name, fresh_seeds=more_seeds, keep_rates=keeps)
        power = client.validate(submission.experiment.spec) if more_seeds is not None and not json else None
        print_hindrance(client)
        print_json(submission) if json else print_submission(submission, client.url)
    if power is not None:
        print_power(power)


def edit(
    id: Id,
    label: AddedLabels = None,
    unlabel: RemovedLabels = None,
    note: NoteText = None,
    clear_note: ClearNote = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Add or remove labels of an experiment, and write its note; `ls --label` finds it, `show` prints the note."""
    if note is not None and clear_note:
        refuse("give one of --note and --clear-note")
    if note is not None and not note.strip():
        refuse("the text is empty; nothing was changed. --clear-note removes the note")
    writes_note = note is not None or clear_note
    if not label and not unlabel and not writes_note:
        refuse("nothing to change: give --label, --unlabel, --note or --clear-note")
    with open_client(url) as client:
        experiment: Listed = find_experiment(client, id)
        if isinstance(experiment, ExternalExperiment):
            if writes_note:
                refuse("an experiment of logged or imported runs has labels, but no note")
            experiment = client.label_external_experiment(experiment.id, add=label or (), remove=unlabel or ())
        else:
            if label:
                experiment = client.add_labels(id, *label)
            if unlabel:
                experiment = client.remove_labels(id, *unlabel)
            if writes_note:
                experiment = client.write_note(id, note)
    if json:
        print_json(experiment)
        return
    if label or unlabel:
        print(plain(f"experiment {experiment.id}: {', '.join(experiment.labels) or 'no labels'}"))
    if writes_note:
        print(f"experiment {experiment.id}: the note is {'removed' if clear_note else 'written'}")
