"""The health of the service: whether it answers and reaches its database, and the metrics for Prometheus."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from api.records import Health
from api.routes.context import State, problems

router = APIRouter(tags=["health"])

TEXT = {200: {"description": "Prometheus text format.", "content": {"text/plain": {}}}}


@router.get("/healthz", responses=problems(503))
def healthz(state: State) -> Health:
    """Answer 200 if everything works, 503 if the database cannot be used."""
    state.services.database.check()
    return Health(hindrance=state.services.monitor.dispatch_blocker())


@router.get("/metrics", response_class=Response, responses={**TEXT, **problems(503)})  # type: ignore[dict-item]  # as in files.py
def metrics(state: State) -> Response:
    """Return queue, attempts, latencies, ingest and export lag for Prometheus."""
    return Response(generate_latest(state.meters.registry), media_type=CONTENT_TYPE_LATEST)
