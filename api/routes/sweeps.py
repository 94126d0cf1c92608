"""Sweeps over REST: what a sweep found, and the comparison that follows from it."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.routes.context import BenchDependency, ExperimentIdPath, problems
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.sweeps.records import SweepReport

router = APIRouter(prefix="/experiments", tags=["sweeps"])

SeedCount = Annotated[int, Query(ge=1, le=256, description="How many fresh seeds the comparison has.")]


@router.get("/{experiment_id}/sweep", responses=problems(404, 409))
def sweep(experiment_id: ExperimentIdPath, bench: BenchDependency) -> SweepReport:
    """A sweep's trials, the best one of each optimizer, and which hyperparameters mattered; 409 for other kinds."""
    return bench.sweep(experiment_id)


@router.get("/{experiment_id}/sweep/comparison", responses=problems(404, 409))
def sweep_comparison(experiment_id: ExperimentIdPath, bench: BenchDependency, seeds: SeedCount = 3) -> ComparisonSpec:
    """The specification of a comparison of the best trials over fresh seeds, to be submitted as it is or changed."""
    return bench.sweep_comparison(experiment_id, seeds)
