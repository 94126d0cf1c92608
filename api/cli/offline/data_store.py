"""`adapm-bench data push`: prepared data and own weights into the remote folder of the settings, for other machines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.console import complain, print_json
from api.cli.service import BAD_INPUT, FAILED, Json, environment_settings

if TYPE_CHECKING:
    from orchestrator.settings import Settings

Names = Annotated[
    list[str] | None, typer.Argument(help="Only these, as DATASET-TOKENIZER, or weights/NAME.", metavar="[NAME]...")
]


def push(names: Names = None, json: Json = False) -> None:
    """Copy what is prepared here, and own weights, to the remote folder; runs on other machines fetch it from there."""
    settings = environment_settings()
    if settings.dataset_url is None:
        complain("there is no remote folder; set ADAPM_BENCH_DATASET_URL=s3://BUCKET/PREFIX (docs/deployment.md)")
        raise typer.Exit(BAD_INPUT)
    there = {
        path.relative_to(settings.datasets_folder()).as_posix(): path
        for path in (*prepared_folders(settings.datasets_folder()), *weights_folders(settings.datasets_folder()))
    }
    wanted = {name: path for name, path in there.items() if not names or name in names}
    if strangers := set(names or ()) - set(there):
        known = ", ".join(there) or "nothing"
        complain(f"not prepared here: {', '.join(sorted(strangers))}; prepared: {known}")
        raise typer.Exit(FAILED)
    if not wanted:
        complain(f"nothing is prepared in {settings.datasets_folder()}")
        raise typer.Exit(FAILED)
    for path in wanted.values():
        copy(path, settings)
    if json:
        print_json([{"folder": path, "url": f"{settings.dataset_url}/{name}"} for name, path in wanted.items()])


def prepared_folders(datasets_folder: Path) -> list[Path]:
    """Every finished folder of texts and of conversations, by name."""
    from worker.data.manifest import ConversationManifest, Manifest
    from worker.files import UNFINISHED

    kinds = (Manifest, ConversationManifest)
    found = {path.parent for kind in kinds for path in datasets_folder.glob(f"*/{kind.file_name}")}
    return sorted(path for path in found if path.suffix != UNFINISHED)


def weights_folders(datasets_folder: Path) -> list[Path]:
    """Every folder of own weights, by name."""
    from worker.catalog.datasets import OWN_NAME
    from worker.data.weights import OWN_FOLDER

    found = datasets_folder.glob(f"{OWN_FOLDER}/*/")
    return sorted(path for path in found if OWN_NAME.fullmatch(f"own/{path.name}"))


def copy(folder: Path, settings: "Settings") -> None:
    """Copy a folder of data or weights there, if there is a remote folder; ends the command where that fails."""
    from worker.data.remote_datasets import push as push_folder
    from worker.errors import WorkerError

    if settings.dataset_url is None:
        return
    name = folder.relative_to(settings.datasets_folder())
    url = f"{settings.dataset_url}/{name.parent.as_posix()}" if name.parent.name else settings.dataset_url
    try:
        push_folder(folder, url, complain)
    except (WorkerError, OSError) as error:
        complain(f"{name} is here, and not copied: {error} Then: adapm-bench data push {name}")
        raise typer.Exit(FAILED) from None
    complain(f"{name} is at {settings.dataset_url}/{name}")
