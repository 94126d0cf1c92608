"""Performance profiles: several comparisons become one score for each candidate (AlgoPerf, arXiv 2306.07179).

    comparisons ─► those of one workload together ─► time of each candidate to the tuned baseline's loss, the median
      over them ─► ratio to the fastest
      ─► share of workloads within tau times the fastest ─► integrated over tau in [1, 4]

A score of 1 is the fastest on every workload; 0 reaches no target in four times the fastest one's time.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from orchestrator.analysis.targets import LARGEST_TAU, profile_scores
from orchestrator.records import Comparison
from worker.records.result import Record
from worker.spec.run import Evaluation, Execution, Workload
from worker.words import pluralize

# Performance profiles as records: each candidate's times to target on several workloads, and its scores.


class ProfileRule(StrEnum):
    """Whose rule scores are taken by: the bench's own, exact and paired by seed, or AlgoPerf's scorer's."""

    BENCH = "bench"
    ALGOPERF = "algoperf"


class WorkloadTime(Record):
    """How long a candidate took on one workload, median over seeds; null where half of them never got there."""

    experiment_id: str
    """The first of its experiments."""
    name: str
    experiments: tuple[str, ...] = ()
    """All experiments that trained this workload; of several, the times are the median."""
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

    rule: ProfileRule = ProfileRule.BENCH
    """By which the times were taken and the profiles integrated."""
    experiments: tuple[str, ...]
    workloads: int
    """Fewer than experiments, where some of these train the same."""
    largest_tau: float
    rows: tuple[ProfileRow, ...]
    notes: tuple[str, ...]


AS_USUAL: Final[Mapping[str, Any]] = {"execution": Execution(), "evaluation": Evaluation(), "probes": None}
"""What two experiments of one workload may do differently."""


def profiles(measured: Sequence[tuple[Workload, Comparison]]) -> ProfileReport:
    """The profile of every candidate that all comparisons have; a pure function. Each workload counts once, however
    many experiments measured it."""
    comparisons = [comparison for _, comparison in measured]
    names = [row.candidate for row in comparisons[0].rows]
    tables = [{row.candidate: row for row in each.rows} for each in comparisons]
    common = [name for name in names if all(name in table for table in tables)]
    by_workload: dict[str, list[Comparison]] = {}
    for workload, comparison in measured:
        by_workload.setdefault(trained_workload(workload), []).append(comparison)
    groups = list(by_workload.values())
    times = {name: [_time(group, name) for group in groups] for name in common}
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
        workloads=len(groups),
        largest_tau=LARGEST_TAU,
        rows=tuple(sorted(rows, key=lambda row: -row.score_tokens)),
        notes=profile_notes(
            "Target of each workload: the final loss of its tuned baseline, seed by seed.",
            groups,
            dropped=len({name for table in tables for name in table}) - len(common),
        ),
    )


def trained_workload(workload: Workload) -> str:
    """Equal for what is one workload: how it is computed, evaluated and observed makes no other one of it."""
    return workload.model_copy(update=AS_USUAL).content_hash()


def _time(group: Sequence[Comparison], candidate: str) -> WorkloadTime:
    """Over the experiments of one workload, each against the target of its own baseline."""
    found = [row.time_to_target for each in group for row in each.rows if row.candidate == candidate]
    return WorkloadTime(
        experiment_id=group[0].experiment_id,
        name=group[0].name,
        experiments=tuple(dict.fromkeys(each.experiment_id for each in group)),
        tokens=_median([each.tokens if each else None for each in found]),
        device_hours=_median([each.device_hours if each else None for each in found]),
    )


def _median(times: Sequence[float | None]) -> float | None:
    """In which one that never got there is later than all others; None where that one is in the middle."""
    found = statistics.median(math.inf if each is None else each for each in times)
    return found if found < math.inf else None


def profile_notes(rule: str, groups: Sequence[Sequence[Comparison]], dropped: int) -> tuple[str, ...]:
    """What a fair reader must know: the rule, and the comparisons, those of one workload together."""
    comparisons = [each for group in groups for each in group]
    found = [rule]
    if len(groups) < 3:
        workloads = pluralize(len(groups), "workload")
        found.insert(0, f"{workloads}: a profile over so few says little beyond their own tables.")
    for group in groups:
        if len(group) > 1:
            names = ", ".join(each.name for each in group)
            found.append(f"{len(group)} experiments train one workload and count as one, at their median: {names}.")
    if dropped:
        found.append(f"{pluralize(dropped, 'candidate is', 'candidates are')} not in every comparison, and left out.")
    if len({each.baseline for each in comparisons}) > 1:
        found.append("The comparisons have different baselines, so their targets are not equally hard.")
    if len({each.device for each in comparisons}) > 1:
        found.append("Measured on different devices: compare the tokens, not the device-hours.")
    if unfinished := [each.name for each in comparisons if not each.complete]:
        found.append(f"Not ended yet: {', '.join(unfinished)}.")
    return tuple(found)
