"""Performance profiles: several comparisons become one score for each candidate (AlgoPerf, arXiv 2306.07179).

    comparisons (one workload each) ─► time of each candidate to the tuned baseline's loss ─► ratio to the fastest
      ─► share of workloads within tau times the fastest ─► integrated over tau in [1, 4]

A score of 1 is the fastest on every workload; 0 reaches no target in four times the fastest one's time.
"""

from collections.abc import Sequence

from orchestrator.records import CandidateRow, Comparison
from orchestrator.targets import LARGEST_TAU, profile_scores
from worker.record import Record


class WorkloadTime(Record):
    """How long a candidate took on one workload, median over seeds; null where half of them never got there."""

    experiment_id: str
    name: str
    tokens: float | None
    device_hours: float | None


class ProfileRow(Record):
    """One candidate over all workloads."""

    candidate: str
    title: str
    is_baseline: bool
    score_tokens: float
    """Of the profile over tokens to target: 0 to 1. It does not depend on the machine."""
    score_device_hours: float
    """Of the profile over device-hours to target: it does, and is fair on one kind of device only."""
    times: tuple[WorkloadTime, ...]


class ProfileReport(Record):
    """Candidates over several workloads, the best first."""

    experiments: tuple[str, ...]
    largest_tau: float
    rows: tuple[ProfileRow, ...]
    notes: tuple[str, ...]


def profiles(comparisons: Sequence[Comparison]) -> ProfileReport:
    """The profile of every candidate that all comparisons have; a pure function."""
    names = [row.candidate for row in comparisons[0].rows]
    tables = [{row.candidate: row for row in each.rows} for each in comparisons]
    common = [name for name in names if all(name in table for table in tables)]
    times = {
        name: [_time(each, table[name]) for each, table in zip(comparisons, tables, strict=True)] for name in common
    }
    tokens = profile_scores({name: [each.tokens for each in row] for name, row in times.items()})
    hours = profile_scores({name: [each.device_hours for each in row] for name, row in times.items()})
    rows = [
        ProfileRow(
            candidate=name,
            title=tables[0][name].title,
            is_baseline=tables[0][name].is_baseline,
            score_tokens=tokens[name],
            score_device_hours=hours[name],
            times=tuple(times[name]),
        )
        for name in common
    ]
    return ProfileReport(
        experiments=tuple(each.experiment_id for each in comparisons),
        largest_tau=LARGEST_TAU,
        rows=tuple(sorted(rows, key=lambda row: -row.score_tokens)),
        notes=_notes(comparisons, dropped=len({name for table in tables for name in table}) - len(common)),
    )


def _time(comparison: Comparison, row: CandidateRow) -> WorkloadTime:
    found = row.time_to_target
    return WorkloadTime(
        experiment_id=comparison.experiment_id,
        name=comparison.name,
        tokens=found.tokens if found else None,
        device_hours=found.device_hours if found else None,
    )


def _notes(comparisons: Sequence[Comparison], dropped: int) -> tuple[str, ...]:
    found = ["Target of each workload: the final loss of its tuned baseline, seed by seed."]
    if len(comparisons) < 3:
        found.insert(0, f"{len(comparisons)} workloads: a profile over so few says little beyond their own tables.")
    if dropped:
        found.append(f"{dropped} candidates are not in every comparison and were left out.")
    if len({each.baseline for each in comparisons}) > 1:
        found.append("The comparisons have different baselines, so their targets are not equally hard.")
    if len({each.device for each in comparisons}) > 1:
        found.append("Measured on different devices: compare the tokens, not the device-hours.")
    if unfinished := [each.name for each in comparisons if not each.complete]:
        found.append(f"Not ended yet: {', '.join(unfinished)}.")
    return tuple(found)
