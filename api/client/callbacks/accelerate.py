"""A tracker of Hugging Face's Accelerate.

accelerator = Accelerator(log_with=BenchTracker(experiment="muon against adamw", candidate="muon"))
accelerator.init_trackers("any", config={"lr": 0.02, "seed": 1})
accelerator.log({"val_loss": loss}, step=step)
accelerator.end_training()
"""

from typing import Any

from accelerate.tracking import GeneralTracker

from api.client.callbacks.late_run import LateRun
from api.client.own_runs import OwnRun


class BenchTracker(GeneralTracker):  # type: ignore[misc]  # Accelerate publishes no types
    """Logs what `accelerator.log` is given. The learning rate and the seed of `init_trackers`' configuration count
    where none are given here."""

    name = "adapm-bench"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, *, experiment: str, candidate: str, **more: Any) -> None:
        """The arguments of `start_run`; raises `ValueError` for what could not be judged, as it does."""
        super().__init__()
        self._late = LateRun(experiment=experiment, candidate=candidate, **more)

    @property
    def tracker(self) -> OwnRun:
        """The run itself."""
        return self._late.run or self._late.begin()

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Take the settings."""
        self._late.add_settings(values)

    def log(self, values: dict[str, Any], step: int | None = None, **_more: Any) -> None:
        """Log the values."""
        self._late.log(values, step)

    def finish(self) -> None:
        """Say that the training ended."""
        self._late.finish()
