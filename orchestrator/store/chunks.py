"""The bytes of a chunk: what some hundred points take in the database, each field compressed by itself.

    {"points": 1000, "columns": {"step": 1620, "train_loss": 5310, …}}\n   the length of each frame, in order
    zstd(float64 …) zstd(float64 …) …                                      a column that is null throughout is left out

A chart reads two fields of a dozen: so only those are decompressed, and a field that no worker reports costs nothing.
"""

import json
from collections.abc import Iterable, Iterator

import numpy as np
import zstandard

from orchestrator.columns import STEP, Array, Columns

COMPRESSION_LEVEL = 3
"""zstd's default: of the levels up to 9 none made float64 losses more than a few percent smaller."""


def encode(columns: Columns) -> bytes:
    """The chunk of some rows."""
    compress = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL).compress
    frames = {
        name: compress(column.astype("<f8", copy=False).tobytes())
        for name, column in {STEP: columns.step, **columns.values}.items()
        if not np.isnan(column).all()
    }
    header = {"points": len(columns), "columns": {name: len(frame) for name, frame in frames.items()}}
    return b"".join([json.dumps(header, separators=(",", ":")).encode(), b"\n", *frames.values()])


def decode(chunks: Iterable[bytes], fields: Iterable[str]) -> Columns:
    """Steps and the asked fields of all chunks, one behind the other; NaN where a chunk does not have the field."""
    fields = tuple(dict.fromkeys((STEP, *fields)))
    found: dict[str, list[Array]] = {name: [] for name in fields}
    decompress = zstandard.ZstdDecompressor().decompress
    for chunk in chunks:
        end = chunk.index(b"\n")
        header = json.loads(chunk[:end])
        frames = dict(_frames(header["columns"], end + 1))
        for name in fields:
            frame = frames.get(name)
            column = np.full(header["points"], np.nan) if frame is None else np.frombuffer(decompress(chunk[frame]))
            found[name].append(column)
    whole = {name: np.concatenate(parts) if parts else np.empty(0) for name, parts in found.items()}
    return Columns(step=whole.pop(STEP), values=whole)


def _frames(lengths: dict[str, int], offset: int) -> Iterator[tuple[str, slice]]:
    for name, length in lengths.items():
        yield name, slice(offset, offset + length)
        offset += length
