"""What several experiments say together: scaling laws and performance profiles."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AfterValidator

from api.routes.context import ID_PATTERN, BenchDependency, problems
from orchestrator.analysis.laws.records import FitReport, FormName
from orchestrator.analysis.laws.targets import is_target
from orchestrator.analysis.profiles import ProfileReport

router = APIRouter(tags=["several experiments"])

MOST_EXPERIMENTS = 64
"""Each is read with all of its runs."""
Experiments = Annotated[
    list[Annotated[str, Query(pattern=ID_PATTERN)]],
    Query(alias="experiment", min_length=1, max_length=MOST_EXPERIMENTS, description="Ids; repeat the parameter."),
]
Form = Annotated[
    FormName | None,
    Query(description="n: E + A N^-alpha; n0: without E; d, d0: in tokens; nd: both. Default: what fits."),
]
Predict = Annotated[
    list[Annotated[str, AfterValidator(is_target)]],
    Query(
        max_length=32,
        description="Models, or numbers of parameters, to predict loss and memory at: at the one budget that all sizes "
        "had, else at the largest model's tokens a parameter. Without a law nothing is predicted.",
    ),
]


@router.get("/fits", responses=problems(404, 409, 422))
def fits(bench: BenchDependency, experiments: Experiments, form: Form = None, predict: Predict = []) -> FitReport:  # noqa: B006 — FastAPI copies it
    """Scaling laws of every candidate over experiments of several sizes, with bootstrap intervals and verdicts."""
    return bench.fit(experiments, form=form, predict=predict)


@router.get("/profiles", responses=problems(404, 409, 422))
def profile(bench: BenchDependency, experiments: Experiments) -> ProfileReport:
    """Performance profiles of every candidate over the workloads of several comparisons, integrated over tau."""
    return bench.profile(experiments)
