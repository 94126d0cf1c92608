"""Random search over several hyperparameters: the candidate's own setting, then draws; the best trial is judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from orchestrator.tuning.ranges import FIELDS, Axis, Prior, own_setting, value_at
from orchestrator.tuning.tuner import Setting, Trials, best_rate, rate_of

DRAWN_CELLS = 1000
"""The cells of a range in which rates are drawn, each once, because a trial is named by its rate."""


@dataclass(frozen=True, kw_only=True)
class RandomSearch:
    """A search of `trials` settings, drawn by `seed`."""

    priors: Mapping[Axis, Prior]
    trials: int
    seed: int

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Return the candidate's own setting, and the draws."""
        drawn = {axis: _shares(axis, self.trials - 1, self.seed) for axis in self.priors}
        return (
            own_setting(self.priors),
            *(
                {FIELDS[axis]: value_at(axis, prior, drawn[axis][index]) for axis, prior in self.priors.items()}
                for index in range(self.trials - 1)
            ),
        )

    def ask(self, tried: Trials) -> tuple[Setting, ...]:
        """Return all settings at once."""
        return tuple(setting for setting in self.settings if rate_of(setting) not in tried)

    def setting(self, tried: Trials) -> Setting | None:
        """Return the best trial."""
        settings_by_rate = {rate_of(setting): setting for setting in self.settings}
        best = best_rate({rate: loss for rate, loss in tried.items() if rate in settings_by_rate})
        return None if best is None else settings_by_rate[best]

    def is_at_edge(self, tried: Trials) -> bool:
        """Return false: draws have no order that a better setting could lie beyond."""
        return False


def _shares(axis: Axis, count: int, seed: int) -> Sequence[float]:
    """Return the draws of one axis, whatever other axes are searched: the first n of more trials are those of n
    trials."""
    random, cells = Random(f"{seed} {axis}"), dict[int, None]()  # noqa: S311 - a search, not a secret
    while len(cells) < count:
        cells[random.randrange(DRAWN_CELLS)] = None
    return [(cell + 0.5) / DRAWN_CELLS for cell in cells]
