"""The manifest of own weights in a remote folder: what each of their files must contain (no numpy, no torch).

On a machine's disk own weights are what `save_pretrained` wrote, and nothing else; their hashes are taken when they are
copied.
"""

import hashlib
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from worker.data.manifest import Sha256
from worker.errors import CorruptShardError
from worker.record import Record
from worker.weights import FILES

MANIFEST_NAME: Final = "weights.json"


class WeightsManifest(Record):
    """All that is known about a folder of weights."""

    sha256: dict[str, Sha256]
    """File name → hash."""


def made(folder: Path) -> WeightsManifest:
    """Of the weights in `folder`; raises `CorruptShardError` where there are none."""
    paths = {path for pattern in FILES for path in folder.glob(pattern)}
    if not any(path.suffix == ".safetensors" for path in paths):
        raise CorruptShardError(f"{folder} holds no safetensors file. Save the model again with `save_pretrained`.")
    return WeightsManifest(sha256={path.name: sha256_of(path) for path in sorted(paths)})


def understood(content: bytes, where: str) -> WeightsManifest:
    """The manifest with that content, of the folder `where`; raises `CorruptShardError` with the way out."""
    try:
        return WeightsManifest.model_validate_json(content)
    except ValidationError as error:
        raise CorruptShardError(
            f"the manifest of the weights at {where} cannot be understood: {error}. "
            "Delete that folder, and copy them again with `adapm-bench data push`."
        ) from error


def sha256_of(path: Path) -> str:
    """Of a file's content. Raises `OSError`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
