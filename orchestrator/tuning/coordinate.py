"""Coordinate descent: one hyperparameter after another, to either side of the best setting so far. Pure.

    own setting ─► one axis after another: a quarter of its range to either side of the best so far, keep the lowest
                 └► a round over all axes without a better one halves the step; the best trial is judged

The path is replayed from the trials: the same specification and results lead to the same next trials, after a restart
as well. Its rate names a trial, so rates that would be equal differ by less than a millionth, by what else is set.
Source: "Fantastic pretraining optimizers and where to find them", arXiv 2509.02046, section 3.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import log

from orchestrator.tuning.ranges import FIELDS, Axis, Prior, own_setting, value_at
from orchestrator.tuning.tuner import Setting, Trials, best_rate, rate_of

FIRST_STEP = 0.5
"""The first step, as a share of half the range: positions run from -1 to 1."""
LEAST_STEP = 1 / 64
"""Smaller steps change a loss by less than a run's noise."""
SAME_POSITION = 1e-3
"""Positions that differ by less are one."""
NAMING_CHANGE = 1e-6
"""Relative change of a rate that names its trial; no training shows it."""


@dataclass(frozen=True, kw_only=True)
class CoordinateDescent:
    """A path of `trials` settings."""

    priors: Mapping[Axis, Prior]
    trials: int

    def ask(self, tried: Trials) -> tuple[Setting, ...]:
        """Return the settings of the next move along one axis."""
        return tuple(setting for rate, setting in self._walk(tried).items() if rate not in tried)

    def setting(self, tried: Trials) -> Setting | None:
        """Return the best trial of the path."""
        path = self._walk(tried)
        best = best_rate({rate: tried[rate] for rate in path if rate in tried})
        return None if best is None else path[best]

    def is_at_edge(self, tried: Trials) -> bool:
        """Return whether the best trial has the lowest or highest rate of its range."""
        best = self.setting(tried)
        return best is not None and abs(position_of(best, "lr", self.priors["lr"])) > 1 - SAME_POSITION

    def _walk(self, tried: Trials) -> dict[float, Setting]:
        """Return the trials of the path, as far as results lead it; the last ones have none yet."""
        best = own_setting(self.priors)
        path, step = {rate_of(best): best}, FIRST_STEP
        while step >= LEAST_STEP and len(path) < self.trials and path.keys() <= tried.keys():
            start = best
            for axis, prior in self.priors.items():
                sides = [
                    _move_along(best, axis, prior, position)
                    for position in _sides(position_of(best, axis, prior), step)
                ]
                new = [side for side in sides if not any(_is_same(side, old, self.priors) for old in path.values())]
                added = {rate_of(side): side for side in new[: self.trials - len(path)]}
                path |= added
                if not added.keys() <= tried.keys():
                    return path
                best = path[min([rate_of(best), *added], key=lambda rate: tried[rate])]
            if best is start:
                step /= 2
        return path


def position_of(setting: Setting, axis: Axis, prior: Prior) -> float:
    """Return the position of a setting on an axis, -1 and 1 being the ends of its range; no warm-up and no clipping are
    at the nearest end."""
    value = setting[FIELDS[axis]]
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return -1.0 if axis == "warmup" else 1.0
    if prior.high <= prior.low:
        return 0.0
    amount = 1 - value if axis in ("beta1", "beta2") else value
    position = 2 * log(amount / prior.low) / log(prior.high / prior.low) - 1
    return min(max(position, -1.0), 1.0)


def _is_same(setting: Setting, other: Setting, priors: Mapping[Axis, Prior]) -> bool:
    """Return whether the two differ by no more than rounding and the name of a rate."""
    for axis, prior in priors.items():
        value, other_value = setting[FIELDS[axis]], other[FIELDS[axis]]
        if value == other_value:
            continue
        if not (value and other_value):  # off the scale
            return False
        if abs(position_of(setting, axis, prior) - position_of(other, axis, prior)) >= SAME_POSITION:
            return False
    return True


def _sides(position: float, step: float) -> tuple[float, float]:
    """Return one position to either side; at an end two on the inner one. Rounding moves a position by less than
    `SAME_POSITION`."""
    if position - step < -1.0 - SAME_POSITION:
        return position + step, position + 2 * step
    return (
        (position - step, position + step)
        if position + step <= 1.0 + SAME_POSITION
        else (position - step, position - 2 * step)
    )


def _move_along(setting: Setting, axis: Axis, prior: Prior, position: float) -> Setting:
    """Return the same with another value of one axis, named by its rate."""
    moved = dict(setting) | {FIELDS[axis]: value_at(axis, prior, (position + 1) / 2)}
    lr = float(f"{rate_of(moved):.5g}")
    tag = zlib.crc32(json.dumps(moved | {"lr": lr}, sort_keys=True).encode()) / 2**32
    return moved | {"lr": lr * (1 + NAMING_CHANGE * tag)}
