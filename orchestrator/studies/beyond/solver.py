"""`solver` (beyond the paper): algorithm 2 as printed against solvers of the low-rank problem that work."""

from orchestrator.studies import scales
from orchestrator.studies.evidence import Evidence
from orchestrator.studies.findings import (
    ClaimVerdict,
    Judgement,
    difference,
    differences,
    figure_sentence,
    incomplete,
    is_on_par,
)
from orchestrator.studies.scales import GPT2, Variant, ablation_plans
from orchestrator.studies.study import Study

SOLVERS = {name: Variant(options={"solver": name}) for name in ("svd", "subspace", "scaled_gd", "gd")}


def judge(evidence: Evidence) -> Judgement:
    """Gradient descent, the paper's, ends where the exact solver does."""
    if lacking := incomplete(evidence, [GPT2]):
        return lacking
    (part,) = evidence.parts
    answer = is_on_par(part.candidate("gd"))
    told = "; ".join(
        figure_sentence(difference(each), unit=" nats") for each in part.candidates if not each.is_baseline
    )
    notes: tuple[str, ...] = (
        "`gd` is algorithm 2 with a step size that cannot diverge; as printed it does (docs/LOG.md).",
    )
    if answer is ClaimVerdict.MISSING:
        notes = (*notes, "Gradient descent has no finite loss.")
    return Judgement(
        measured=answer, sentence=f"Against the exact solver: {told}.", measures=differences(part), notes=notes
    )


STUDY = Study(
    name="solver",
    title="Solvers of the low-rank problem",
    question="Does it matter how the low-rank momentum is found?",
    claim="Five steps of gradient descent on the factors, warm-started, are accurate enough.",
    source="section 4.2, algorithm 2",
    plans=ablation_plans("solver", SOLVERS, baseline="svd"),
    judge=judge,
    caveats=(scales.NO_STEPS,),
    axis="loss minus the exact solver's, nats",
    order=200,
)
