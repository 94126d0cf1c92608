"""Token shards: written, mapped, checked."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.factories.dataset import MadeSource, made_recipe, prepare_made_dataset
from worker.data.documents import Split
from worker.data.manifest import Manifest
from worker.data.preparation import prepare
from worker.data.shards import open_dataset
from worker.errors import CorruptShardError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataset prepared for one test, which may damage it."""
    prepare_made_dataset(tmp_path)
    return tmp_path / "python-stdlib-byte"


def test_every_document_comes_back_in_order_with_its_end_mark(folder: Path) -> None:
    """The shards of both splits hold exactly the documents' bytes, each followed by NUL."""
    dataset = open_dataset(folder)

    for split, shards in ((Split.TRAIN, dataset.train), (Split.VALIDATION, dataset.validation)):
        expected = "".join(d.text + "\0" for d in MadeSource().documents() if d.split() is split).encode()
        stored = np.concatenate(shards.arrays)
        assert stored.tolist() == list(expected)
        assert dataset.manifest.tokens(split) == len(expected)


def test_a_dataset_may_have_several_shards_and_windows_never_cross_them(tmp_path: Path) -> None:
    """Windows count per shard; each is a slice of one shard; together they are all slices."""
    manifest = prepare(MadeSource(40), made_recipe(section_bytes=3_000), tmp_path / "many")
    shards = open_dataset(tmp_path / "many").train

    assert len(shards.arrays) > 3
    assert manifest.tokens(Split.TRAIN) == shards.tokens
    length = 500
    expected = [a[i : i + length].tolist() for a in shards.arrays for i in range(len(a) - length + 1)]
    assert shards.windows(length) == len(expected)
    picked = [0, 1, len(expected) // 2, len(expected) - 1]
    first_of_second = len(shards.arrays[0]) - length + 1
    for index in [*picked, first_of_second - 1, first_of_second]:
        assert shards.window(index, length).tolist() == expected[index]


@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_a_damaged_shard_is_named_with_the_way_out(folder: Path, damage: str) -> None:
    """One changed byte, a lost end and a missing file are all found on opening."""
    shard = folder / "train-00000.bin"
    content = bytearray(shard.read_bytes())
    if damage == "delete":
        shard.unlink()
    else:
        content[1000] ^= 1
        shard.write_bytes(content if damage == "flip" else content[:-2])

    with pytest.raises(CorruptShardError, match=r"train-00000\.bin.*the manifest says.*Delete the folder"):
        open_dataset(folder)


@pytest.mark.parametrize("change", ["version", "data_hash", "file", "broken"])
def test_a_manifest_that_is_not_ours_is_refused_with_the_way_out(folder: Path, change: str) -> None:
    """Another version, a hash that does not fit, a shard outside the folder, and text that is not JSON."""
    path = folder / Manifest.file_name
    manifest = json.loads(path.read_text())
    if change == "version":
        manifest["version"] = 1
    elif change == "data_hash":
        manifest["data_hash"] = "0" * 64
    elif change == "file":
        manifest["shards"][0]["file"] = "../train-00000.bin"
    path.write_text("{" if change == "broken" else json.dumps(manifest))

    with pytest.raises(CorruptShardError, match="Delete the folder"):
        open_dataset(folder)
