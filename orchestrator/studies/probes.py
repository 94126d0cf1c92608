"""Figures by role of blocks, from what probes see while GPT-2 trains: shared by the studies that watch runs."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from statistics import fmean

from orchestrator.analysis.statistics import mean_interval
from orchestrator.studies.result import Figure, StudyResult, interval_figure
from orchestrator.studies.study import Numbers
from worker.records.result import Observation

ROLES: Mapping[str, str] = {
    "embedding": "*.wte.weight",
    "query": "*:query",
    "key": "*:key",
    "value": "*:value",
    "attention output": "*.attn.c_proj.weight",
    "MLP": "*.mlp.*.weight",
}
"""The paper's roles by GPT-2's names of blocks."""


def values_of_role(observation: Observation, role: str, read: Callable[[Mapping[str, float]], float]) -> list[float]:
    """Return the value of every block of a role."""
    return [read(values) for name, values in observation.blocks.items() if fnmatchcase(name, ROLES[role])]


def first_by_role(
    observations: Sequence[Observation], probe: str, read: Callable[[Mapping[str, float]], float]
) -> Numbers:
    """Return role → mean over its blocks at the first step that the probe saw."""
    first = next((observation for observation in observations if observation.probe == probe), None)
    if first is None:
        return {}
    values = {role: values_of_role(first, role, read) for role in ROLES}
    return {role: fmean(of_blocks) for role, of_blocks in values.items() if of_blocks}


def means_over_runs(result: StudyResult, metric: str, *, is_share: bool) -> list[Figure]:
    """Return each role's mean over the seeds, with its t-interval; that of a share ends at 0 and 1."""
    values: dict[str, list[float]] = {}
    for part in result.parts:
        for run in part.runs:
            for role, value in run.observed.items() if run.ended_well() else ():
                values.setdefault(role, []).append(value)
    figures = [interval_figure(metric, role, mean_interval(of_runs)) for role, of_runs in values.items()]
    if not is_share:
        return figures
    return [
        figure.model_copy(update={"low": max(figure.low, 0.0), "high": min(figure.high, 1.0)})
        if figure.low is not None and figure.high is not None
        else figure
        for figure in figures
    ]
