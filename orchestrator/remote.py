"""Storage that machines without a common disk share: where checkpoints and prepared data are copied to, if anywhere."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Remote:
    """URLs of remote folders (`worker/remote_folder.py`); None: what is on a machine stays there."""

    checkpoint_url: str | None = None
    dataset_url: str | None = None

    def run_url(self, run_id: str) -> str | None:
        """The folder of a run's checkpoints."""
        return self.checkpoint_url and f"{self.checkpoint_url}/{run_id}"


NOWHERE = Remote()
