"""Fixtures of the worker's tests: one small prepared dataset for all of them."""

from pathlib import Path

import pytest

from tests.factories.dataset import prepare_made_dataset
from worker.run import Folders


@pytest.fixture(scope="session")
def dataset_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the made dataset, prepared once. Tests do not write into it."""
    folder = tmp_path_factory.mktemp("datasets")
    prepare_made_dataset(folder)
    return folder


@pytest.fixture
def folders(tmp_path: Path, dataset_folder: Path) -> Folders:
    """A fresh run folder over the made dataset."""
    return Folders(run_folder=tmp_path / "run", dataset_folder=dataset_folder)
