"""Manifests: how prepared texts and conversations were made, and what every file must contain; those of own weights.

No numpy, no torch.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, ValidationError

from worker.data.documents import VALIDATION_PERCENT, Split
from worker.errors import CorruptShardError
from worker.files import file_sha256
from worker.records.result import Record
from worker.schema import canonical_json

TOKENIZER_FILE: Final = "tokenizer.json"
"""Beside the shards, where the tokenizer is made from a file."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class FolderManifest(Record):
    """The base of all manifests: a file in a folder of data or weights that says what its other files must contain."""

    file_name: ClassVar[str]
    way_out: ClassVar[str]
    """The remedy for a damaged folder, with a place for its path or URL."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read and check the manifest in `folder`; raises `CorruptShardError` with the way out."""
        path = folder / cls.file_name
        try:
            content = path.read_bytes()
        except OSError as error:
            way_out = cls.way_out.format(folder=folder)
            raise CorruptShardError(f"the manifest {path} cannot be read: {error}. {way_out}") from error
        return cls.parse(content, str(folder))

    @classmethod
    def parse(cls, content: bytes, folder: str) -> Self:
        """Return the manifest with that content, of the folder at that path or URL; raises `CorruptShardError`."""
        path, way_out = f"{folder}/{cls.file_name}", cls.way_out.format(folder=folder)
        try:
            manifest = cls.model_validate_json(content)
        except ValidationError as error:
            raise CorruptShardError(f"the manifest {path} cannot be read: {error}. {way_out}") from error
        if not manifest.is_consistent():
            raise CorruptShardError(f"the manifest {path} contradicts its own data hash. {way_out}")
        if strays := [name for name in manifest.file_hashes() if Path(name).name != name]:
            raise CorruptShardError(f"the manifest of {folder} names files elsewhere: {', '.join(strays)}. Delete it.")
        return manifest

    def is_consistent(self) -> bool:
        """Return whether it does not contradict itself."""
        return True

    @abstractmethod
    def file_hashes(self) -> dict[str, str]:
        """File name → SHA-256 of every other file in the folder."""

    def faults(self, folder: Path) -> Iterator[str]:
        """Yield a sentence with its way out for each file that is not what this says."""
        for name, expected in self.file_hashes().items():
            path = folder / name
            state = f"has SHA-256 {file_sha256(path)}" if path.is_file() else "is missing"
            if state != f"has SHA-256 {expected}":
                way_out = self.way_out.format(folder=folder)
                yield f"the file {path} {state}; the manifest says {expected}. {way_out}"


class ShardEntry(Record):
    """A shard file, beside the manifest."""

    file: Annotated[str, Field(pattern=r"^(train|validation)-\d{5}\.bin$")]
    split: Split
    tokens: Annotated[int, Field(ge=1)]
    sha256: Sha256


class Order(Record):
    """A user's order of a preparation."""

    dataset: str
    tokenizer: str = "byte"
    tokens: Annotated[int, Field(ge=1)] | None = None
    """End with the document that reaches so many training tokens; None: take all documents."""
    documents: Annotated[int, Field(ge=1)] | None = None
    """End with so many documents."""
    validation_percent: Annotated[int, Field(ge=1, le=50)] = VALIDATION_PERCENT
    section_bytes: Annotated[int, Field(ge=1)] = 128 * 2**20
    """Text from which one shard of each split is made: its tokens fit into memory twice, and a kill loses less than a
    minute of work."""


class Recipe(Order):
    """All that determines the tokens: equal recipes give equal shards, to the bit."""

    source_version: str
    tokenizer_sha256: Sha256 | None = None
    """The hash of the given tokenizer file; None for bytes, and for one that is trained."""


class Manifest(FolderManifest):
    """All that is known about a prepared dataset."""

    file_name = "manifest.json"
    way_out = "Delete the folder {folder} and prepare it again with `adapm-bench data prepare`."

    version: Literal[2] = 2
    recipe: Recipe
    vocabulary_size: int
    end_of_text: int
    """The token behind every document."""
    tokenizer_sha256: Sha256 | None
    """The hash of `tokenizer.json` beside the shards; None for bytes."""
    token_bytes: Literal[2, 4]
    """Shards hold little-endian uint16, or uint32 where the vocabulary is above 65,536."""
    documents: int
    skipped_documents: int
    replaced_characters: int = 0
    """NUL and halves of surrogate pairs in the source: U+FFFD in the documents."""
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

    def is_consistent(self) -> bool:
        """Return whether the data hash is that of the shards."""
        return self.data_hash == hash_shards(self.shards)

    def file_hashes(self) -> dict[str, str]:
        """Return the hashes of the tokenizer, if it has a file, and of every shard."""
        tokenizer = {} if self.tokenizer_sha256 is None else {TOKENIZER_FILE: self.tokenizer_sha256}
        return tokenizer | {shard.file: shard.sha256 for shard in self.shards}


def hash_shards(shards: Sequence[ShardEntry]) -> str:
    """Return the data hash of these shards."""
    return hashlib.sha256(canonical_json([shard.model_dump(mode="json") for shard in shards])).hexdigest()


class ConversationManifest(FolderManifest):
    """All that is known about prepared conversations."""

    file_name = "conversations.json"
    way_out = "Delete the folder {folder}: the next run prepares it again."

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

    def file_hashes(self) -> dict[str, str]:
        """Return the hashes as they are."""
        return self.sha256


class WeightsManifest(FolderManifest):
    """The required content of own weights in a remote folder.

    On a machine's disk own weights are what `save_pretrained` wrote, and nothing else; their hashes are taken when they
    are copied.
    """

    file_name = "weights.json"
    way_out = "Delete that folder, and copy them again with `adapm-bench data push`."

    sha256: dict[str, Sha256]
    """File name → hash."""

    def file_hashes(self) -> dict[str, str]:
        """Return the hashes as they are."""
        return self.sha256
