"""Whether the service answers and reaches its database."""

from fastapi import APIRouter

from api.records import Health
from api.routes.context import BenchDependency, problems

router = APIRouter(tags=["health"])


@router.get("/healthz", responses=problems(503))
def healthz(bench: BenchDependency) -> Health:
    """200 where everything works; 503 where the database cannot be used."""
    bench.healthy()
    return Health(hindrance=bench.hindrance())
