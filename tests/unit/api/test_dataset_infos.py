"""Answers about datasets: the catalog's, each with its prepared parts, then prepared own ones."""

from pathlib import Path

from api.records import PreparedInfo, dataset_infos
from tests.factories.dataset import MadeSource, made_recipe, prepare_made_dataset
from worker.catalog.datasets import DATASETS
from worker.data.documents import Split
from worker.data.manifest import Manifest
from worker.data.preparation import prepare
from worker.data.prepared import list_prepared


def test_own_data_are_listed_once_they_are_prepared_and_others_say_with_which_tokens(tmp_path: Path) -> None:
    """Nothing is prepared of most of the catalog."""
    stdlib_manifest = prepare_made_dataset(tmp_path)
    corpus = prepare(MadeSource(), made_recipe().model_copy(update={"dataset": "own/mine"}), tmp_path / "own-mine-byte")
    texts = [manifest for _, manifest in list_prepared(tmp_path) if isinstance(manifest, Manifest)]

    info_by_name = {info.name: info for info in dataset_infos(DATASETS, texts)}

    assert list(info_by_name) == [*(entry.name for entry in DATASETS), "own/mine"]
    assert info_by_name["python-stdlib"].prepared == (
        PreparedInfo(
            tokenizer="byte",
            vocabulary_size=256,
            training_tokens=stdlib_manifest.tokens(Split.TRAIN),
            validation_tokens=stdlib_manifest.tokens(Split.VALIDATION),
            data_hash=stdlib_manifest.data_hash,
        ),
    )
    assert [preparation.data_hash for preparation in info_by_name["own/mine"].prepared] == [corpus.data_hash]
    assert [name for name, info in info_by_name.items() if info.prepared] == ["python-stdlib", "own/mine"]
