"""Coordinate descent of tuning: which settings a candidate tries one after another, from those that ended. Pure.

    own setting ─► one axis after another: a quarter of its range to either side of the best so far, keep the lowest
                     ├► a round over all axes without a better one halves the step; until one trial is left
                     └► the last one: on each axis, the lowest point of a parabola through three low trials

The path is replayed from the runs: the same specification and results lead to the same next trials, after a restart
as well. Its rate names a trial, so rates that would be equal differ by less than a millionth, by what else is set.
Source: "Fantastic pretraining optimizers and where to find them", arXiv 2509.02046, section 3.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log

from orchestrator.kinds.tuning_search import FIELDS, Axis, Prior, Setting, value_at

FIRST_STEP = 0.5
"""Of half the range: places run from -1 to 1."""
LEAST_STEP = 1 / 64
"""Below it no noise of a run could tell two settings apart."""
SAME_PLACE = 1e-3
"""Places that differ by less are one."""
TAG = 1e-6
"""Relative change of a rate that names its trial; no training can tell."""
_UNKNOWN = (inf, inf)
"""How a trial without runs stands: behind all others."""


@dataclass(frozen=True, kw_only=True)
class Descent:
    """The settings of a path, in their order."""

    tried: tuple[Setting, ...]
    next_trials: tuple[Setting, ...]
    """The last ones of `tried`, of which there is no run yet; none at the end of the path."""


Rank = Callable[[Sequence[float]], Mapping[float, tuple[float, float]]]
"""How trials stand against one another, by their rates: what lost fewest runs first, then by the mean loss; no entry
for one without runs."""


def descend(priors: Mapping[Axis, Prior], count: int, rank: Rank) -> Descent:
    """The path of a candidate through `count` trials, as far as the runs lead it."""
    path = _walk(priors, count - 1, rank)
    if path.next_trials:
        return path
    lowest = lowest_setting(priors, path.tried, rank([rate_of(each) for each in path.tried]))
    if lowest is None:
        return _walk(priors, count, rank)
    ended = rate_of(lowest) in rank([rate_of(lowest)])
    return Descent(tried=(*path.tried, lowest), next_trials=() if ended else (lowest,))


def _walk(priors: Mapping[Axis, Prior], count: int, rank: Rank) -> Descent:
    """The trials that each move along one axis."""
    best: Setting = {FIELDS[axis]: prior.own for axis, prior in priors.items()}
    tried, step = {rate_of(best): best}, FIRST_STEP
    if rate_of(best) not in rank([rate_of(best)]):
        return Descent(tried=(best,), next_trials=(best,))
    while step >= LEAST_STEP:
        start = best
        for axis, prior in priors.items():
            room = count - len(tried)
            sides = [_move_along(best, axis, prior, place) for place in _sides(place_of(best, axis, prior), step)]
            new = [each for each in sides if not any(_is_same(each, old, priors) for old in tried.values())]
            added = {rate_of(each): each for each in new[:room]}
            if not added:
                continue
            tried |= added
            ranks = rank([rate_of(best), *added])
            if waiting := [each for rate, each in added.items() if rate not in ranks]:
                return Descent(tried=tuple(tried.values()), next_trials=tuple(waiting))
            best = tried[min([rate_of(best), *added], key=lambda rate: ranks[rate])]
            if len(tried) == count:
                return Descent(tried=tuple(tried.values()), next_trials=())
        if best is start:
            step /= 2
    return Descent(tried=tuple(tried.values()), next_trials=())


def lowest_setting(
    priors: Mapping[Axis, Prior], tried: Sequence[Setting], ranks: Mapping[float, tuple[float, float]]
) -> Setting | None:
    """On each axis, the lowest point of the parabola through a trial and its neighbours along that axis alone; None
    where that is one of the trials.

    A trial misses its optimum by up to half a step on every axis; where steps are half a range wide that is as much as
    optimizers differ by. The trial is the best one, or, on an axis along which none was tried since others moved, the
    lowest of those beside which some were. Where several axes do the same to the loss all of them go as far as one of
    them should, and this is worse than the best trial: it is tried like any other. An axis stays where it is if there
    is no trial to one side, or the nearest was lost.
    """
    best, *others = sorted(tried, key=lambda setting: ranks.get(rate_of(setting), _UNKNOWN))
    lowest = best
    for axis, prior in priors.items():
        for trial in (best, *others):
            line = {
                place_of(each, axis, prior): ranks.get(rate_of(each), _UNKNOWN)
                for each in tried
                if each[FIELDS[axis]] and _is_same({**each, FIELDS[axis]: trial[FIELDS[axis]]}, trial, priors)
            }
            if (place := _lowest_place(line, place_of(trial, axis, prior))) is not None:
                lowest = _move_along(lowest, axis, prior, place)
            if len(line) > 1:
                break
    return None if any(_is_same(lowest, each, priors) for each in tried) else lowest


def _lowest_place(line: Mapping[float, tuple[float, float]], here: float) -> float | None:
    """Where the parabola through the lowest trial of an axis, which lies here, and its neighbours is lowest; None
    without one of them, beside one that was lost, and where another trial of the axis is lower."""
    below = max((place for place in line if place < here - SAME_PLACE), default=here)
    above = min((place for place in line if place > here + SAME_PLACE), default=here)
    if here not in line or here in (below, above) or line[here] > min(line.values()):
        return None
    coverage, least = line[here]
    if any(line[place][0] > coverage for place in (below, above)):
        return None
    down, up = here - below, above - here
    falls, rises = (line[below][1] - least) / down, (line[above][1] - least) / up
    return here + (falls * up - rises * down) / (2 * (falls + rises)) if falls + rises > 0 else None


def rate_of(setting: Setting) -> float:
    """The learning rate of a setting: its name among those of a candidate."""
    lr = setting["lr"]
    assert isinstance(lr, float)
    return lr


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
    for axis, prior in priors.items():
        value, other_value = one[FIELDS[axis]], other[FIELDS[axis]]
        lies_off_the_scale = not (value and other_value)
        apart = abs(place_of(one, axis, prior) - place_of(other, axis, prior))
        if value != other_value and (lies_off_the_scale or apart >= SAME_PLACE):
            return False
    return True


def _sides(place: float, step: float) -> tuple[float, float]:
    """One to either side; at an end two on the inner one. Rounding moves a place by less than `SAME_PLACE`."""
    if place - step < -1.0 - SAME_PLACE:
        return place + step, place + 2 * step
    return (place - step, place + step) if place + step <= 1.0 + SAME_PLACE else (place - step, place - 2 * step)


def _move_along(setting: Setting, axis: Axis, prior: Prior, place: float) -> Setting:
    """The same with another value of one axis, named by its rate."""
    moved = dict(setting) | {FIELDS[axis]: value_at(axis, prior, (place + 1) / 2)}
    lr = float(f"{rate_of(moved):.5g}")
    tag = zlib.crc32(json.dumps(moved | {"lr": lr}, sort_keys=True).encode()) / 2**32
    return moved | {"lr": lr * (1 + TAG * tag)}
