"""The table of factor solvers: what `solver="…"` names, and how many iterations a step each takes by default."""

from dataclasses import dataclass

from optim.factor_descent import gd, scaled_gd
from optim.low_rank import Solver, subspace, svd


@dataclass(frozen=True, kw_only=True)
class SolverEntry:
    """One way to find the factors of a low-rank momentum."""

    solve: Solver
    inner_iterations: int
    """Iterations a step where the user does not say."""


SOLVERS: dict[str, SolverEntry] = {
    "subspace": SolverEntry(solve=subspace, inner_iterations=1),  # docs/LOG.md: nearly as good as the exact SVD
    "scaled_gd": SolverEntry(solve=scaled_gd, inner_iterations=5),  # the paper's K
    "gd": SolverEntry(solve=gd, inner_iterations=5),  # the paper's K
    "svd": SolverEntry(solve=svd, inner_iterations=1),  # exact at once
}
