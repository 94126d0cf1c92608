"""The manifest of prepared conversations: how they were made, and what each file must contain (no numpy, no torch)."""

import hashlib
from typing import Final

from pydantic import ValidationError

from worker.data.documents import Split
from worker.errors import CorruptShardError
from worker.record import Record
from worker.spec_base import canonical_json

MANIFEST_NAME: Final = "conversations.json"


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


def understood(content: bytes, where: str) -> ConversationManifest:
    """The manifest with that content, of the folder `where`; raises `CorruptShardError` with the way out."""
    try:
        return ConversationManifest.model_validate_json(content)
    except ValidationError as error:
        raise CorruptShardError(
            f"the manifest of {where} cannot be understood: {error}. "
            f"Delete the folder {where}: the next run prepares it again."
        ) from error
