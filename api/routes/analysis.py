"""Analyses over REST: scaling laws and profiles of several experiments, sweeps, the findings of studies."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator

from api.records import Page
from api.routes.context import ID_PATTERN, ExperimentIdPath, JsonRoute, State, problems
from orchestrator.analysis.laws.records import FitReport, FormName
from orchestrator.analysis.laws.targets import is_target
from orchestrator.analysis.profiles import ProfileReport
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.fields import MOST_SEEDS
from orchestrator.services.analysis import MOST_EXPERIMENTS
from orchestrator.studies.records import StudySummary
from orchestrator.sweeps.records import SweepReport

router = APIRouter(route_class=JsonRoute)

ExperimentIds = Annotated[
    list[Annotated[str, Query(pattern=ID_PATTERN)]],
    Query(alias="experiment", min_length=1, max_length=MOST_EXPERIMENTS, description="Ids; repeat the parameter."),
]
LawFormQuery = Annotated[
    FormName | None,
    Query(description="n: E + A N^-alpha; n0: without E; d, d0: in tokens; nd: both. Default: what fits."),
]
Predict = Annotated[
    list[Annotated[str, AfterValidator(is_target)]],
    Query(
        max_length=32,
        description="Models, or numbers of parameters, to predict the loss at: at the one budget that all sizes had, "
        "else at the largest model's tokens per parameter. Without a law nothing is predicted.",
    ),
]
SeedCount = Annotated[int, Query(ge=1, le=MOST_SEEDS, description="How many fresh seeds the comparison has.")]
StudyName = Annotated[str, Path(pattern=ID_PATTERN)]


@router.get("/fits", tags=["several experiments"], responses=problems(404, 409, 422))
def fits(
    state: State,
    ids: ExperimentIds,
    form: LawFormQuery = None,
    predict: Predict = [],  # noqa: B006 — FastAPI copies it
) -> FitReport:
    """Fit scaling laws of every candidate over several experiments, with intervals and verdicts."""
    return state.services.analysis.fit(ids, form=form, predict=predict)


@router.get("/profiles", tags=["several experiments"], responses=problems(404, 409, 422))
def profile(state: State, ids: ExperimentIds) -> ProfileReport:
    """Score every candidate over the workloads of several comparisons."""
    return state.services.analysis.profile(ids)


@router.get("/experiments/{experiment_id}/sweep", tags=["sweeps"], responses=problems(404, 409))
def sweep(experiment_id: ExperimentIdPath, state: State) -> SweepReport:
    """Return a sweep's trials, each optimizer's best, and which hyperparameters mattered; 409 for other kinds."""
    return state.services.analysis.sweep(experiment_id)


@router.get("/experiments/{experiment_id}/sweep/comparison", tags=["sweeps"], responses=problems(404, 409))
def sweep_comparison(experiment_id: ExperimentIdPath, state: State, seeds: SeedCount = 3) -> ComparisonSpec:
    """Return the specification of a comparison of the best trials on new seeds; 409 before the sweep has ended."""
    return state.services.analysis.sweep_comparison(experiment_id, seeds)


@router.get("/studies", tags=["studies"])
def studies(state: State) -> Page[StudySummary]:
    """List the studies with their plans, experiments and findings, in the paper's order."""
    return Page(items=state.studies.summaries())


@router.get("/studies/{name}", tags=["studies"], responses=problems(404))
def study(name: StudyName, state: State) -> StudySummary:
    """Return a study. To run it, submit each experiment's `spec` under its `key` that has no `experiment_id` yet."""
    return state.studies.get(name)
