"""What is looked for in the points of an imported run, before it is sent.

Values of one metric that share a step and differ: the last counts. If most do, several runs or series are mixed. A loss
that ends long before the run does is said.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from api.imports.source import SourceError, SourcePoint, is_sample

JUDGED = "val_loss"


def check_collisions(name: str, points: Sequence[SourcePoint]) -> Iterator[str]:
    """Say which metrics have several values at a step. Raises `SourceError` where most steps of the loss have."""
    values: dict[tuple[str, int], float] = {}
    differing = set[tuple[str, int]]()
    for point in points:
        for metric, value in point.metrics.items():
            before = values.setdefault((metric, point.step), value)
            if before != value and (before == before or value == value):  # two NaN are the same
                differing.add((metric, point.step))
    counts = Counter(metric for metric, _ in differing)
    steps = sum(metric == JUDGED for metric, _ in values)
    if counts[JUDGED] * 2 > steps > 1:
        raise SourceError(
            f"{name}: {counts[JUDGED]:,} of {steps:,} steps have several values of {JUDGED} that differ: several runs "
            "or series are mixed; name what tells them apart, as by --map candidate=FIELD or --map seed=FIELD"
        )
    if counts:
        shown = ", ".join(f"{metric} at {count:,}" for metric, count in counts.most_common(4))
        yield f"several values share a step and differ, of which the last counts: {shown}"


def check_end(points: Sequence[SourcePoint]) -> Iterator[str]:
    """Say where the loss ends before the run does, by more than it was ever apart."""
    steps = [point.step for point in points if JUDGED in point.metrics]
    last = max((point.step for point in points if not is_sample(point)), default=0)
    if len(steps) > 1 and last - steps[-1] > max(later - step for step, later in pairwise(steps)):
        yield f"the last {JUDGED} is of step {steps[-1]:,}, but the run logged until step {last:,}"
