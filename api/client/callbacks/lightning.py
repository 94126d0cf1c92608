"""A logger of Lightning, of either of its distributions.

trainer = Trainer(logger=BenchLogger(experiment="muon against adamw", candidate="muon", lr=0.02, seed=1))
"""

import sys
from argparse import Namespace
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from api.client.callbacks.late_run import LateRun
from api.client.own_runs import OwnRun

# `lightning` and `pytorch-lightning` are the same code under two names, each with its own base class.
if "pytorch_lightning" in sys.modules or find_spec("lightning") is None:
    from pytorch_lightning.loggers.logger import Logger, rank_zero_experiment
    from pytorch_lightning.utilities.rank_zero import rank_zero_only
else:
    from lightning.pytorch.loggers.logger import Logger, rank_zero_experiment
    from lightning.pytorch.utilities.rank_zero import rank_zero_only


class BenchLogger(Logger):  # type: ignore[misc]  # Lightning publishes types that mypy does not follow here
    """Logs all that a module logs, under its names. Hyperparameters are the configuration; the learning rate (`lr`,
    `learning_rate`) and the seed among them count where none are given."""

    def __init__(self, *, experiment: str, candidate: str, **more: Any) -> None:
        """The arguments of `start_run`; raises `ValueError` for what could not be judged, as it does."""
        super().__init__()
        self._late = LateRun(experiment=experiment, candidate=candidate, **more)
        self._name = experiment

    @property
    def name(self) -> str:
        """The experiment."""
        return self._name

    @property
    def version(self) -> str:
        """The run's id: Lightning's checkpoints have a folder of its name."""
        return self._late.id

    @property
    @rank_zero_experiment  # type: ignore[untyped-decorator]  # as above
    def experiment(self) -> OwnRun | None:
        """The run itself, once something is logged: Lightning asks for it before it reports its hyperparameters."""
        return self._late.run

    @rank_zero_only  # type: ignore[untyped-decorator]  # as above
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_more: Any, **_named: Any) -> None:
        """Take the settings."""
        settings: Mapping[str, Any] = vars(params) if isinstance(params, Namespace) else params
        self._late.add_settings(settings)

    @rank_zero_only  # type: ignore[untyped-decorator]  # as above
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Log the values."""
        self._late.log(metrics, step)

    @rank_zero_only  # type: ignore[untyped-decorator]  # as above
    def finalize(self, status: str) -> None:
        """Say how the training ended."""
        self._late.finish("finished" if status == "success" else "failed")
