"""Prepare a dataset once per machine, however many workers ask for it at the same moment.

The first worker holds the lock, writes a temporary folder and renames it; the others wait and open the result.
"""

import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from worker.data import catalog
from worker.data.documents import Source, Split
from worker.data.manifest import MANIFEST_NAME, Manifest, hash_shards
from worker.data.python_stdlib import PythonStdlib
from worker.data.shards import SHARD_TOKENS, ShardWriter, TokenDataset, open_dataset
from worker.data.tokens import encoder
from worker.errors import DataError

logger = logging.getLogger(__name__)

SOURCES: Final[dict[str, Callable[[], Source]]] = {"python-stdlib": PythonStdlib}


def ensure_dataset(dataset: str, tokenizer: str, dataset_folder: Path) -> TokenDataset:
    """Open `<dataset_folder>/<dataset>-<tokenizer>`, preparing it first where it is missing.

    Raises `DataError` for an unknown or empty dataset, `CorruptShardError` for damaged shards.
    """
    if dataset not in SOURCES:
        raise DataError(f"no reader for the dataset {dataset!r}; there are: {', '.join(SOURCES)}")
    folder = dataset_folder / f"{dataset}-{tokenizer}"
    if not folder.exists():
        dataset_folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f"{folder.name}.lock")):
            if not folder.exists():  # another worker may have prepared it while we waited
                prepare(SOURCES[dataset](), dataset, tokenizer, folder)
    return open_dataset(folder)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; the kernel frees it even when the holder is killed."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def prepare(source: Source, dataset: str, tokenizer: str, folder: Path, shard_tokens: int = SHARD_TOKENS) -> Manifest:
    """Tokenise `source` into `folder`, which appears complete or not at all."""
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # left by a worker that was killed while it held the lock
    unfinished.mkdir(parents=True)
    manifest = _write(source, dataset, tokenizer, unfinished, shard_tokens)
    unfinished.rename(folder)
    logger.info("prepared %s: %d documents, %d bytes", folder, manifest.documents, manifest.size_bytes())
    return manifest


def _write(source: Source, dataset: str, tokenizer: str, folder: Path, shard_tokens: int) -> Manifest:
    encode, documents = encoder(tokenizer), 0
    with (
        ShardWriter(folder, Split.TRAIN, shard_tokens) as train,
        ShardWriter(folder, Split.VALIDATION, shard_tokens) as validation,
    ):
        writers = {Split.TRAIN: train, Split.VALIDATION: validation}
        for document in source.documents():
            writers[document.split()].write(encode(document.text))
            documents += 1
    shards = (*train.entries, *validation.entries)
    _refuse_empty(dataset, documents, len(train.entries), len(validation.entries))
    manifest = Manifest(
        dataset=dataset,
        tokenizer=tokenizer,
        vocabulary_size=catalog.tokenizer(tokenizer).vocabulary_size,
        source_version=source.version,
        documents=documents,
        skipped_documents=source.skipped_documents,
        shards=shards,
        data_hash=hash_shards(shards),
    )
    (folder / MANIFEST_NAME).write_text(manifest.model_dump_json(indent=2) + "\n")
    _sync(folder)
    return manifest


def _refuse_empty(dataset: str, documents: int, train_shards: int, validation_shards: int) -> None:
    if train_shards and validation_shards:
        return
    empty = "validation" if train_shards else "train"
    raise DataError(
        f"the dataset {dataset!r} has no {empty} tokens ({documents} readable documents were found). "
        "Check that its files are there: some distributions ship Python without its library source."
    )


def _sync(folder: Path) -> None:
    """Bring every file to the disk before the folder gets its final name."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
