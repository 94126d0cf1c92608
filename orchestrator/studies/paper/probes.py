"""`gradient-sparsity`, `momentum-spectrum`, `residual-stationarity`: what probes see in the blocks while GPT-2 trains.

The first two ask for the same runs of AdamW, and so share the experiment.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from statistics import fmean

from orchestrator.analysis.statistics import mean_interval
from orchestrator.studies import scales
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import (
    ClaimVerdict,
    Judgement,
    Measure,
    all_hold_together,
    ended_well,
    figure_sentence,
    incomplete,
    lies_above,
    measure,
    missing,
    opposite,
    together_notes,
)
from orchestrator.studies.scales import GPT2
from orchestrator.studies.study import Numbers, Plan, Study, StudyPart
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
STEPS = {StudyScale.TINY: 200, StudyScale.PAPER: scales.PAPER_STEPS}
"""Of a training; the paper looks at a tenth of them."""
SHARED_KINDS: tuple[ProbeName, ...] = ("gradient-sparsity", "momentum-spectrum")
"""Of the studies that watch the same runs of AdamW."""
MOST = 0.5
"""The paper says "most of the columns/rows", and "most of the energy"."""
SPARSE_ROLES = ("embedding", "attention output")
LOW_RANK_ROLES = ("query", "key", "MLP")
"""Where AdaPM keeps low-rank momentum."""
WINDOW_STEPS = 20
"""The paper's."""
MOST_DRIFT = 0.1
"""Quantiles that drift by less than a tenth within the window are said to agree; the paper shows a picture."""
QUANTILES = ("quantile_25", "quantile_50", "quantile_75", "quantile_95")


def _plans(optimizer: str, kinds: tuple[ProbeName, ...], *, window_steps: int = 1) -> dict[StudyScale, Plan]:
    """One candidate, watched from a tenth of its training on, at every further tenth."""
    found = {}
    for scale, steps in STEPS.items():
        every = steps // 10 if window_steps == 1 else steps // 2
        probes = Probes(every_steps=every, window_steps=window_steps, kinds=kinds)
        model = scales.TINY_MODEL if scale is StudyScale.TINY else "gpt2-124m"
        work = scales.workload(scale, model, steps=steps, probes=probes, evaluations=5, evaluation_sequences=64)
        chosen = [scales.candidate(scale, model, optimizer)]
        name = f"probed {optimizer}"
        spec = scales.comparison(scale, name, work, chosen, baseline=optimizer, seeds=scales.FEW_SEEDS)
        found[scale] = Plan(parts=(StudyPart(name=GPT2, spec=spec),))
    return found


def _values_by_role(
    observations: Sequence[Observation], probe: str, read: Callable[[Mapping[str, float]], float]
) -> dict[str, float]:
    """Role → mean over its blocks at the first step that was observed."""
    first = next((each for each in observations if each.probe == probe), None)
    if first is None:
        return {}
    found = {role: [read(v) for name, v in first.blocks.items() if fnmatchcase(name, p)] for role, p in ROLES.items()}
    return {role: fmean(values) for role, values in found.items() if values}


def _mean_over_runs(evidence: Evidence, comparisons: int = 1) -> dict[str, Measure]:
    """Name of a figure → its mean over the seeds, with an interval that is one of so many."""
    values: dict[str, list[float]] = {}
    for part in evidence.parts:
        for run in ended_well(part.runs):
            for name, value in run.observed.items():
                values.setdefault(name, []).append(value)
    return {name: measure(name, mean_interval(each, comparisons)) for name, each in values.items()}


def _mean_shares(evidence: Evidence, comparisons: int = 1) -> dict[str, Measure]:
    """As `_mean_over_runs`, of shares: bounds of t-intervals are clipped to [0, 1], beyond which no share lies."""
    found = _mean_over_runs(evidence, comparisons)
    return {
        role: each
        if each.low is None or each.high is None
        else each.model_copy(update={"low": max(each.low, 0.0), "high": min(each.high, 1.0)})
        for role, each in found.items()
    }


def _most_in_every_role(roles: Sequence[str], figure: str) -> Callable[[Evidence], Judgement]:
    """The judge of whether a share is most of the whole in every role. `figure`: what it is, for the sentence."""

    def judge(evidence: Evidence) -> Judgement:
        if lacking := incomplete(evidence, [GPT2]):
            return lacking
        found = _mean_shares(evidence)
        if any(role not in found for role in roles):
            return missing("no run that ended well was observed")
        shares = "; ".join(figure_sentence(each, 2) for each in found.values())
        measured = all_hold_together(
            lambda tests: [lies_above(each[role], MOST) for each in [_mean_shares(evidence, tests)] for role in roles],
            len(roles),
        )
        return Judgement(
            measured=measured,
            sentence=f"{figure}, at a tenth of the training: {shares}.",
            measures=tuple(found.values()),
            notes=together_notes(len(roles), measured),
        )

    return judge


