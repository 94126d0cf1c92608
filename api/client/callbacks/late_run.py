"""A run that begins when its framework reports its settings, which is later than the callback is made."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from api.client.own_runs import OwnRun, start_run
from orchestrator.external_runs import USUAL_METRICS, RunHeader

SETTING_NAMES = {"lr": ("lr", "learning_rate"), "seed": ("seed",)}
VALIDATION_LOSS = USUAL_METRICS[0]


class LateRun:
    """The arguments of `start_run`, and the run once it has begun.

    Learning rate and seed are taken from the framework's settings where they are not given. The framework's usual
    names of a validation loss become `val_loss`.
    """

    def __init__(self, *, experiment: str, candidate: str, **more: Any) -> None:
        """The arguments of `start_run`; raises `ValueError` for what could not be judged, as it does."""
        fields = {name: more.get(name) for name in ("lr", "seed", "workload")}
        RunHeader.model_validate({"experiment": experiment, "candidate": candidate} | fields)
        self._settings: dict[str, Any] = dict(more.pop("config", None) or {})
        self.id: str = more.pop("id", None) or uuid4().hex[:16]
        self._asked: dict[str, Any] = {"experiment": experiment, "candidate": candidate, "id": self.id} | more
        self.run: OwnRun | None = None
        """The one that is logged; it stays after its end."""

    def add_settings(self, settings: Mapping[str, Any]) -> None:
        """Take the framework's settings, before the run has begun."""
        self._settings = {**settings, **self._settings}

    def begin(self) -> OwnRun:
        """Begin a run, or go on with the one whose `id` was given. Raises `ValueError` if that is another one's."""
        for field, names in SETTING_NAMES.items():
            if self._asked.get(field) is None:
                values = (self._settings.get(name) for name in names)
                self._asked[field] = next((value for value in values if _is_valid(field, value)), None)
        self.run = start_run(**self._asked, config=self._settings)
        return self.run

    def log(self, metrics: Mapping[str, Any], step: int | None) -> None:
        """Log the values. After its end, as of a last evaluation, a further part of the run is opened for it."""
        run = self.run or self.begin()
        had_ended = run.has_ended
        if had_ended:
            run = self.begin()
        if VALIDATION_LOSS not in metrics:
            metrics = {VALIDATION_LOSS if name in USUAL_METRICS else name: value for name, value in metrics.items()}
        run.log(metrics, step=step)
        if had_ended:
            run.finish()

    def finish(self, state: str = "finished") -> None:
        """Say that the run has ended."""
        if self.run is not None:
            self.run.finish(state)


def _is_valid(field: str, value: object) -> bool:
    """Return whether a framework's setting can be judged by; a rate of 0, or a seed of -1, is none."""
    try:
        RunHeader.model_validate({"experiment": "any", "candidate": "any", field: value})
    except ValidationError:
        return False
    return value is not None
