"""The plans that studies have in common: optimizers over their grids, or variants of one, at either scale.

tuned       optimizers over ×2 grids, then seeds at each winner
ablation    variants: at the tiny scale tuned likewise, at the paper's at its rate
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from optim.catalog import Scalar
from orchestrator.kinds.comparison import Candidate
from orchestrator.studies import paper_setting, tiny_setting
from orchestrator.studies.evidence import Scale
from orchestrator.studies.study import Part, Plan

PART = "GPT-2"
"""The part of studies that have one."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What differs between the candidates of an ablation."""

    options: Mapping[str, Scalar] = field(default_factory=dict)
    rules: tuple[str, ...] = ()


def tuned_comparison(
    name: str,
    optimizers: Sequence[str],
    scale: Scale,
    *,
    model: str,
    part: str = PART,
    seeds: tuple[int, ...] | None = None,
    baseline: str = "adamw",
    steps: int = tiny_setting.STEPS,
) -> Part:
    """Optimizers against one of them at equal tuning. `seeds`: instead of the paper's. `steps`: at the tiny scale."""
    if scale is Scale.TINY:
        chosen = [tiny_setting.tuned_candidate(each) for each in optimizers]
        spec = tiny_setting.comparison(
            name,
            tiny_setting.workload(model=model, steps=steps),
            chosen,
            baseline=baseline,
            tuning=tiny_setting.TUNING,
        )
    else:
        spec = paper_setting.comparison(
            name,
            paper_setting.workload(model),
            [paper_setting.tuned_candidate(model, each) for each in optimizers],
            baseline=baseline,
            seeds=seeds or paper_setting.SEEDS,
            tuning=paper_setting.TUNING,
        )
    return Part(name=part, spec=spec)


def ablation(
    name: str,
    variants: Mapping[str, Variant],
    scale: Scale,
    *,
    baseline: str,
    model: str = "gpt2-124m",
    part: str = PART,
    seeds: tuple[int, ...] | None = None,
) -> Part:
    """Variants of AdaPM by their labels. `model` and `seeds`: at the paper's scale; the tiny one has one of each."""
    if scale is Scale.TINY:
        chosen = [_variant(tiny_setting.tuned_candidate("adapm", label), each) for label, each in variants.items()]
        spec = tiny_setting.comparison(
            name, tiny_setting.workload(), chosen, baseline=baseline, tuning=tiny_setting.TUNING
        )
    else:
        chosen = [_variant(paper_setting.candidate(model, "adapm", label), each) for label, each in variants.items()]
        work = paper_setting.workload(model)
        spec = paper_setting.comparison(name, work, chosen, baseline=baseline, seeds=seeds or paper_setting.SEEDS)
    return Part(name=part, spec=spec)


def ablations(
    name: str, variants: Mapping[str, Variant], *, baseline: str, seeds: tuple[int, ...] | None = None
) -> dict[Scale, Plan]:
    """The same ablation at both scales."""
    found = {scale: ablation(name, variants, scale, baseline=baseline, seeds=seeds) for scale in Scale}
    return one_part(found[Scale.TINY], found[Scale.PAPER])


def one_part(tiny: Part, paper: Part) -> dict[Scale, Plan]:
    """The plans of a study with one experiment at each scale."""
    return {Scale.TINY: Plan(parts=(tiny,)), Scale.PAPER: Plan(parts=(paper,))}


def _variant(candidate: Candidate, variant: Variant) -> Candidate:
    fields = {"options": dict(variant.options), "rules": variant.rules}
    return Candidate.model_validate(candidate.model_dump() | fields)
