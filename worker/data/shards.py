"""Prepared tokens on disk: shards written once, then memory-mapped by every run.

documents ──ShardWriter──► train-00000.bin … validation-00000.bin + manifest.json ──open_dataset──► TokenDataset
"""

import bisect
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from worker.data.documents import Split
from worker.data.manifest import TOKEN_BYTES, Manifest, ShardEntry, read_manifest, way_out
from worker.data.tokens import Tokens
from worker.errors import CorruptShardError

TOKEN_DTYPE: Final = np.dtype("<u2")
SHARD_TOKENS: Final = 100_000_000
"""Tokens a shard: 200 MB, small enough to copy and to hash in a moment."""
HASH_ON_OPEN_BYTES: Final = 256 * 2**20
"""Up to here every opening checks the hashes too (2 GB/s measured: 0.03 s for python-stdlib); above, the sizes."""


class TokenShards:
    """The tokens of one split: memory-mapped shards, seen as all windows that lie within one shard."""

    def __init__(self, arrays: Iterable[Tokens]) -> None:
        self.arrays = tuple(arrays)
        self.tokens = sum(len(array) for array in self.arrays)

    def windows(self, length: int) -> int:
        """How many windows of `length` tokens there are."""
        return sum(self._starts(length))

    def window(self, index: int, length: int) -> Tokens:
        """The window of that index in [0, `windows(length)`); shape (length,), a view of the file."""
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
    """Open the dataset prepared in `folder`; raises `CorruptShardError` where a shard contradicts the manifest."""
    manifest = read_manifest(folder)
    with_hashes = manifest.size_bytes() <= HASH_ON_OPEN_BYTES
    for shard in manifest.shards:
        verify_shard(folder, shard, with_hash=with_hashes)
    return TokenDataset(manifest, _map(folder, manifest, Split.TRAIN), _map(folder, manifest, Split.VALIDATION))


def _map(folder: Path, manifest: Manifest, split: Split) -> TokenShards:
    files = [folder / shard.file for shard in manifest.shards if shard.split is split]
    return TokenShards(np.memmap(file, dtype=TOKEN_DTYPE, mode="r") for file in files)


def verify_shard(folder: Path, shard: ShardEntry, *, with_hash: bool) -> None:
    """Compare a shard with its entry: size always, content on demand; raises `CorruptShardError`."""
    path = folder / shard.file
    size = path.stat().st_size if path.is_file() else None
    if size != shard.size_bytes():
        found = "is missing" if size is None else f"has {size} bytes"
        raise CorruptShardError(
            f"the shard {path} {found}; the manifest says {shard.size_bytes()} bytes. {way_out(folder)}"
        )
    if with_hash and (found := _sha256(path)) != shard.sha256:
        raise CorruptShardError(
            f"the shard {path} has SHA-256 {found}; the manifest says {shard.sha256}. {way_out(folder)}"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class ShardWriter:
    """Writes the tokens of one split into shards of a bounded size. Use it in a `with`."""

    def __init__(self, folder: Path, split: Split, shard_tokens: int = SHARD_TOKENS) -> None:
        self.entries: list[ShardEntry] = []
        self._folder, self._split, self._shard_tokens = folder, split, shard_tokens
        self._pending: list[Tokens] = []
        self._pending_tokens = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._pending_tokens:
            self._write_shard()

    def write(self, tokens: Tokens) -> None:
        """Append one document, shape (tokens,). A shard ends with the document that fills it."""
        self._pending.append(tokens)
        self._pending_tokens += len(tokens)
        if self._pending_tokens >= self._shard_tokens:
            self._write_shard()

    def _write_shard(self) -> None:
        tokens = np.concatenate(self._pending).astype(TOKEN_DTYPE)
        name = f"{self._split}-{len(self.entries):05d}.bin"
        (self._folder / name).write_bytes(tokens.tobytes())
        assert tokens.itemsize == TOKEN_BYTES
        digest = hashlib.sha256(tokens.tobytes()).hexdigest()
        self.entries.append(ShardEntry(file=name, split=self._split, tokens=len(tokens), sha256=digest))
        self._pending, self._pending_tokens = [], 0
