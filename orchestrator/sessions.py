"""A run is a row of sessions in time: what of each of them belongs to it. One rule for logged and imported runs.

A session that begins at or before the last step of an earlier one that has a metric in common cuts it there: it went on
from a checkpoint, and no model has what was logged behind it. So does a session that logs a metric again at a step
before its last. Where the tool counts steps itself, a later session that counts from 0 again is put behind the earlier
one; so is what a tracker has of a later epoch, whose steps begin anew. A session that logs the same metrics while an
earlier one still does is another training, and no part of the run, unless its owner said that it is. One with no metric
in common, such as an evaluation, leaves the others as they are.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter


@dataclass(frozen=True, kw_only=True)
class SourcePoint:
    """Figures that were logged together."""

    at: float
    """Seconds since 1970, on the clock of who logged."""
    step: int
    metrics: dict[str, float]


def join_sessions(
    sessions: Iterable[Sequence[SourcePoint]], *, counts_steps: bool = False, is_one_training: bool = False
) -> tuple[list[SourcePoint], list[str]]:
    """Return the points of a run by step, and in a sentence each what was done for it.

    `sessions`: each in the order in which it was logged. `counts_steps`: whether the tool counts steps itself.
    `is_one_training`: whether their owner gave them one id, so that those that overlap in time are mixed.
    """
    notes: list[str] = []
    curves: dict[frozenset[str], list[SourcePoint]] = {}
    """By the names of what a session logged, its points by step."""
    was_counted, last_epoch = True, math.inf
    epoch_starts = [(-math.inf, 0)]
    """The epochs whose steps began anew, each with the step of its first."""
    for session in _without_others(sessions, notes, is_one_training=is_one_training):
        names = _names(session)
        alike = [curves.setdefault(names, []), *(curves[key] for key in curves if key & names and key != names)]
        for stretch in _stretches(session):
            first, last = stretch[0].step, max(points[-1].step if points else -1 for points in alike)
            # Steps that are 0, 1, 2, …, as a tool counts calls.
            is_counted = counts_steps and all(point.step == number for number, point in enumerate(stretch))
            epochs = [
                value
                for point in stretch
                for name, value in point.metrics.items()
                if name.rpartition("/")[2].lower() == "epoch"
            ]
            epoch, shift = min(epochs, default=-math.inf), 0
            if epochs:
                while epoch_starts[-1][0] > epoch:
                    epoch_starts.pop()
                shift = epoch_starts[-1][1]
            if first <= last and epoch > last_epoch and not is_one_training:
                notes.append("its steps begin anew with each epoch: those of an epoch are put behind the ones before")
                shift = last + 1
                epoch_starts.append((epoch, shift))
            elif not shift and first == 0 <= last and is_counted and was_counted:
                notes.append(f"a session counts from step 0 again: it is put behind step {last:,}")
                shift = last + 1
            if shift:
                stretch = [replace(point, step=point.step + shift) for point in stretch]
            if last > (first := first + shift):
                notes.append(
                    f"resumed from an earlier checkpoint: a session went back to step {first:,}, so that what was "
                    f"logged from there to step {last:,} before it is left out"
                )
            for points in alike:
                while points and points[-1].step >= first:
                    points.pop()
            last_epoch = max(epochs, default=last_epoch)
            was_counted = was_counted and is_counted
            curves[names] += stretch
    figures = sorted((point for points in curves.values() for point in points), key=attrgetter("step"))
    return list(_merged(point for point in figures if point.metrics)), [*dict.fromkeys(notes)]


def _merged(points: Iterable[SourcePoint]) -> Iterator[SourcePoint]:
    """Yield the points, those of one step as one where none of their metrics is the same."""
    for step, step_points in groupby(points, attrgetter("step")):
        merged: dict[str, float] = {}
        moment = 0.0
        for point in step_points:
            if merged.keys() & point.metrics.keys():
                yield SourcePoint(at=moment, step=step, metrics=merged)
                merged = {}
            moment = moment if merged else point.at
            merged.update(point.metrics)
        yield SourcePoint(at=moment, step=step, metrics=merged)


def _without_others(
    sessions: Iterable[Sequence[SourcePoint]], notes: list[str], *, is_one_training: bool
) -> list[list[SourcePoint]]:
    """Return the sessions in time, without those that log the same as an earlier one meanwhile; of one training these
    are mixed."""
    spans: list[tuple[list[SourcePoint], frozenset[str], float]] = []
    """Sessions, each with its names and the time of its end."""
    overlaps = 0
    for session in sorted((session for session in sessions if session), key=lambda session: session[0].at):
        points, names, end = [*session], _names(session), max(point.at for point in session)
        shared_spans = [span for span in spans if span[2] > points[0].at and span[1] & names]
        if shared_spans and not is_one_training:
            overlaps += 1
            continue
        if shared_spans:
            parts = [*(span[0] for span in shared_spans), points]
            points = sorted((point for part in parts for point in part), key=attrgetter("at"))
        for span in shared_spans:
            spans.remove(span)
            names, end = names | span[1], max(end, span[2])
        spans.append((points, names, end))
    if overlaps:
        notes.append(
            f"{overlaps + 1} trainings logged the same metrics at the same time, so they are not one run: the first is "
            "kept, the others are left out"
        )
    return sorted((points for points, _, _ in spans), key=lambda session: session[0].at)


def _names(session: Iterable[SourcePoint]) -> frozenset[str]:
    return frozenset(name for point in session for name in point.metrics)


def _stretches(session: Iterable[SourcePoint]) -> Iterator[list[SourcePoint]]:
    """Yield a session in parts that only go forward, each by step. A new one begins where a metric is logged again at a
    step before its last; a step that is filled in later, as by an evaluation of old checkpoints, begins none."""
    part: list[SourcePoint] = []
    last: dict[str, int] = {}
    logged_steps: set[tuple[str, int]] = set()
    for point in session:
        if any(point.step < last.get(name, 0) and (name, point.step) in logged_steps for name in point.metrics):
            yield sorted(part, key=attrgetter("step"))
            part, last, logged_steps = [], {}, set()
        for name in point.metrics:
            last[name] = max(last.get(name, 0), point.step)
            logged_steps.add((name, point.step))
        part.append(point)
    if part:
        yield sorted(part, key=attrgetter("step"))
