"""What the studies on probes share: the experiments that they watch, and which blocks stand for which role."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from statistics import fmean

from orchestrator.analysis.statistics import mean_interval
from orchestrator.studies import paper_setting, tiny_setting
from orchestrator.studies.evidence import Evidence, Scale
from orchestrator.studies.findings import Measure, ended_well, measure
from orchestrator.studies.study import Part, Plan
from worker.records.result import Observation
from worker.spec.parts import ProbeName, Probes

ROLES: Mapping[str, str] = {
    "embedding": "*.wte.weight",
    "query": "*:query",
    "key": "*:key",
    "value": "*:value",
    "attention output": "*.attn.c_proj.weight",
    "MLP": "*.mlp.*.weight",
}
"""The paper's roles by GPT-2's names of blocks."""
PART = "GPT-2"
TENTH = {Scale.TINY: 200, Scale.PAPER: paper_setting.STEPS}
"""Steps of a training; the paper looks at a tenth of them."""


def plan(scale: Scale, optimizer: str, kinds: tuple[ProbeName, ...], *, window_steps: int = 1) -> Plan:
    """One candidate, watched from a tenth of its training on, at every further tenth.

    Studies that ask for the same share the experiment."""
    steps = TENTH[scale]
    probes = Probes(
        every_steps=steps // 10 if window_steps == 1 else steps // 2, window_steps=window_steps, kinds=kinds
    )
    if scale is Scale.TINY:
        work = tiny_setting.workload(steps=steps, probes=probes)
        spec = tiny_setting.comparison(
            f"probed {optimizer}", work, [tiny_setting.candidate(optimizer)], baseline=optimizer
        )
    else:
        model = "gpt2-124m"
        work = paper_setting.workload(model, steps=steps, probes=probes)
        spec = paper_setting.comparison(
            f"probed {optimizer}", work, [paper_setting.candidate(model, optimizer)], baseline=optimizer
        )
    return Plan(parts=(Part(name=PART, spec=spec),))


SHARED_KINDS: tuple[ProbeName, ...] = ("gradient-sparsity", "momentum-spectrum")
"""Of the studies that watch the same runs of AdamW."""


def plans(optimizer: str, kinds: tuple[ProbeName, ...], *, window_steps: int = 1) -> dict[Scale, Plan]:
    """The same at both scales."""
    return {scale: plan(scale, optimizer, kinds, window_steps=window_steps) for scale in Scale}


def by_role(
    observations: Sequence[Observation], probe: str, read: Callable[[Mapping[str, float]], float]
) -> dict[str, float]:
    """Role → mean over its blocks at the first step that was observed."""
    first = next((each for each in observations if each.probe == probe), None)
    if first is None:
        return {}
    found = {role: [read(v) for name, v in first.blocks.items() if fnmatchcase(name, p)] for role, p in ROLES.items()}
    return {role: fmean(values) for role, values in found.items() if values}


def mean_over_runs(evidence: Evidence) -> dict[str, Measure]:
    """Name of a figure → its mean over the seeds, with interval."""
    values: dict[str, list[float]] = {}
    for part in evidence.parts:
        for run in ended_well(part.runs):
            for name, value in run.observed.items():
                values.setdefault(name, []).append(value)
    return {name: measure(name, mean_interval(each)) for name, each in values.items()}
