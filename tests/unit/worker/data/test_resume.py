"""A preparation that was killed goes on, and the result is the undisturbed one to the bit."""

import multiprocessing
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.factories.dataset import MadeSource, made_recipe
from worker.data import sources
from worker.data.documents import Document
from worker.data.manifest import Manifest, Order
from worker.data.preparation import ensure_dataset, prepare, prepare_once
from worker.data.sections import PLACE_NAME
from worker.data.shards import open_dataset
from worker.errors import DataError, StorageFullError

SECTION_BYTES = 20_000
"""Six sections of the made dataset."""
RECIPES = {name: made_recipe(name, section_bytes=SECTION_BYTES) for name in ("byte", "bpe-300")}


class Deadly(MadeSource):
    """Kills its process on the way to a document, as SIGKILL does it: without a last word."""

    def __init__(self, index: int, readings: int) -> None:
        super().__init__()
        self.at, self.readings = index, readings

    def read(self) -> Iterator[Document]:
        self.readings -= 1
        for number, document in enumerate(super().read()):
            if number == self.at and self.readings == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            yield document


def prepare_and_die(folder: Path, index: int) -> None:
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    training_the_tokenizer = 0 if (unfinished / "tokenizer.json").exists() else 1
    prepare(Deadly(index, 1 + training_the_tokenizer), RECIPES["bpe-300"], folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_killed_twice_it_goes_on_and_gives_the_same_bits(tmp_path: Path) -> None:
    """With a tokenizer of its own: every file is that of an undisturbed preparation, and none is written again."""
    prepare(MadeSource(), RECIPES["bpe-300"], tmp_path / "undisturbed")
    folder, unfinished = tmp_path / "killed", tmp_path / "killed.unfinished"
    context = multiprocessing.get_context("spawn")
    for index in (130, 250):
        process = context.Process(target=prepare_and_die, args=(folder, index))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert not folder.exists()
    first = unfinished / "train-00000.bin"
    written_at = first.stat().st_mtime_ns
    messages: list[str] = []
    prepare(MadeSource(), RECIPES["bpe-300"], folder, say=messages.append)

    assert messages[0].startswith("going on after ")
    assert (folder / "train-00000.bin").stat().st_mtime_ns == written_at
    assert contents(folder) == contents(tmp_path / "undisturbed")
    assert len(contents(folder)) > 8
    assert not unfinished.exists()


@pytest.mark.parametrize("damage", ["shard", "place", "other recipe"])
def test_what_cannot_be_gone_on_with_is_begun_anew(damage: str, tmp_path: Path) -> None:
    class Broken(MadeSource):
        def read(self) -> Iterator[Document]:
            yield from list(super().read())[:200]
            raise OSError("unplugged")

    expected = prepare(MadeSource(), RECIPES["byte"], tmp_path / "expected")
    folder, unfinished = tmp_path / "made", tmp_path / "made.unfinished"
    with pytest.raises(OSError, match="unplugged"):
        prepare(Broken(), RECIPES["byte"], folder)
    if damage == "shard":
        (unfinished / "train-00001.bin").write_bytes(b"xx")
    elif damage == "place":
        (unfinished / PLACE_NAME).write_text("{")
    else:
        with pytest.raises(OSError, match="unplugged"):
            prepare(Broken(), made_recipe(section_bytes=30_000), folder)
    assert prepare(MadeSource(), RECIPES["byte"], folder) == expected


@pytest.mark.parametrize(("field", "value"), [("tokens", 5_000), ("tokens", 41_000), ("documents", 77)])
def test_a_limit_ends_with_the_document_that_reaches_it(field: str, value: int, tmp_path: Path) -> None:
    """Limits cut the whole dataset at a document: the tokens are the first ones of it."""
    whole = prepare(MadeSource(), RECIPES["byte"], tmp_path / "whole")
    cut = prepare(MadeSource(), RECIPES["byte"].model_copy(update={field: value}), tmp_path / "cut")
    tokens = open_dataset(tmp_path / "cut").train.tokens
    if field == "documents":
        assert cut.documents == value < whole.documents
    else:
        assert value <= tokens < value + 500
    stream = b"".join(path.read_bytes() for path in sorted((tmp_path / "whole").glob("train-*")))
    assert b"".join(path.read_bytes() for path in sorted((tmp_path / "cut").glob("train-*"))) == stream[: 2 * tokens]


def test_the_same_order_again_is_answered_at_once_and_another_one_is_refused(tmp_path: Path) -> None:
    order = Order(dataset="python-stdlib", documents=100)
    first = prepare_once(MadeSource(), order, tmp_path)
    assert prepare_once(MadeSource(), order, tmp_path) == first
    with pytest.raises(DataError, match=r"is prepared with documents = 100; ordered is documents = 90\. Delete the"):
        prepare_once(MadeSource(), order.model_copy(update={"documents": 90}), tmp_path)


def prepare_on_a_full_disk(folder: Path, answer: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (25_000, 25_000))
    try:
        prepare_once(MadeSource(), Order(dataset="python-stdlib", section_bytes=SECTION_BYTES), folder)
    except StorageFullError as error:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        answer.write_text(f"{error.kind.value}: {error}")


def test_a_full_disk_is_said_and_the_next_try_goes_on(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: the system refuses to write in the same way."""
    folder, answer = tmp_path / "datasets", tmp_path / "answer"
    process = multiprocessing.get_context("spawn").Process(target=prepare_on_a_full_disk, args=(folder, answer))
    process.start()
    process.join()
    assert answer.read_text().startswith("storage_full: ")
    assert str(folder / "python-stdlib-byte") in answer.read_text()
    order = Order(dataset="python-stdlib", section_bytes=SECTION_BYTES)
    assert isinstance(prepare_once(MadeSource(), order, folder), Manifest)


def test_data_of_another_name_or_hash_are_not_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sources.LOCAL, "python-stdlib", MadeSource)
    manifest = ensure_dataset("python-stdlib", "byte", tmp_path).manifest
    assert ensure_dataset("python-stdlib", "byte", tmp_path, manifest.data_hash).manifest == manifest
    with pytest.raises(DataError, match=rf"data hash {manifest.data_hash}; the specification asks for 0000.*or leave"):
        ensure_dataset("python-stdlib", "byte", tmp_path, "0" * 64)
    (tmp_path / "python-stdlib-byte").rename(tmp_path / "c4-byte")
    with pytest.raises(DataError, match="c4-byte holds python-stdlib as byte tokens, not c4 as byte"):
        ensure_dataset("c4", "byte", tmp_path)
    assert Manifest.read(tmp_path / "c4-byte") == manifest
