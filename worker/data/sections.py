"""Tokenising in sections: what is finished stays, however the preparation ends, and going on gives the same bits.

A section is a stretch of documents with about 128 MiB of text. It becomes one shard a split; then the place reached is
written down. Sections begin at places that depend on the documents alone, so an interrupted preparation writes the
same shards as an undisturbed one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from worker.data.documents import Document, DocumentSource, SourceCursor, Split
from worker.data.manifest import Recipe, ShardEntry
from worker.data.shards import verify_shard, write_shard
from worker.data.tokenizers import Tokenizer, Tokens, token_bytes, token_dtype
from worker.errors import CorruptShardError
from worker.files import write_atomically
from worker.records.result import Record

PLACE_NAME: Final = "unfinished.json"
BATCH_BYTES: Final = 2**20
"""Text that is tokenised in one call: enough to keep all cores busy."""


class PreparationState(Record):
    """The progress of a preparation at the end of a section."""

    recipe: Recipe
    cursor: SourceCursor | None = None
    documents: int = 0
    skipped_documents: int = 0
    replaced_characters: int = 0
    text_bytes: int = 0
    token_bytes: int = 2
    shards: tuple[ShardEntry, ...] = ()

    def training_tokens(self) -> int:
        """Tokens of the training split so far."""
        return sum(shard.tokens for shard in self.shards if shard.split is Split.TRAIN)


@dataclass(kw_only=True)
class SectionProgress:
    """The tokenised part so far, as a progress bar shows it."""

    documents: int
    replaced_characters: int
    text_bytes: int
    training_tokens: int


OnProgress = Callable[[SectionProgress], None]


def read_place(folder: Path, recipe: Recipe) -> PreparationState | None:
    """Return the place that a preparation of this recipe reached in `folder`, if its shards are whole; else None."""
    try:
        state = PreparationState.model_validate_json((folder / PLACE_NAME).read_bytes())
    except (OSError, ValidationError):
        return None
    if state.recipe != recipe:
        return None
    try:
        for shard in state.shards:
            verify_shard(folder, shard, state.token_bytes, with_hash=True)
    except CorruptShardError:
        return None
    return state


def write_place(folder: Path, state: PreparationState) -> None:
    """Write the place durably; the file is the old or the new one, never a part."""
    write_atomically(folder / PLACE_NAME, state.model_dump_json(), durable=True)


class Sections:
    """The sections of one preparation, from a place on."""

    def __init__(
        self,
        source: DocumentSource,
        tokenizer: Tokenizer,
        folder: Path,
        state: PreparationState,
        on_progress: OnProgress,
    ) -> None:
        """Write into `folder` what comes behind `state`."""
        self.place = state
        self._source, self._tokenizer, self._folder, self._on_progress = source, tokenizer, folder, on_progress
        self._progress = SectionProgress(
            documents=state.documents,
            replaced_characters=state.replaced_characters,
            text_bytes=state.text_bytes,
            training_tokens=state.training_tokens(),
        )
        self._tokens: dict[Split, list[Tokens]] = {split: [] for split in Split}

    def write(self) -> PreparationState:
        """Write all sections; returns the place at the end."""
        section_bytes = 0
        batches = self._batches()
        while not self._is_limit_reached() and (batch := next(batches, None)):
            self._encode(batch)
            section_bytes += sum(document.size_bytes() for document in batch)
            if section_bytes >= self.place.recipe.section_bytes:
                self._finish()
                section_bytes = 0
        self._finish()
        return self.place

    def _batches(self) -> Iterator[list[Document]]:
        """Yield documents in batches of about `BATCH_BYTES`; a batch also ends where a section does."""
        most_bytes = min(BATCH_BYTES, self.place.recipe.section_bytes)
        batch: list[Document] = []
        size = 0
        for document in self._source.documents(self.place.cursor):
            batch.append(document)
            size += document.size_bytes()
            if size >= most_bytes:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _encode(self, batch: list[Document]) -> None:
        """Add the tokens of a batch, up to the document that reaches a limit."""
        recipe = self.place.recipe
        for document, tokens in zip(batch, self._tokenizer.encode([d.text for d in batch]), strict=True):
            split = document.split(recipe.validation_percent)
            self._tokens[split].append(tokens)
            self._progress.documents += 1
            self._progress.replaced_characters += document.replaced_characters
            self._progress.text_bytes += document.size_bytes()
            self._progress.training_tokens += len(tokens) if split is Split.TRAIN else 0
            if self._is_limit_reached():
                break
        self._on_progress(self._progress)

    def _is_limit_reached(self) -> bool:
        recipe, reached = self.place.recipe, self._progress
        enough_tokens = recipe.tokens is not None and reached.training_tokens >= recipe.tokens
        return enough_tokens or (recipe.documents is not None and reached.documents >= recipe.documents)

    def _finish(self) -> None:
        """Write the shards of the section, then the place behind it."""
        if not any(self._tokens.values()):
            return
        stored_bytes = token_bytes(self._tokenizer.vocabulary_size)
        written = []
        for split, documents in self._tokens.items():
            if documents:
                number = sum(shard.split is split for shard in self.place.shards)
                written.append(write_shard(self._folder, split, number, documents, token_dtype(stored_bytes)))
        self.place = PreparationState(
            recipe=self.place.recipe,
            cursor=self._source.cursor(),
            documents=self._progress.documents,
            skipped_documents=self._source.skipped_documents,
            replaced_characters=self._progress.replaced_characters,
            text_bytes=self._progress.text_bytes,
            token_bytes=stored_bytes,
            shards=(*self.place.shards, *written),
        )
        write_place(self._folder, self.place)
        self._tokens = {split: [] for split in Split}
