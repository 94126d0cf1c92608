"""Preparing a dataset: once, and not without text (`test_resume.py` breaks it off); and answers at submission about
data that only a person can prepare."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.factories.dataset import MadeSource, made_recipe, prepare_made_dataset
from tests.factories.specification import made_spec
from worker.data import sources
from worker.data.documents import Document
from worker.data.preparation import ensure_dataset, prepare
from worker.data.prepared import list_prepared, missing_data
from worker.errors import CorruptShardError, DataError
from worker.spec.run import Workload


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


def workload(model: str = "gpt2-tiny", initial_weights: str | None = None, **data: Any) -> Workload:
    fields = made_spec().workload.model_dump()
    changes = {"model": model, "initial_weights": initial_weights, "data": fields["data"] | data}
    return Workload.model_validate(fields | changes)


def test_each_missing_thing_is_one_sentence_with_its_command(tmp_path: Path) -> None:
    assert missing_data(workload(dataset="own/mine", initial_weights="own/none"), tmp_path) == [
        f"there are no weights 'own/none'. Copy a folder that `save_pretrained` wrote to {tmp_path / 'weights/none'}, "
        "or to storage with `adapm-bench data push weights/none` on the machine that has it.",
        f"the dataset 'own/mine' is not prepared as 'byte' tokens in {tmp_path}. "
        "Prepare it with `adapm-bench data prepare own/mine --tokenizer byte --from FILES`.",
    ]


def test_what_is_there_must_be_what_is_asked_for(tmp_path: Path) -> None:
    """The hash of the specification, and a vocabulary that the model has."""
    manifest = prepare_made_dataset(tmp_path)
    assert missing_data(workload(data_hash=manifest.data_hash), tmp_path) == []
    (fault,) = missing_data(workload(data_hash="0" * 64), tmp_path)
    assert fault.startswith(
        f"python-stdlib is prepared here with the data hash {manifest.data_hash}; data.data_hash asks"
    )

    folder = tmp_path / "own-mine-own-large"
    (tmp_path / "python-stdlib-byte").rename(folder)
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"vocabulary_size": 256', '"vocabulary_size": 60000'))
    data = {"dataset": "own/mine", "tokenizer": "own/large"}
    assert missing_data(workload(**data), tmp_path) == [], "a tiny model takes any vocabulary"
    (fault,) = missing_data(workload(model="gpt2-40m", **data), tmp_path)
    assert "60000 tokens" in fault and "50257" in fault


def test_a_damaged_manifest_is_listed_and_said(tmp_path: Path) -> None:
    prepare_made_dataset(tmp_path)
    (tmp_path / "python-stdlib-byte" / "manifest.json").write_text("{")
    ((folder, fault),) = list_prepared(tmp_path)
    assert folder.name == "python-stdlib-byte"
    assert isinstance(fault, CorruptShardError)
    assert missing_data(workload(), tmp_path) == [str(fault)]
