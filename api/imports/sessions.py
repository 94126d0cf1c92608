"""A run is a row of sessions in time: what of each of them belongs to it. One rule, below all readers.

A later session that begins at or before the last step of an earlier one cuts it there: it went on from a checkpoint,
and no model has what was logged behind it. Where the tool counts steps itself, a later session that counts from 0 again
is put behind the earlier one. A session that logs the same metrics while an earlier one still does is another training,
and no part of the run. One that logs none of the metrics before it, such as an evaluation, is beside them.

Values of one metric that share a step and differ: the last counts. If most do, several runs or series are mixed. A loss
that ends long before the run does is said.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter

from api.imports.source import SourceError, SourcePoint, is_sample

JUDGED = "val_loss"


def join_sessions(
    sessions: Iterable[Sequence[SourcePoint]], *, counts_steps: bool = False
) -> tuple[list[SourcePoint], list[str]]:
    """The points of a run by step, samples of the machine behind them, and in a sentence each what was done for it.

    `sessions`: each in the order in which it was logged. `counts_steps`: whether the tool counts them itself.
    """
    notes: list[str] = []
    figures: list[SourcePoint] = []
    samples: list[SourcePoint] = []
    logged = set[str]()
    was_counted = True
    for session in _without_others(sessions, notes):
        samples += (point for point in session if is_sample(point))
        names = _names(session)
        is_beside, logged = not names & logged, logged | names
        for stretch in _stretches(point for point in session if not is_sample(point)):
            first, last = stretch[0].step, figures[-1].step if figures else -1
            is_counted = counts_steps and _is_counted(stretch)
            if first == 0 <= last and is_counted and was_counted:
                notes.append(f"a session counts from step 0 again: it is put behind step {last:,}")
                stretch = [replace(point, step=point.step + last + 1) for point in stretch]
            elif first <= last and not is_beside:
                if first < last:
                    notes.append(
                        f"resumed from an earlier checkpoint: a session went back to step {first:,}, so that what was "
                        f"logged from there to step {last:,} before it is left out"
                    )
                while figures and figures[-1].step >= first:
                    figures.pop()
            was_counted = was_counted and is_counted
            figures += stretch
            if is_beside:
                figures.sort(key=attrgetter("step"))
                is_beside = False
    samples = [replace(point, step=number) for number, point in enumerate(samples)]
    return [*_merged(point for point in figures if point.metrics), *samples], notes


def _merged(points: Iterable[SourcePoint]) -> Iterator[SourcePoint]:
    """The points, those of one step as one where none of their metrics is the same."""
    last: SourcePoint | None = None
    metrics: dict[str, float] = {}
    for point in points:
        if last is None or last.step != point.step or any(name in metrics for name in point.metrics):
            if last is not None:
                yield replace(last, metrics=metrics)
            last, metrics = point, {}
        metrics |= point.metrics
    if last is not None:
        yield replace(last, metrics=metrics)


def _without_others(sessions: Iterable[Sequence[SourcePoint]], notes: list[str]) -> Iterator[Sequence[SourcePoint]]:
    """The sessions in time: those that overlap as one, without those that log the same as an earlier one meanwhile."""
    together: list[SourcePoint] = []
    names, ended, others = set[str](), 0.0, 0
    for session in sorted((each for each in sessions if each), key=lambda each: each[0].at):
        if session[0].at >= ended:
            yield together
            together, names = [], set()
        if _names(session) & names:
            others += 1
            continue
        together = sorted([*together, *session], key=attrgetter("at")) if together else [*session]
        names |= _names(session)
        ended = max(ended, max(point.at for point in session))
    yield together
    if others:
        notes.append(
            f"{others + 1} trainings logged the same metrics at the same time, so they are not one run: the first is "
            "kept, the others are left out"
        )


def _names(session: Iterable[SourcePoint]) -> set[str]:
    return {name for point in session if not is_sample(point) for name in point.metrics}


def _stretches(session: Iterable[SourcePoint]) -> Iterator[list[SourcePoint]]:
    """A session in parts that only go forward, each by step. A new one begins where a metric is logged again at a step
    before its last; a step that is filled in later, as by an evaluation of old checkpoints, begins none."""
    part: list[SourcePoint] = []
    last: dict[str, int] = {}
    seen: set[tuple[str, int]] = set()
    for point in session:
        if any(point.step < last.get(name, 0) and (name, point.step) in seen for name in point.metrics):
            yield sorted(part, key=attrgetter("step"))
            part, last, seen = [], {}, set()
        for name in point.metrics:
            last[name] = max(last.get(name, 0), point.step)
            seen.add((name, point.step))
        part.append(point)
    if part:
        yield sorted(part, key=attrgetter("step"))


def _is_counted(stretch: Sequence[SourcePoint]) -> bool:
    """Whether steps are 0, 1, 2, …, as a tool counts calls."""
    return all(point.step == number for number, point in enumerate(stretch))


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
