"""`gradient-sparsity`: which shares of a gradient's rows and columns are near zero, by the role of the block."""

from collections.abc import Sequence

from orchestrator.studies import probed
from orchestrator.studies.judges import roles_above
from orchestrator.studies.study import Numbers, Study
from worker.records.result import Observation

MOST = 0.5
"""The paper says "most of the columns/rows"."""
CLAIMED = ("embedding", "attention output")


def observe(observations: Sequence[Observation]) -> Numbers:
    """Role → the larger of the shares of rows and of columns near zero."""
    return probed.by_role(observations, "gradient-sparsity", lambda v: max(v["rows_near_zero"], v["columns_near_zero"]))


STUDY = Study(
    name="gradient-sparsity",
    title="Sparsity of gradients",
    question="Are most rows or columns of the gradients of embedding and attention output near zero?",
    claim="In embedding and attention output most rows or columns of the gradient are near zero, on GPT-2 124M at 10 % "
    "of its training.",
    source="appendix, figure of heatmaps",
    plans=probed.plans("adamw", probed.SHARED_KINDS),
    judge=roles_above(CLAIMED, MOST, "Share of rows or columns below 1 % of the largest norm"),
    observe=observe,
    caveats=("The paper shows a picture: near zero as less than 1 % of the largest norm, and most as half, are ours.",),
    axis="share near zero",
    order=90,
)
