"""Prepared tokens on disk: shards written once, then memory-mapped by every run.

documents ──write_shard──► train-00000.bin … validation-00000.bin + manifest.json ──open_dataset──► TokenDataset
"""

import bisect
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from worker.data.documents import Split
from worker.data.manifest import Manifest, ShardEntry
from worker.data.tokenizers import Tokens, token_dtype
from worker.errors import CorruptShardError
from worker.files import file_sha256

HASH_ON_OPEN_BYTES: Final = 256 * 2**20
"""Up to here every opening checks the hashes too; above, the sizes."""


class TokenShards:
    """The tokens of one split: memory-mapped shards, seen as all windows that lie within one shard."""

    def __init__(self, arrays: Iterable[Tokens]) -> None:
        self.arrays = tuple(arrays)
        self.tokens = sum(len(array) for array in self.arrays)

    def windows(self, length: int) -> int:
        """Return the number of windows of `length` tokens."""
        return sum(self._starts(length))

    def window(self, index: int, length: int) -> Tokens:
        """Return the window of that index in [0, `windows(length)`); shape (length,), a view of the file."""
        ends = np.cumsum(self._starts(length)).tolist()
        shard = bisect.bisect_right(ends, index)
        start = index - (ends[shard - 1] if shard else 0)
        return self.arrays[shard][start : start + length]

    def _starts(self, length: int) -> list[int]:
        return [max(0, len(array) - length + 1) for array in self.arrays]


@dataclass(frozen=True)
class TokenDataset:
    """A prepared dataset, checked and open."""

    manifest: Manifest
    train: TokenShards
    validation: TokenShards

    @property
    def data_hash(self) -> str:
        """SHA-256 over all shards."""
        return self.manifest.data_hash


def open_dataset(folder: Path) -> TokenDataset:
    """Open the dataset prepared in `folder`; raises `CorruptShardError` if a shard contradicts the manifest."""
    manifest = Manifest.read(folder)
    with_hashes = manifest.size_bytes() <= HASH_ON_OPEN_BYTES
    for shard in manifest.shards:
        verify_shard(folder, shard, manifest.token_bytes, with_hash=with_hashes)
    return TokenDataset(manifest, _map(folder, manifest, Split.TRAIN), _map(folder, manifest, Split.VALIDATION))


def _map(folder: Path, manifest: Manifest, split: Split) -> TokenShards:
    files = [folder / shard.file for shard in manifest.shards if shard.split is split]
    dtype = token_dtype(manifest.token_bytes)
    return TokenShards(np.memmap(file, dtype=dtype, mode="r") for file in files)


def verify_shard(folder: Path, shard: ShardEntry, token_bytes: int, *, with_hash: bool) -> None:
    """Compare a shard with its entry: size always, content on demand; raises `CorruptShardError`."""
    path, way_out = folder / shard.file, Manifest.way_out.format(folder=folder)
    size, expected = path.stat().st_size if path.is_file() else None, shard.tokens * token_bytes
    if size != expected:
        finding = "is missing" if size is None else f"has {size} bytes"
        raise CorruptShardError(f"the shard {path} {finding}; the manifest says {expected} bytes. {way_out}")
    if with_hash and (finding := file_sha256(path)) != shard.sha256:
        raise CorruptShardError(f"the shard {path} has SHA-256 {finding}; the manifest says {shard.sha256}. {way_out}")


def write_shard(
    folder: Path, split: Split, number: int, documents: Sequence[Tokens], dtype: np.dtype[Any]
) -> ShardEntry:
    """Write one shard from its documents' tokens; it is on the disk when this returns."""
    name = f"{split}-{number:05d}.bin"
    content = np.concatenate(documents).astype(dtype, copy=False).data
    with (folder / name).open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    digest = hashlib.sha256(content).hexdigest()
    return ShardEntry(file=name, split=split, tokens=content.nbytes // dtype.itemsize, sha256=digest)
