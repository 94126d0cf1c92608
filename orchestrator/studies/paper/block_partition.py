"""`block-partition`: table 1, which blocks keep full, low-rank or no momentum, by rules on AdaPM's plan."""

import math

from orchestrator.studies import scales
from orchestrator.studies.evidence import CandidateOutcome, Evidence, StudyScale
from orchestrator.studies.findings import (
    MARGIN_NATS,
    Judgement,
    Measure,
    all_hold,
    difference,
    figure_sentence,
    incomplete,
    is_on_par,
    lies_within,
    loss_bounds,
    measure,
    missing,
)
from orchestrator.studies.scales import GPT2, Variant, ablation_plans
from orchestrator.studies.study import Study

FULL, NO_EM_O, ADAPM, V_LOW = "all full", "Em, O none", "AdaPM: Q, K, MLP low", "V low too"
RULES: dict[str, tuple[str, ...]] = {
    FULL: ("*=full",),
    NO_EM_O: ("*.attn.c_attn.weight:*=full", "*.mlp.*.weight=full"),
    ADAPM: (),
    V_LOW: ("*.attn.c_attn.weight:value=low-rank",),
}
"""In the words of `adapm-bench models --rule`; what no rule speaks of is as in AdaPM's own plan."""
VARIANTS = {label: Variant(rules=rules) for label, rules in RULES.items()}
LOSSES = {FULL: 2.962, NO_EM_O: 2.964, ADAPM: 2.997, V_LOW: 3.143}
"""Table 1's."""
MOST = {name: round(LOSSES[name] - LOSSES[FULL] + MARGIN_NATS, 3) for name in (NO_EM_O, ADAPM)}
"""What these may cost against full momentum, nats: the paper's difference, and what counts as none."""
LOW_RANK_VALUES = "V low too − AdaPM's"


def judge(evidence: Evidence) -> Judgement:
    """None for Em and O, and low rank for Q, K and MLP besides, cost no more than the paper says; low rank for V costs
    more than full momentum for it."""
    if lacking := incomplete(evidence, [GPT2]):
        return lacking
    (part,) = evidence.parts
    adapm, v_low = part.candidate(ADAPM), part.candidate(V_LOW)
    if adapm is None or v_low is None:
        return missing("a partition has no finite loss")
    of_values = _difference_bounds(v_low, adapm)
    paper = evidence.scale is StudyScale.PAPER
    measures = [
        measure(each.title, each.loss, claimed=LOSSES[each.candidate] if paper else None) for each in part.candidates
    ]
    measures += [
        difference(each).model_copy(
            update={"name": f"{each.title}, change", "claimed": round(LOSSES[each.candidate] - LOSSES[FULL], 3)}
        )
        for each in part.candidates
        if not each.is_baseline
    ]
    measures.append(_cost_of_low_rank_values(v_low, adapm, of_values))
    told = "; ".join(
        figure_sentence(difference(each), unit=" nats") for each in part.candidates if not each.is_baseline
    )
    answers = [is_on_par(part.candidate(name), margin=most) for name, most in MOST.items()]
    return Judgement(
        measured=all_hold([*answers, lies_within(of_values, MARGIN_NATS)]),
        sentence=f"Against full momentum everywhere: {told}. {figure_sentence(measures[-1], unit=' nats')}.",
        measures=tuple(measures),
        notes=(
            "The interval of the last difference is what the intervals of its two, which hold together, leave to it.",
        ),
    )


def _difference_bounds(one: CandidateOutcome, other: CandidateOutcome) -> tuple[float, float]:
    """Between what the difference of two candidates lies, by what each differs from the baseline by. Their intervals
    hold together, so that this one does; paired by seed it would be narrower."""
    (low, high), (other_low, other_high) = loss_bounds(one), loss_bounds(other)
    return low - other_high, high - other_low


def _cost_of_low_rank_values(v_low: CandidateOutcome, adapm: CandidateOutcome, bounds: tuple[float, float]) -> Measure:
    claimed = round(LOSSES[V_LOW] - LOSSES[ADAPM], 3)
    if v_low.difference is None or adapm.difference is None:
        return Measure(name=LOW_RANK_VALUES, value=None, claimed=claimed, note="no finite value")
    low, high = (each if math.isfinite(each) else None for each in bounds)
    mean = v_low.difference.mean - adapm.difference.mean
    n = min(v_low.difference.n, adapm.difference.n)
    return Measure(name=LOW_RANK_VALUES, value=mean, low=low, high=high, n=n, claimed=claimed)


STUDY = Study(
    name="block-partition",
    title="Which blocks need momentum",
    question="Which blocks can do without full momentum?",
    claim="GPT-2 124M, against full momentum everywhere (2.962): none for Em and O costs next to nothing (2.964), low "
    "rank for Q, K and MLP besides costs little (2.997), low rank for V as well costs more on top (3.143).",
    source="table 1",
    plans=ablation_plans("block-partition", VARIANTS, baseline=FULL),
    judge=judge,
    caveats=(
        scales.NO_STEPS,
        f"Judged is whether the first two cost no more than the paper says and {MARGIN_NATS} nats besides, "
        f"{MOST[NO_EM_O]} and {MOST[ADAPM]}, and whether low rank for V costs more than {MARGIN_NATS} on top of the "
        "second.",
    ),
    axis="validation loss and its change, nats",
    order=60,
)
