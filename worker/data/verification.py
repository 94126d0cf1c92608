"""Read a prepared dataset again and say everything that is wrong with it."""

from pathlib import Path

from worker.data.manifest import TOKENIZER_FILE, Manifest, way_out
from worker.data.shards import verify_shard
from worker.errors import CorruptShardError
from worker.files import file_sha256


def verify_folder(folder: Path, manifest: Manifest) -> list[str]:
    """One sentence with its way out for each file that is not what the manifest says."""
    faults = []
    for shard in manifest.shards:
        try:
            verify_shard(folder, shard, manifest.token_bytes, with_hash=True)
        except CorruptShardError as error:
            faults.append(str(error))
    tokenizer = folder / TOKENIZER_FILE
    if manifest.tokenizer_sha256 is not None and not (
        tokenizer.is_file() and file_sha256(tokenizer) == manifest.tokenizer_sha256
    ):
        faults.append(f"the tokenizer {tokenizer} is missing or not the one of the shards. {way_out(folder)}")
    return faults
