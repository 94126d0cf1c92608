"""`gradient-sparsity`: the share of rows or columns of a gradient whose norm is below 1 % of the largest."""

from collections.abc import Sequence

from orchestrator.studies.probes import first_by_role, means_over_runs
from orchestrator.studies.study import Numbers, StudyFigures
from worker.records.result import Observation


def observe(observations: Sequence[Observation]) -> Numbers:
    """Return role → share, of rows or of columns, whichever is larger."""
    return first_by_role(
        observations, "gradient-sparsity", lambda values: max(values["rows_near_zero"], values["columns_near_zero"])
    )


FIGURES = StudyFigures(
    observe=observe,
    measure=lambda _, result: means_over_runs(result, "share of rows or columns near zero", is_share=True),
)
