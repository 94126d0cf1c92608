"""Studies over REST: what they claim, the experiments that answer them, and their findings."""

from typing import Annotated

from fastapi import APIRouter, Path

from api.records import Page
from api.routes.context import ID_PATTERN, BenchDependency, problems
from orchestrator.studies.records import StudySummary
from orchestrator.studies.reports import Studies

router = APIRouter(prefix="/studies", tags=["studies"])

StudyName = Annotated[str, Path(pattern=ID_PATTERN)]


@router.get("")
def studies(bench: BenchDependency) -> Page[StudySummary]:
    """Every study with its plans at both scales, its experiments and its findings, in the paper's order."""
    return Page(items=Studies(bench).all())


@router.get("/{name}", responses=problems(404))
def study(name: StudyName, bench: BenchDependency) -> StudySummary:
    """One study. To run it, submit each experiment's `spec` under its `key` that has no `experiment_id` yet."""
    return Studies(bench).one(name)
