"""Storage of runs and datasets: in the data folder, and in remote folders (`worker/remote/folder.py`)."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The folders and URLs of a service."""

    data_folder: Path
    """The data folder on this machine, or on a disk that all of them share."""
    checkpoint_url: str | None = None
    """A remote folder of checkpoints and logs; None: they stay on the machine that wrote them."""
    dataset_url: str | None = None
    """A remote folder of prepared datasets and own weights."""

    def runs_folder(self) -> Path:
        """Return the folder in which runs keep their checkpoints."""
        return self.data_folder / "runs"

    def datasets_folder(self) -> Path:
        """Return the folder of token shards."""
        return self.data_folder / "datasets"

    def studies_folder(self) -> Path:
        """Return the folder of the results of studies that train nothing."""
        return self.data_folder / "studies"

    def footprints_folder(self) -> Path:
        """Return the folder of counted footprints."""
        return self.data_folder / "footprints"

    def run_url(self, run_id: str) -> str | None:
        """Return the remote folder of a run's checkpoints."""
        return self.checkpoint_url and f"{self.checkpoint_url}/{run_id}"
