"""`import`: runs of a training loop of one's own, which `start_run` has logged into spools, and runs that other tools
have logged, with a mapping that it proposes and the user may correct.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from api.cli.console import FAILED, Json, ProgressLine, complain, console, fail, plain, print_json, refuse, text_table
from api.cli.service import Url, open_client
from api.client.messages import ClientError
from api.client.spool import FOLDER, FOLDER_VARIABLE, SUFFIX, RunSpool, SpoolError, Synced, find
from api.imports.mapping import (
    NAMES,
    PROPOSALS,
    FieldMapping,
    MappedRun,
    apply_mapping,
    possible_losses,
    propose_mapping,
)
from api.imports.readers import choose_reader, read_runs
from api.imports.source import ReadRequest, SourceError, SourceRun, open_shelf
from api.imports.text_log import FORMATS
from api.imports.transfer import ImportedRun, send_run
from orchestrator.external_runs import IMPORTED, RunHeader
from worker.words import pluralize

Words = Annotated[
    list[str] | None,
    typer.Argument(
        help="Optionally the kind (spools, csv, trainer_state, tensorboard, wandb, trackio, mlflow, log), then "
        f"files, folders or MLflow's address. Default: your own loop's runs in ${FOLDER_VARIABLE}, else {FOLDER}.",
        metavar="[SOURCE] FILE|DIR|URI...",
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        help="Map a field of the bench to one of the source: candidate=config.optimizer; val_loss=-accuracy.",
        metavar="A=B",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Set a field for all these runs: candidate=muon.", metavar="A=TEXT"),
]
PatternOption = Annotated[
    str | None,
    typer.Option(
        help=f"Of lines of plain text logs: a regular expression with a group for the step and one for each metric, or "
        f"{', '.join(FORMATS)}. Default: whichever of these matches.",
        metavar="REGEX|NAME",
    ),
]
ExperimentOption = Annotated[
    str | None, typer.Option(help="Short for --set experiment=NAME: the experiment they belong to.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the mapping and the runs, and send nothing.")]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Import only the runs whose field of the source is this: project=NAME, the experiment of MLflow's; "
        "config.optimizer=ada*.",
        metavar="FIELD=TEXT",
    ),
]
MOST_SHOWN = 20


def import_runs(
    arguments: Words = None,
    mapped: MapOption = None,
    given: SetOption = None,
    experiment: ExperimentOption = None,
    pattern: PatternOption = None,
    only: OnlyOption = None,
    dry_run: DryRun = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Import runs of your own loop, W&B, MLflow, TensorBoard, Trackio, a Trainer, a table or plain logs. Repeat it for
    new runs and points."""
    folders = _spool_folders(arguments or ())
    if folders:
        if mapped or given or experiment is not None or pattern or only or dry_run:
            refuse(
                "spools say themselves what their runs are; leave out --map, --set, --experiment, --pattern, --only "
                "and --dry-run"
            )
        _send_spools(folders, url, json=json)
        return
    corrections, constants = _pairs("--map", mapped, NAMES), _pairs("--set", given, tuple(PROPOSALS))
    if experiment is not None:
        constants["experiment"] = experiment
    with open_shelf() as put:
        source_runs = list[SourceRun]()
        try:
            reader, places = choose_reader(arguments or ())
            request = ReadRequest(
                places=places,
                fields=[field for name, field in corrections.items() if name in PROPOSALS],
                step=corrections.get("step"),
                pattern=pattern,
                only=_pairs("--only", only, None),
            )
            with ProgressLine(quiet=json) as line:
                for run in read_runs(reader, request):
                    source_runs.append(replace(run, sessions=put(run.sessions)))
                    line.show(f"{pluralize(len(source_runs), 'run')} read")
                line.show(f"{pluralize(len(source_runs), 'run')} read", last=True)
            mapping = propose_mapping(source_runs, corrections, constants)
        except (SourceError, OSError) as error:
            refuse(str(error))
        default = Path(request.places[0]).resolve().stem
        runs, refused = list[MappedRun](), len(request.empty)
        for path in request.empty:
            complain(f"{path} says nothing of a run, and is left out: its process was killed before it began")
        names = dict[str, str]()
        for source_run in source_runs:
            try:
                run_to_send = apply_mapping(source_run, mapping, reader.source, default)
                if (first := names.get(run_to_send.run_id)) is not None:
                    raise SourceError(
                        f"{source_run.name} has candidate, rate, seed, last name and first loss of {first}, and would "
                        "replace it; say what differs by --map candidate=FIELD, or import it as another experiment"
                    )
                names[run_to_send.run_id] = source_run.name
                runs.append(replace(run_to_send, points=put(run_to_send.points)))
            except SourceError as error:
                complain(str(error))
                refused += 1
        if not json:
            _print_mapping(reader.source, mapping, source_runs, runs)
        if "val_loss" not in mapping.fields and runs:
            losses = possible_losses(source_runs) or sorted({name for run in source_runs for name in run.metrics})
            complain(
                f"no metric has a name of a validation loss; it could be {', '.join(losses[:MOST_SHOWN]) or 'none'}: "
                "choose the one to judge by with --map val_loss=NAME, or -NAME where higher is better"
            )
        sent = list[ImportedRun]()
        if runs and not dry_run:
            with open_client(url) as client, ProgressLine(quiet=json) as line:
                for number, run_to_send in enumerate(runs, start=1):
                    try:
                        sent.append(send_run(client, run_to_send))
                    except ClientError as error:
                        if error.status is None or error.status in (401, 403):  # no other run would fare better
                            raise
                        complain(f"{run_to_send.name}: {error}")
                        refused += 1
                    line.show(f"{number:,} of {pluralize(len(runs), 'run')} sent", last=number == len(runs))
        if json:
            rows = [{"run_id": run.run_id, "name": run.name, **run.header.model_dump()} for run in runs]
            print_json({"mapping": vars(mapping), "runs": rows, "sent": [vars(run) for run in sent]})
        elif dry_run:
            print("nothing was sent; without --dry-run it is")
        else:
            _print_sent(sent)
    if refused:
        raise typer.Exit(FAILED)


