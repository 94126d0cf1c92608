"""Coordinate descent of tuning: which settings a candidate tries one after another, from those that ended. Pure.

    own setting ─► one axis after another: half of its range to either side of the best so far, keep the lowest
                     └► a round over all axes without a better one halves the step; until the trials are used up

The path is replayed from the runs: the same specification and results lead to the same next trials, after a restart
as well. Its rate names a trial, so rates that would be equal differ by less than a millionth, by what else is set.
Source: "Fantastic pretraining optimizers and where to find them", arXiv 2509.02046, section 3.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log

from orchestrator.kinds.tuning_search import FIELDS, Axis, Prior, Setting, value_at

FIRST_STEP = 0.5
"""Of half the range: places run from -1 to 1."""
LEAST_STEP = 1 / 64
"""Below it no noise of a run could tell two settings apart."""
SAME_PLACE = 1e-3
"""Places that differ by less are one."""
TAG = 1e-6
"""Relative change of a rate that names its trial; no training can tell."""


@dataclass(frozen=True, kw_only=True)
class Descent:
    """The settings of a path, in their order."""

    tried: tuple[Setting, ...]
    next_trials: tuple[Setting, ...]
    """The last ones of `tried`, of which there is no run yet; none at the end of the path."""


Rank = Callable[[Sequence[float]], Mapping[float, tuple[float, float]]]
"""How trials stand against one another, by their rates: the least first; no entry for one without runs."""


def descend(priors: Mapping[Axis, Prior], count: int, rank: Rank) -> Descent:
    """The path of a candidate through `count` trials, as far as the runs lead it."""
    best: Setting = {FIELDS[axis]: prior.own for axis, prior in priors.items()}
    tried, step = {_rate(best): best}, FIRST_STEP
    if _rate(best) not in rank([_rate(best)]):
        return Descent(tried=(best,), next_trials=(best,))
    while step >= LEAST_STEP:
        start = best
        for axis, prior in priors.items():
            room = count - len(tried)
            sides = [_move_along(best, axis, prior, place) for place in _sides(place_of(best, axis, prior), step)]
            new = [each for each in sides if not any(_is_same(each, old, priors) for old in tried.values())]
            added = {_rate(each): each for each in new[:room]}
            if not added:
                continue
            tried |= added
            ranks = rank([_rate(best), *added])
            if waiting := [each for rate, each in added.items() if rate not in ranks]:
                return Descent(tried=tuple(tried.values()), next_trials=tuple(waiting))
            best = tried[min([_rate(best), *added], key=lambda rate: ranks[rate])]
            if len(tried) == count:
                return Descent(tried=tuple(tried.values()), next_trials=())
        if best is start:
            step /= 2
    return Descent(tried=tuple(tried.values()), next_trials=())


def place_of(setting: Setting, axis: Axis, prior: Prior) -> float:
    """Where a setting lies on an axis, -1 and 1 being the ends of its range; no warm-up and no clipping lie at the end
    that is nearest to them."""
    value = setting[FIELDS[axis]]
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return -1.0 if axis == "warmup" else 1.0
    if prior.high <= prior.low:
        return 0.0
    amount = 1 - value if axis in ("beta1", "beta2") else value
    place = 2 * log(amount / prior.low) / log(prior.high / prior.low) - 1
    return min(max(place, -1.0), 1.0)


def _is_same(one: Setting, other: Setting, priors: Mapping[Axis, Prior]) -> bool:
    """Whether no more than rounding, and the name of a rate, tells them apart."""
    return all(
        one[FIELDS[axis]] == other[FIELDS[axis]]
        or (one[FIELDS[axis]] and other[FIELDS[axis]])
        and abs(place_of(one, axis, prior) - place_of(other, axis, prior)) < SAME_PLACE
        for axis, prior in priors.items()
    )


def _sides(place: float, step: float) -> tuple[float, float]:
    """One to either side; at an end two on the inner one. Rounding moves a place by less than `SAME_PLACE`."""
    if place - step < -1.0 - SAME_PLACE:
        return place + step, place + 2 * step
    return (place - step, place + step) if place + step <= 1.0 + SAME_PLACE else (place - step, place - 2 * step)


def _move_along(setting: Setting, axis: Axis, prior: Prior, place: float) -> Setting:
    """The same with another value of one axis, named by its rate."""
    moved = dict(setting) | {FIELDS[axis]: value_at(axis, prior, (place + 1) / 2)}
    lr = float(f"{_rate(moved):.5g}")
    tag = zlib.crc32(json.dumps(moved | {"lr": lr}, sort_keys=True).encode()) / 2**32
    return moved | {"lr": lr * (1 + TAG * tag)}


def _rate(setting: Setting) -> float:
    lr = setting["lr"]
    assert isinstance(lr, float)
    return lr
