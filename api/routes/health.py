"""How the service is: whether it answers and reaches its database, and what Prometheus reads."""

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from api.records import Health
from api.routes.context import MonitorDependency, app_state, problems

router = APIRouter(tags=["health"])

TEXT = {200: {"description": "Prometheus text format.", "content": {"text/plain": {}}}}


@router.get("/healthz", responses=problems(503))
def healthz(request: Request, monitor: MonitorDependency) -> Health:
    """200 where everything works; 503 where the database cannot be used."""
    app_state(request).services.database.check()
    return Health(hindrance=monitor.dispatch_blocker())


@router.get("/metrics", response_class=Response, responses={**TEXT, **problems(503)})  # type: ignore[dict-item]  # as in files.py
def metrics(request: Request) -> Response:
    """Queue, attempts, latencies, ingest and export lag for Prometheus; counts of the database are 5 s old at most."""
    return Response(generate_latest(app_state(request).meters.registry), media_type=CONTENT_TYPE_LATEST)
