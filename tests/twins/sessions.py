"""Joined sessions of a run, value by value and without a care for time."""

from collections.abc import Sequence

from orchestrator.sessions import SourcePoint

Values = dict[tuple[int, str], float]
"""The values by step and name."""


def joined_values(
    sessions: Sequence[Sequence[SourcePoint]], *, counts_steps: bool = False, is_one_training: bool = False
) -> Values:
    """The values of the training, as `join_sessions` keeps them."""
    rows: list[tuple[int, str, float, set[str]]] = []
    """Step, name, value, and all names of its session."""
    groups: list[list[SourcePoint]] = []
    for session in sorted((session for session in sessions if session), key=lambda session: session[0].at):
        overlapping = [
            group
            for group in groups
            if _names(group) & _names(session) and any(point.at > session[0].at for point in group)
        ]
        if is_one_training or not overlapping:
            mixed = sorted((point for group in [*overlapping, session] for point in group), key=lambda point: point.at)
            groups = [group for group in groups if group not in overlapping]
            groups.append(mixed if overlapping else [*session])
    groups.sort(key=lambda group: group[0].at)
    counted_so_far, epoch_so_far = True, float("inf")
    starts: dict[float, int] = {}
    for group in groups:
        names = _names(group)
        for stretch in _stretches(group):
            first = min(point.step for point in stretch)
            last = max((step for step, _, _, session_names in rows if session_names & names), default=-1)
            counted = counts_steps and sorted(point.step for point in stretch) == [*range(len(stretch))]
            epochs = [point.metrics["epoch"] for point in stretch if "epoch" in point.metrics]
            shift = 0
            if epochs:
                starts = {epoch: start for epoch, start in starts.items() if epoch <= min(epochs)}
                shift = max([0, *starts.values()])
                if min(epochs) > epoch_so_far and first <= last and not is_one_training:
                    shift = starts[min(epochs)] = last + 1
                epoch_so_far = max(epochs)
            if not shift and counted and counted_so_far and first == 0:
                shift = last + 1
            rows = [value for value in rows if value[0] < first + shift or not value[3] & names]
            for point in sorted(stretch, key=lambda point: point.step):
                rows += [(point.step + shift, name, value, names) for name, value in point.metrics.items()]
            counted_so_far = counted_so_far and counted
    return {(step, name): value for step, name, value, _ in rows}


def _names(session: Sequence[SourcePoint]) -> set[str]:
    return {name for point in session for name in point.metrics}


def _stretches(session: Sequence[SourcePoint]) -> list[list[SourcePoint]]:
    stretches: list[list[SourcePoint]] = [[]]
    for point in session:
        steps = {name: [earlier.step for earlier in stretches[-1] if name in earlier.metrics] for name in point.metrics}
        if any(point.step in earlier_steps and point.step < max(earlier_steps) for earlier_steps in steps.values()):
            stretches.append([])
        stretches[-1].append(point)
    return stretches
