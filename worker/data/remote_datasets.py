"""Prepared data and own weights in a remote folder: copied there once, fetched by every machine that has not got them.

    <url>/<dataset>-<tokenizer>/<begin of its SHA-256>-train-00000.bin    every file of the prepared folder
    <url>/<dataset>-<tokenizer>/manifest.json                             the folder's own manifest, written last
    <url>/weights/<name>/…, weights.json                                  the weights own/<name>, alike

Files are named by their content, so that what is there already is never copied again and never overwritten by another.
Runs only read there; `adapm-bench data prepare` and `data push` write.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from worker.catalog import datasets
from worker.data.manifest import ConversationManifest, FolderManifest, Manifest, WeightsManifest
from worker.data.weights import FILES, OWN_FOLDER, own_weights_folder
from worker.errors import CorruptShardError, DataError
from worker.files import UNFINISHED, file_sha256, hold_lock
from worker.remote.folder import RemoteFolder, read_soon, retry_while_away
from worker.spec.run import DataSpec

logger = logging.getLogger(__name__)


Contents = tuple[FolderManifest, bytes]
"""The manifest of a prepared folder, and the text of it as it was written."""


def fetch_missing(
    data: DataSpec, dataset_folder: Path, url: str, check_stop: Callable[[], None] = lambda: None
) -> None:
    """Have the data of a run in `dataset_folder` if they are there or in the remote folder; one process fetches, others
    of this machine that want the same wait. `check_stop` is called while anything is fetched or waited for, and ends
    it by raising.

    Raises `RemoteFolderError` if it stays unreachable, `CorruptShardError` if it is damaged.
    """
    _fetch_once(dataset_folder / datasets.folder_name(data.dataset, data.tokenizer), url, check_stop)


def fetch_weights(name: str, dataset_folder: Path, url: str, check_stop: Callable[[], None] = lambda: None) -> None:
    """Have own weights in `dataset_folder`, as `fetch_missing`; of others nothing is kept there."""
    if datasets.OWN_NAME.fullmatch(name):
        _fetch_once(own_weights_folder(name, dataset_folder), f"{url}/{OWN_FOLDER}", check_stop)


def _fetch_once(folder: Path, url: str, check_stop: Callable[[], None]) -> None:
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder.with_name(f"{folder.name}.lock"), logger.info, check_stop):
        if not folder.exists():  # another run may have fetched it while we waited
            retry_while_away(lambda: fetch(RemoteFolder(url).subfolder(folder.name), folder, check_stop), check_stop)


def fetch(remote: RemoteFolder, folder: Path, check_stop: Callable[[], None] = lambda: None) -> bool:
    """Fetch prepared data into `folder`, which appears complete or not at all; False if there are none.

    What an earlier call had fetched is kept, if it is what it should be. `check_stop` as in `fetch_missing`.
    """
    if (contents := remote_content(remote)) is None:
        return False
    manifest, text = contents
    unfinished = folder.with_name(f"{folder.name}.fetched{UNFINISHED}")
    unfinished.mkdir(parents=True, exist_ok=True)
    for name, sha256 in manifest.file_hashes().items():
        path = unfinished / name
        if path.exists() and file_sha256(path) == sha256:
            continue
        check_stop()
        remote.fetch(object_name(name, sha256), path, check_stop)
        if (digest := file_sha256(path)) != sha256:
            path.unlink()
            raise CorruptShardError(
                f"{remote.url}/{object_name(name, sha256)} is damaged: its SHA-256 is {digest}. Delete it there, and "
                "copy it again with `adapm-bench data push` on the machine where it was prepared."
            )
    (unfinished / manifest.file_name).write_bytes(text)
    unfinished.rename(folder)
    logger.info("fetched %s from %s", folder, remote.url)
    return True


def push(folder: Path, url: str, say: Callable[[str], None] = logger.info) -> None:
    """Copy the prepared `folder` there; what is there already is left alone.

    Raises `DataError` if other data have that name there, `CorruptShardError` if the folder has no good manifest,
    `RemoteFolderError`.
    """
    remote, (manifest, text) = RemoteFolder(url).subfolder(folder.name), local_content(folder)
    remote_copy = remote_content(remote)
    if remote_copy is not None and remote_copy[0].file_hashes() != manifest.file_hashes():
        raise DataError(
            f"{remote.url} holds other data under that name: runs of one service must see one text. Delete that folder "
            "to replace it, or prepare yours under another name."
        )
    sizes = remote.sizes()
    for name, sha256 in manifest.file_hashes().items():
        path, there_as = folder / name, object_name(name, sha256)
        if sizes.get(there_as) != path.stat().st_size:
            say(f"copying {name} to {remote.url}")
            remote.put(path, there_as)
    if remote_copy is None:
        remote.write(manifest.file_name, text)


def object_name(name: str, sha256: str) -> str:
    """Return the name of a prepared folder's file in the remote folder."""
    return f"{sha256[:16]}-{name}"


def local_content(folder: Path) -> Contents:
    """Return the content of the prepared folder; raises `CorruptShardError`."""
    for kind in (Manifest, ConversationManifest):
        if (folder / kind.file_name).exists():
            text = (folder / kind.file_name).read_bytes()
            return kind.parse(text, str(folder)), text
    if folder.parent.name == OWN_FOLDER:
        paths = {path for pattern in FILES for path in folder.glob(pattern)}
        if not any(path.suffix == ".safetensors" for path in paths):
            raise CorruptShardError(f"{folder} holds no safetensors file. Save the model again with `save_pretrained`.")
        weights = WeightsManifest(sha256={path.name: file_sha256(path) for path in sorted(paths)})
        return weights, weights.model_dump_json(indent=2).encode()
    way_out = Manifest.way_out.format(folder=folder)
    raise CorruptShardError(f"{folder} holds no prepared data: it has no manifest. {way_out}")


def remote_content(remote: RemoteFolder) -> Contents | None:
    """Return the content that the remote folder declares; None if there is nothing. Raises `RemoteFolderError`."""
    for kind in (Manifest, ConversationManifest, WeightsManifest):
        if (text := remote.read(kind.file_name)) is not None:
            return kind.parse(text, remote.url), text
    return None


def remote_manifest(name: str, url: str) -> Manifest | None:
    """Return the manifest of prepared texts there, or None, within seconds (`worker/remote/folder.py`). Raises
    `RemoteFolderError`, `CorruptShardError`."""
    content = read_soon(url, f"{name}/{Manifest.file_name}")
    return None if content is None else Manifest.parse(content, f"{url}/{name}")


def has_weights(name: str, url: str) -> bool:
    """Return whether there are own weights of that name, alike. Raises `RemoteFolderError`."""
    folder = f"{OWN_FOLDER}/{name.removeprefix('own/')}"
    return read_soon(url, f"{folder}/{WeightsManifest.file_name}") is not None
