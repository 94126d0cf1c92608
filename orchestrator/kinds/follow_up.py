"""What follows in a tuned experiment when runs of it have ended: the comparison's own rule, in each cell. Pure.

all runs of a candidate in a cell ─► `follow_up` ─► more of its grid, or the winner's seeds
                                                          └► in the larger cells of the same budget too, where
                                                             these take over the rates of the smallest
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.kinds.comparison import Candidate, ComparisonSpec, planned_run
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.scaling import Cell, ScalingSpec
from orchestrator.kinds.tuning import Trial, follow_up


@dataclass(frozen=True, kw_only=True, order=True)
class Place:
    """Whose runs are tuned together: a candidate's at one size and budget."""

    candidate: str
    model: str
    steps: int


def follow_up_runs(spec: ComparisonSpec, place: Place, trials: Sequence[Trial]) -> tuple[PlannedRun, ...]:
    """The runs that follow, from all runs of that place so far; see `follow_up`."""
    if not isinstance(spec, ScalingSpec):
        return _in_a_comparison(spec, place, trials)
    cell = next(each for each in spec.cells() if each.holds(place.model, place.steps))
    found = _in_a_comparison(spec.comparison(cell), place, trials)
    return (*found, *_taken_over(spec, cell, found))


def _in_a_comparison(spec: ComparisonSpec, place: Place, trials: Sequence[Trial]) -> tuple[PlannedRun, ...]:
    candidate = _named(spec, place.candidate)
    return tuple(planned_run(spec, candidate, lr, seed) for lr, seed in follow_up(spec, candidate, trials))


def _taken_over(spec: ScalingSpec, smallest: Cell, found: Sequence[PlannedRun]) -> Iterator[PlannedRun]:
    """The same winners at the larger sizes; nothing while the grid goes on, and where each size is tuned."""
    larger = [each for each in spec.cells() if each.budget == smallest.budget and not spec.tries_rates(each)]
    winners = [run for run in found if run.spec.seed in spec.seeds]
    for cell in larger:
        assert spec.tuning is not None  # or every cell would have grids of its own
        comparison = spec.comparison(cell)
        for run in winners:
            rate = spec.tuning.transferred(run.spec.optimizer.lr, smallest.size.model, cell.size.model)
            yield planned_run(comparison, _named(comparison, run.candidate), rate, run.spec.seed)


def _named(spec: ComparisonSpec, name: str) -> Candidate:
    return next(each for each in spec.candidates if each.name() == name)
