"""What a run is made of when its sessions are joined, value by value and without a care for time."""

from collections.abc import Sequence

from api.imports.source import SourcePoint

Values = dict[tuple[int, str], float]
"""By step and name."""


def joined_values(sessions: Sequence[Sequence[SourcePoint]], *, counts_steps: bool) -> Values:
    """The values of the training, as `join_sessions` keeps them."""
    values: Values = {}
    groups: list[list[Sequence[SourcePoint]]] = []
    for session in sorted((session for session in sessions if session), key=lambda session: session[0].at):
        if not groups or all(point.at <= session[0].at for other in groups[-1] for point in other):
            groups.append([session])
        elif not _names(session) & set().union(*map(_names, groups[-1])):
            groups[-1].append(session)
    counted_so_far, seen = True, set[str]()
    for group in groups:
        points = sorted((point for session in group for point in session), key=lambda point: point.at)
        is_new, seen = not _names(points) & seen, _names(points) | seen
        for stretch in _stretches(points if len(group) > 1 else group[0]):
            first, last = min(point.step for point in stretch), max((step for step, _ in values), default=-1)
            counted = counts_steps and sorted(point.step for point in stretch) == [*range(len(stretch))]
            shift = last + 1 if counted and counted_so_far and first == 0 else 0
            if not shift and not is_new:
                values = {place: value for place, value in values.items() if place[0] < first}
            for point in sorted(stretch, key=lambda point: point.step):
                values |= {(point.step + shift, name): value for name, value in point.metrics.items()}
            counted_so_far, is_new = counted_so_far and counted, False
    return values


def _names(session: Sequence[SourcePoint]) -> set[str]:
    return {name for point in session for name in point.metrics}


def _stretches(session: Sequence[SourcePoint]) -> list[list[SourcePoint]]:
    stretches: list[list[SourcePoint]] = [[]]
    for point in session:
        steps = {name: [each.step for each in stretches[-1] if name in each.metrics] for name in point.metrics}
        if any(point.step in before and point.step < max(before) for before in steps.values()):
            stretches.append([])
        stretches[-1].append(point)
    return stretches
