"""`gradient-sparsity`: which shares of a gradient's rows and columns are near zero, by the role of the block."""

from collections.abc import Sequence

from orchestrator.studies import probed
from orchestrator.studies.evidence import Evidence, Scale
from orchestrator.studies.findings import Judgement, above, all_of, incomplete, missing, said
from orchestrator.studies.study import Numbers, Plan, Study
from worker.record import Observation

MOST = 0.5
"""The paper says "most of the columns/rows"."""
CLAIMED = ("embedding", "attention output")


def observe(observations: Sequence[Observation]) -> Numbers:
    """Role → the larger of the shares of rows and of columns near zero."""
    return probed.by_role(observations, "gradient-sparsity", lambda v: max(v["rows_near_zero"], v["columns_near_zero"]))


def _plan(scale: Scale) -> Plan:
    return probed.plan(scale, "adamw", ("gradient-sparsity", "momentum-spectrum"))


def judge(evidence: Evidence) -> Judgement:
    """In embedding and attention output more than half of the rows, or of the columns, are near zero."""
    if lacking := incomplete(evidence, [probed.PART]):
        return lacking
    found = probed.over_runs(evidence)
    if any(role not in found for role in CLAIMED):
        return missing("no run that ended well was observed")
    answers = [above(found[role], MOST) for role in CLAIMED]
    told = "; ".join(said(found[role], 2) for role in found)
    return Judgement(
        measured=all_of(answers),
        sentence=f"Share of rows or columns below 1 % of the largest norm, at a tenth of the training: {told}.",
        measures=tuple(found.values()),
    )


STUDY = Study(
    name="gradient-sparsity",
    title="Sparsity of gradients",
    question="Are most rows or columns of the gradients of embedding and attention output near zero?",
    claim="In embedding and attention output most rows or columns of the gradient are near zero, on GPT-2 124M at 10 % "
    "of its training.",
    source="appendix, figure of heatmaps",
    plans={scale: _plan(scale) for scale in Scale},
    judge=judge,
    observe=observe,
    caveats=("The paper shows a picture: near zero as less than 1 % of the largest norm, and most as half, are ours.",),
    axis="share near zero",
    order=90,
)
