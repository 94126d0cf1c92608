"""Preparing a dataset: once, and not without text. `test_resume.py` breaks it off."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.factories.dataset import MadeSource, made_recipe
from worker.data import sources
from worker.data.documents import Document
from worker.data.preparation import ensure_dataset, prepare
from worker.errors import DataError


def test_three_at_once_prepare_it_once_and_all_open_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source is read one time; everybody sees the same data; nothing unfinished is left."""
    folder, reads, barrier = tmp_path / "datasets", [], threading.Barrier(3)

    class CountedSource(MadeSource):
        def read(self) -> Iterator[Document]:
            reads.append(self)
            return super().read()

    def data_hash(_: int) -> str:
        barrier.wait()
        return ensure_dataset("python-stdlib", "byte", folder).manifest.data_hash

    monkeypatch.setitem(sources.LOCAL, "python-stdlib", CountedSource)
    with ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(data_hash, range(3)))) == 1
    assert len(reads) == 1
    assert {path.name for path in folder.iterdir()} == {"python-stdlib-byte", "python-stdlib-byte.lock"}


def test_a_dataset_without_text_is_refused(tmp_path: Path) -> None:
    """A Python shipped without its library source is said, not trained on."""
    with pytest.raises(DataError, match=r"has no train tokens \(0 readable documents.*Check that its files"):
        prepare(MadeSource(0), made_recipe(), tmp_path / "empty")
    assert not (tmp_path / "empty").exists()
