"""Where runs and datasets lie: in the data folder, and in remote folders (`worker/remote/folder.py`)."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Storage:
    """One service's folders and URLs."""

    data_folder: Path
    """On this machine, or on a disk that all of them share."""
    checkpoint_url: str | None = None
    """A remote folder of checkpoints and logs; None: they stay on the machine that wrote them."""
    dataset_url: str | None = None
    """A remote folder of prepared datasets and own weights."""

    def runs_folder(self) -> Path:
        """Where runs keep their checkpoints."""
        return self.data_folder / "runs"

    def datasets_folder(self) -> Path:
        """Where token shards lie."""
        return self.data_folder / "datasets"

    def studies_folder(self) -> Path:
        """Where the results of studies that train nothing lie."""
        return self.data_folder / "studies"

    def footprints_folder(self) -> Path:
        """Where footprints are kept that were counted once."""
        return self.data_folder / "footprints"

    def run_url(self, run_id: str) -> str | None:
        """The remote folder of a run's checkpoints."""
        return self.checkpoint_url and f"{self.checkpoint_url}/{run_id}"