GRADIENT_SPARSITY = Study(
    name="gradient-sparsity",
    title="Sparsity of gradients",
    question="Are most rows or columns of the gradients of embedding and attention output near zero?",
    claim="In embedding and attention output most rows or columns of the gradient are near zero, on GPT-2 124M at 10 % "
    "of its training.",
    source="appendix, figure of heatmaps",
    plans=_plans("adamw", SHARED_KINDS),
    judge=_most_in_every_role(SPARSE_ROLES, "Share of rows or columns below 1 % of the largest norm"),
    observe=lambda seen: _values_by_role(
        seen, "gradient-sparsity", lambda v: max(v["rows_near_zero"], v["columns_near_zero"])
    ),
    caveats=("The paper shows a picture: near zero as less than 1 % of the largest norm, and most as half, are ours.",),
    axis="share near zero",
    order=90,
)


MOMENTUM_SPECTRUM = Study(
    name="momentum-spectrum",
    title="Spectrum of momenta",
    question="Do few singular values hold most of the momentum's energy?",
    claim="In query, key and MLP blocks the top 5 % of the singular values hold most of the momentum's energy, on "
    "GPT-2 124M at 10 % of its training.",
    source="figure 2 of section 3.2",
    plans=_plans("adamw", SHARED_KINDS),
    judge=_most_in_every_role(LOW_RANK_ROLES, "Energy in the top 5 % of the singular values"),
    observe=lambda seen: _values_by_role(seen, "momentum-spectrum", lambda v: v["energy_top_5_percent"]),
    caveats=("Ours is the mean over all layers; the paper shows the tenth.",),
    axis="share of the energy in the top 5 %",
    order=100,
)


def residual_drifts(observations: Sequence[Observation]) -> Numbers:
    """Role → the largest drift of a quantile of |r| from the first to the second half of the first window."""
    seen = [each for each in observations if each.probe == "residual"][:WINDOW_STEPS]
    if len(seen) < WINDOW_STEPS:
        return {}
    half = WINDOW_STEPS // 2
    found = {}
    for role in LOW_RANK_ROLES:
        logs = [[_mean_log(each, role, quantile) for quantile in QUANTILES] for each in seen]
        drifts = [
            abs(fmean(row[place] for row in logs[half:]) - fmean(row[place] for row in logs[:half]))
            for place in range(len(QUANTILES))
        ]
        found[role] = max(drifts)
    return found


def _mean_log(observation: Observation, role: str, quantile: str) -> float:
    """The mean logarithm of a quantile over the blocks of a role."""
    values = [v[quantile] for name, v in observation.blocks.items() if fnmatchcase(name, ROLES[role])]
    return fmean(math.log(max(value, 1e-30)) for value in values) if values else 0.0


def _are_stationary(evidence: Evidence) -> Judgement:
    """In every role no quantile drifts by more than a tenth."""
    if lacking := incomplete(evidence, [GPT2]):
        return lacking
    found = _mean_over_runs(evidence)
    if any(role not in found for role in LOW_RANK_ROLES):
        return missing("no run that ended well was observed over a whole window")

    def answers(tests: int) -> list[ClaimVerdict]:
        means = _mean_over_runs(evidence, tests)
        return [opposite(lies_above(means[role], MOST_DRIFT)) for role in LOW_RANK_ROLES]

    measured = all_hold_together(answers, len(LOW_RANK_ROLES))
    drifts = "; ".join(figure_sentence(found[role], 3) for role in LOW_RANK_ROLES)
    return Judgement(
        measured=measured,
        sentence=f"Largest relative drift of a quantile of |r| within {WINDOW_STEPS} steps: {drifts}.",
        measures=tuple(found[role] for role in LOW_RANK_ROLES),
        notes=(
            "The quantiles are of the residuals' sizes: the mean, of which the theorem speaks, is not tested.",
            *together_notes(len(LOW_RANK_ROLES), measured),
        ),
    )


RESIDUAL_STATIONARITY = Study(
    name="residual-stationarity",
    title="Stationary residuals: assumption 1",
    question="Do the residuals of the low-rank momentum keep their distribution over short horizons?",
    claim="The distributions of r_t agree over windows of 20 steps.",
    source="assumption 1, figure 4b",
    plans=_plans("adapm", ("residual",), window_steps=WINDOW_STEPS),
    judge=_are_stationary,
    observe=residual_drifts,
    axis="relative drift of a quantile",
    order=110,
)
