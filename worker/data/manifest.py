"""The manifest of a prepared dataset: which shards there are, and what each must contain."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from worker.data.documents import Split
from worker.errors import CorruptShardError
from worker.record import Record
from worker.spec import canonical_json

MANIFEST_NAME: Final = "manifest.json"
TOKEN_BYTES: Final = 2
"""Shards hold little-endian uint16; every vocabulary so far is below 65,536."""


class ShardEntry(Record):
    """One shard file, beside the manifest."""

    file: Annotated[str, Field(pattern=r"^(train|validation)-\d{5}\.bin$")]
    split: Split
    tokens: Annotated[int, Field(ge=1)]
    sha256: str

    def size_bytes(self) -> int:
        """Size of the file."""
        return self.tokens * TOKEN_BYTES


class Manifest(Record):
    """All that is known about a prepared dataset."""

    version: Literal[1] = 1
    dataset: str
    tokenizer: str
    vocabulary_size: int
    source_version: str
    documents: int
    skipped_documents: int
    shards: tuple[ShardEntry, ...]
    data_hash: str
    """SHA-256 over the names, token counts and hashes of all shards: equal hashes mean equal tokens."""

    def tokens(self, split: Split) -> int:
        """Tokens of one split."""
        return sum(shard.tokens for shard in self.shards if shard.split is split)

    def size_bytes(self) -> int:
        """Bytes of all shards together."""
        return sum(shard.size_bytes() for shard in self.shards)


def hash_shards(shards: Sequence[ShardEntry]) -> str:
    """The data hash of these shards."""
    return hashlib.sha256(canonical_json([shard.model_dump(mode="json") for shard in shards])).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest in `folder`; raises `CorruptShardError` with the way out."""
    path = folder / MANIFEST_NAME
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise CorruptShardError(f"the manifest {path} cannot be read: {error}. {way_out(folder)}") from error
    if manifest.data_hash != hash_shards(manifest.shards):
        raise CorruptShardError(f"the manifest {path} contradicts its own data hash. {way_out(folder)}")
    return manifest


def way_out(folder: Path) -> str:
    """What to do about damaged prepared data."""
    return f"Delete the folder {folder}: the next run prepares it again."