def _print_sent(sent: Sequence[ImportedRun]) -> None:
    for name in dict.fromkeys(run.experiment for run in sent):
        its_runs = [run for run in sent if run.experiment == name]
        new = sum(run.is_new for run in its_runs)
        values = sum(run.new_values for run in its_runs)
        runs_sent, new_values = pluralize(len(its_runs), "run"), pluralize(values, "new value")
        print(f"{plain(name)}: {runs_sent}, {new} of them new, {new_values}")
        if replaced := sum(run.replaced_values > 0 for run in its_runs):
            print(f"  {replaced} had other values before, which these replace; import other runs as another experiment")
        if went_back := sum(run.went_back for run in its_runs):
            print(f"  {went_back} sent whole again, because they went back to an earlier step since the last import")
        print(f"  adapm-bench compare '{plain(name)}'")


def _spool_folders(arguments: Sequence[str]) -> list[Path]:
    """Return the folders and files of spools among the arguments; empty if these are logs of other tools."""
    if not arguments:
        return [Path(os.environ.get(FOLDER_VARIABLE) or FOLDER)]
    if arguments[0] == "spools":
        return [Path(word) for word in arguments[1:]] or _spool_folders(())
    paths = [Path(word) for word in arguments]
    return paths if all(path.match(f"*{SUFFIX}") or (path.is_dir() and find(path)) for path in paths) else []


