"""What the doctor sees of shared storage: whether checkpoints and datasets can be written, read and deleted there."""

import secrets
from collections.abc import Iterator

from api.cli.doctor.finding import Check, broken, good
from orchestrator.settings import Settings
from worker.errors import RemoteFolderError
from worker.remote.folder import RemoteFolder

NAME = "storage"
CONTENT = b"Can be deleted: adapm-bench doctor looked whether it can write here."


def storage(settings: Settings) -> Iterator[Check]:
    """Each remote folder of the settings, with this process's keys."""
    urls = {"checkpoints": settings.checkpoint_url, "datasets": settings.dataset_url}
    if not any(urls.values()):
        yield good(NAME, "checkpoints and datasets stay in the data folder")
    for what, url in urls.items():
        if url is not None:
            yield look(what, url)


def look(what: str, url: str) -> Check:
    """Whether a small file can be written, listed, read and deleted there."""
    folder, name = RemoteFolder(f"{url}/doctor-{secrets.token_hex(4)}"), "look"
    done = "written"
    try:
        folder.write(name, CONTENT)
        done = "read back"
        if folder.sizes() != {name: len(CONTENT)} or folder.read(name) != CONTENT:
            found = f"{what}: {url} does not show what was written there"
            return broken(NAME, found, "use storage that lists its files")
        done = "deleted"
        folder.remove([name])
    except RemoteFolderError as error:
        return broken(NAME, f"{what}: nothing can be {done} at {url}: {_reason(error)}", hint(error))
    return good(NAME, f"{what}: {url}, written, read and deleted")


def _reason(error: RemoteFolderError) -> str:
    lines = str(error.__cause__ or error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error.__cause__).__name__


def hint(error: RemoteFolderError) -> str:
    """By the kind of what the storage's library raised."""
    cause = error.__cause__
    kinds = {kind.__name__ for kind in type(cause).__mro__}
    if "NoCredentialsError" in kinds or "PartialCredentialsError" in kinds:
        return "give this process keys: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the machine's role"
    if isinstance(cause, PermissionError):
        return "correct the keys, or let them put, get, list and delete objects below that prefix"
    if isinstance(cause, FileNotFoundError):
        return "make the bucket, or correct its name in the setting"
    return "look at the network and at AWS_ENDPOINT_URL_S3, the storage's address where it is not Amazon's"
