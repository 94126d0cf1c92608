"""What is prepared on this machine, and whether a workload can be trained with it (no numpy, no torch)."""

from collections.abc import Iterator
from pathlib import Path

from worker.data.manifest import MANIFEST_NAME, Manifest, read_manifest
from worker.errors import CorruptShardError


def prepared(dataset_folder: Path) -> Iterator[tuple[Path, Manifest | CorruptShardError]]:
    """Every finished folder with its manifest, or with what is wrong with it; sorted by name."""
    for path in sorted(dataset_folder.glob(f"*/{MANIFEST_NAME}")):
        if path.parent.suffix == ".unfinished":
            continue
        try:
            yield path.parent, read_manifest(path.parent)
        except CorruptShardError as error:
            yield path.parent, error
