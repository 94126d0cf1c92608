"""The manifest of a prepared dataset: how it was made, which shards there are, and what each must contain."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, ValidationError

from worker.data.documents import VALIDATION_PERCENT, Split
from worker.errors import CorruptShardError
from worker.records.result import Record
from worker.schema import canonical_json

MANIFEST_NAME: Final = "manifest.json"

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ShardEntry(Record):
    """One shard file, beside the manifest."""

    file: Annotated[str, Field(pattern=r"^(train|validation)-\d{5}\.bin$")]
    split: Split
    tokens: Annotated[int, Field(ge=1)]
    sha256: Sha256


class Recipe(Record):
    """All that determines the tokens: equal recipes give equal shards, to the bit."""

    dataset: str
    tokenizer: str
    source_version: str
    tokenizer_sha256: Sha256 | None = None
    """Of the file that was given for the tokenizer; None for bytes, and for one that is trained."""
    tokens: Annotated[int, Field(ge=1)] | None = None
    """Preparation ended with the document that reached so many training tokens; None: it took all documents."""
    documents: Annotated[int, Field(ge=1)] | None = None
    """Preparation ended with so many documents."""
    validation_percent: Annotated[int, Field(ge=1, le=50)] = VALIDATION_PERCENT
    section_bytes: Annotated[int, Field(ge=1)]
    """Text from which one shard of each split is made."""


class Manifest(Record):
    """All that is known about a prepared dataset."""

    version: Literal[2] = 2
    recipe: Recipe
    vocabulary_size: int
    end_of_text: int
    """The token behind every document."""
    tokenizer_sha256: Sha256 | None
    """Of `tokenizer.json` beside the shards; None for bytes."""
    token_bytes: Literal[2, 4]
    """Shards hold little-endian uint16, or uint32 where the vocabulary is above 65,536."""
    documents: int
    skipped_documents: int
    text_bytes: int
    """UTF-8 bytes of all documents."""
    shards: tuple[ShardEntry, ...]
    data_hash: str
    """SHA-256 over the names, token counts and hashes of all shards: equal hashes mean equal tokens."""

    def tokens(self, split: Split) -> int:
        """Tokens of one split."""
        return sum(shard.tokens for shard in self.shards if shard.split is split)

    def size_bytes(self) -> int:
        """Bytes of all shards together."""
        return sum(shard.tokens for shard in self.shards) * self.token_bytes


def hash_shards(shards: Sequence[ShardEntry]) -> str:
    """The data hash of these shards."""
    return hashlib.sha256(canonical_json([shard.model_dump(mode="json") for shard in shards])).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest in `folder`; raises `CorruptShardError` with the way out."""
    try:
        content = (folder / MANIFEST_NAME).read_bytes()
    except OSError as error:
        raise CorruptShardError(
            f"the manifest {folder / MANIFEST_NAME} cannot be read: {error}. {way_out(folder)}"
        ) from error
    return parse_manifest(content, str(folder))


def parse_manifest(content: bytes, folder: str) -> Manifest:
    """The manifest with that content, of the folder at that path or URL; raises `CorruptShardError`."""
    path = f"{folder}/{MANIFEST_NAME}"
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        raise CorruptShardError(f"the manifest {path} cannot be read: {error}. {way_out(folder)}") from error
    if manifest.data_hash != hash_shards(manifest.shards):
        raise CorruptShardError(f"the manifest {path} contradicts its own data hash. {way_out(folder)}")
    return manifest


def way_out(folder: Path | str) -> str:
    """What to do about damaged prepared data."""
    return f"Delete the folder {folder} and prepare it again with `adapm-bench data prepare`."


# The manifest of prepared conversations: how they were made, and what each file must contain (no numpy, no torch).

CONVERSATIONS_NAME: Final = "conversations.json"


class ConversationManifest(Record):
    """All that is known about prepared conversations."""

    dataset: str
    tokenizer: str
    vocabulary_size: int
    end_of_text: int
    """The token that ends every answer."""
    source_version: str
    skipped: int
    conversations: dict[Split, int]
    sha256: dict[str, str]
    """File name → hash."""

    def data_hash(self) -> str:
        """SHA-256 over the hashes of all files: equal hashes mean equal tokens."""
        return hashlib.sha256(canonical_json(self.sha256)).hexdigest()


def parse_conversation_manifest(content: bytes, where: str) -> ConversationManifest:
    """The manifest with that content, of the folder `where`; raises `CorruptShardError` with the way out."""
    try:
        return ConversationManifest.model_validate_json(content)
    except ValidationError as error:
        raise CorruptShardError(
            f"the manifest of {where} cannot be understood: {error}. "
            f"Delete the folder {where}: the next run prepares it again."
        ) from error
