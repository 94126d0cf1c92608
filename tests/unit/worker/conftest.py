"""The folders of the worker's tests."""

from pathlib import Path

import pytest

from worker.run import Folders


@pytest.fixture
def folders(tmp_path: Path, dataset_folder: Path) -> Folders:
    """A fresh run folder over the made dataset."""
    return Folders(run_folder=tmp_path / "run", dataset_folder=dataset_folder)
