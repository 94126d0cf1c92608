"""`block-partition`: table 1, which blocks keep full, low-rank or no momentum, by rules on AdaPM's plan."""

from orchestrator.studies import scales
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import (
    ClaimVerdict,
    Judgement,
    all_hold,
    difference,
    figure_sentence,
    incomplete,
    is_on_par,
    measure,
    worse,
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
"""In the words of `adapm-bench plan --rule`; what no rule speaks of is as in AdaPM's own plan."""
VARIANTS = {label: Variant(rules=rules) for label, rules in RULES.items()}
CLAIMED = {FULL: 2.962, NO_EM_O: 2.964, ADAPM: 2.997, V_LOW: 3.143}


def judge(evidence: Evidence) -> Judgement:
    """No momentum for Em and O costs nothing, low rank for Q, K and MLP little, low rank for V much."""
    if lacking := incomplete(evidence, [GPT2]):
        return lacking
    (part,) = evidence.parts
    answers = [is_on_par(part.candidate(NO_EM_O)), is_on_par(part.candidate(ADAPM)), worse(part.candidate(V_LOW))]
    paper = evidence.scale is StudyScale.PAPER
    measures = [
        measure(each.title, each.loss, claimed=CLAIMED[each.candidate] if paper else None) for each in part.candidates
    ]
    measures += [
        difference(each).model_copy(
            update={"name": f"{each.title}, change", "claimed": round(CLAIMED[each.candidate] - CLAIMED[FULL], 3)}
        )
        for each in part.candidates
        if not each.is_baseline
    ]
    told = "; ".join(
        figure_sentence(difference(each), unit=" nats") for each in part.candidates if not each.is_baseline
    )
    sentence = f"Against full momentum everywhere: {told}."
    notes = () if ClaimVerdict.MISSING not in answers else ("A partition has no finite loss.",)
    return Judgement(measured=all_hold(answers), sentence=sentence, measures=tuple(measures), notes=notes)


STUDY = Study(
    name="block-partition",
    title="Which blocks need momentum",
    question="Which blocks can do without full momentum?",
    claim="GPT-2 124M: all full 2.962; Em, O without momentum 2.964; Q, K, MLP low rank besides 2.997; V low rank too "
    "3.143.",
    source="table 1",
    plans=ablation_plans("block-partition", VARIANTS, baseline=FULL),
    judge=judge,
    caveats=(scales.NO_STEPS,),
    axis="validation loss and its change, nats",
    order=60,
)
