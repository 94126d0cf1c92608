"""`adapm-bench data push`: prepared data into the remote folder of the settings, for other machines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.console import complain, print_json
from api.cli.service import BAD_INPUT, FAILED, Json, environment_settings

if TYPE_CHECKING:
    from orchestrator.settings import Settings

Names = Annotated[list[str] | None, typer.Argument(help="Only these, as DATASET-TOKENIZER.", metavar="[NAME]...")]


def push(names: Names = None, json: Json = False) -> None:
    """Copy what is prepared here to the remote folder; runs on other machines fetch it from there."""
    settings = environment_settings()
    if settings.dataset_url is None:
        complain("there is no remote folder; set ADAPM_BENCH_DATASET_URL=s3://BUCKET/PREFIX (docs/deployment.md)")
        raise typer.Exit(BAD_INPUT)
    there = prepared_folders(settings.datasets_folder())
    wanted = [path for path in there if not names or path.name in names]
    if strangers := set(names or ()) - {path.name for path in there}:
        known = ", ".join(path.name for path in there) or "nothing"
        complain(f"not prepared here: {', '.join(sorted(strangers))}; prepared: {known}")
        raise typer.Exit(FAILED)
    if not wanted:
        complain(f"nothing is prepared in {settings.datasets_folder()}")
        raise typer.Exit(FAILED)
    for path in wanted:
        copy(path, settings)
    if json:
        print_json([{"folder": path, "url": f"{settings.dataset_url}/{path.name}"} for path in wanted])


def prepared_folders(datasets_folder: Path) -> list[Path]:
    """Every finished folder of texts and of conversations, by name."""
    from worker.data.conversation_manifest import MANIFEST_NAME as CONVERSATIONS
    from worker.data.manifest import MANIFEST_NAME as TEXTS
    from worker.data.prepared import UNFINISHED

    found = {path.parent for name in (TEXTS, CONVERSATIONS) for path in datasets_folder.glob(f"*/{name}")}
    return sorted(path for path in found if path.suffix != UNFINISHED)


def copy(folder: Path, settings: "Settings") -> None:
    """Copy a prepared folder there, if there is a remote folder; ends the command where that fails."""
    from worker.data.remote_datasets import push as push_folder
    from worker.errors import WorkerError

    if settings.dataset_url is None:
        return
    try:
        push_folder(folder, settings.dataset_url, complain)
    except (WorkerError, OSError) as error:
        complain(f"{folder.name} is prepared here, and not copied: {error} Then: adapm-bench data push {folder.name}")
        raise typer.Exit(FAILED) from None
    complain(f"{folder.name} is at {settings.dataset_url}/{folder.name}")