def _send_spools(folders: Sequence[Path], url: str | None, *, json: bool) -> None:
    """Send what the service has not; exit code 1 where it refuses a spool, or one cannot be read."""
    for folder in folders:
        if not folder.exists():
            fail(f"{folder} does not exist; runs are logged below the folder that a training is started in")
    paths = [path for folder in folders for path in find(folder)]
    sent, refused = list[Synced](), 0
    with open_client(url) as client:
        for path in paths:
            try:
                sent.append(RunSpool(path).send(client))
            except (SpoolError, OSError) as error:
                complain(str(error))
                refused += 1
            except ClientError as error:
                if error.status is None or error.status in (401, 403):  # no other spool would fare better
                    raise
                complain(f"{path}: {error}")
                refused += 1
    if json:
        print_json([vars(spool) for spool in sent])
    else:
        for name in dict.fromkeys(spool.experiment for spool in sent):
            runs = {spool.run_id for spool in sent if spool.experiment == name}
            lines = sum(spool.sent for spool in sent if spool.experiment == name)
            print(f"{plain(name)}: {pluralize(len(runs), 'run')}, {pluralize(lines, 'new line')}")
            print(f"  adapm-bench compare '{plain(name)}'")
        if not paths:
            print(f"{folders[0]} has no runs; start_run of api.client makes them")
    if refused:
        raise typer.Exit(FAILED)


def _pairs(option: str, pairs: Sequence[str] | None, names: Sequence[str] | None) -> dict[str, str]:
    """Return the values of an option by name; `names`: the allowed ones, None for any."""
    values = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not value or (names is not None and name not in names):
            names_text = "" if names is None else f", where NAME is one of {', '.join(names)}"
            refuse(f"{option} {pair}: use {option} NAME=VALUE{names_text}")
        values[name] = value
    return values


def _print_mapping(
    source: str, mapping: FieldMapping, source_runs: Sequence[SourceRun], runs: Sequence[MappedRun]
) -> None:
    print(f"{source}: {pluralize(len(source_runs), 'run')}")
    rows = []
    step_fields = ", ".join(dict.fromkeys(run.step_field for run in source_runs if run.step_field is not None))
    for name in NAMES:
        origin = mapping.fields.get(name) or ("given" if name in mapping.constants else "—")
        if name == "experiment" and origin == "—":
            origin = "name of the folder"
        if name == "step" and name not in mapping.fields and step_fields:
            origin = step_fields
        values = list(dict.fromkeys(getattr(run.header, name, None) for run in runs))
        shown = ", ".join(
            "—" if value is None else str(value) for value in values[:6] if name in RunHeader.model_fields
        )
        rows.append((name, origin, shown + (", …" if len(values) > 6 else "")))
    console().print(text_table(("field", "from", "values"), rows))
    other_metrics = sorted({metric for run in runs for metric in run.metrics} - {*NAMES})
    settings = {name for run in runs for name in run.header.config} - {IMPORTED}
    counts = f"{pluralize(len(settings), 'setting')}, {pluralize(len(other_metrics), 'other metric')}"
    print(f"kept as well: {counts}" + (f" ({plain(', '.join(other_metrics[:8]))})" if other_metrics else ""))
    left_out = sorted({name for run in source_runs for name in run.not_numbers})
    if left_out:
        suffix = f" and {len(left_out) - MOST_SHOWN} more" if len(left_out) > MOST_SHOWN else ""
        print(f"left out, no numbers: {plain(', '.join(left_out[:MOST_SHOWN]))}{suffix}")
    note_counts = Counter(note for run in runs for note in dict.fromkeys(run.notes))
    for note, count in note_counts.most_common(MOST_SHOWN):
        run_names = [run.name for run in runs if note in run.notes]
        print(
            f"{pluralize(count, 'run')} ({plain(', '.join(run_names[:4]))}{', …' if count > 4 else ''}): {plain(note)}"
        )
    names = [run.name for run in runs if run.header.seed is None]
    if names:
        print(
            f"not judged, without a seed: {pluralize(len(names), 'run')} ({plain(', '.join(names[:4]))}); name the "
            "field with --map seed=FIELD, or import one run at a time with --set seed=NUMBER"
        )
