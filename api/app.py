"""The web application: REST under `/v1`, pages under `/`, one way to answer errors, guards before everything.

    Metrics → SecurityHeaders → Audit → InternalError → HostAndOrigin → Head → Authentication → BodyLimit
    → Admission → Compression → routes → services

Around all of it the api process puts `ForwardedMiddleware`, which knows what proxies say.
Everything that the routes know comes from the `Services` that `create_app` is given; importing this loads no torch.
"""

from collections.abc import Callable
from importlib.metadata import version

from fastapi import FastAPI

from api.auth.callers import Callers, Leases
from api.middleware.admission import AdmissionMiddleware
from api.middleware.answers import (
    CompressionMiddleware,
    HeadMiddleware,
    InternalErrorMiddleware,
    SecurityHeadersMiddleware,
)
from api.middleware.audit import AuditMiddleware
from api.middleware.authentication import AuthenticationMiddleware, AuthState
from api.middleware.guards import LOOPBACK, BodyLimitMiddleware, HostAndOriginMiddleware
from api.middleware.metrics import Meters, MetricsMiddleware
from api.openapi import document_with_access
from api.problems import handle_errors
from api.routes import (
    analysis,
    attempts,
    catalog,
    experiments,
    external_runs,
    files,
    health,
    keys,
    login,
    reference,
    runs,
    webhooks,
)
from api.routes.context import AppState
from dashboards.data.reader import Reader
from dashboards.files.figures import FigureFiles
from dashboards.pages.routes import pages
from orchestrator.services.composition import Services
from orchestrator.settings import REQUESTS_A_SECOND
from orchestrator.studies.reports import Studies

NOUNS = (experiments, runs, files, analysis, attempts, catalog, external_runs, keys, webhooks)
"""Below `/v1`, in the order in which OpenAPI lists them."""


def create_app(
    services: Services,
    *,
    allowed_hosts: tuple[str, ...] = LOOPBACK,
    stopping: Callable[[], bool] = lambda: False,
    requests_a_second: float = REQUESTS_A_SECOND,
) -> FastAPI:
    """Return the application over the services, for requests that name one of `allowed_hosts`.

    `requests_a_second` is what one key may ask for, where the service has keys. `stopping` says whether the
    process is about to end, so that open streams end first.
    """
    app = FastAPI(
        title="AdaPM Bench",
        version=version("adapm-bench"),
        summary="Fair comparisons of memory-efficient LLM optimizers.",
        openapi_url="/v1/openapi.json",
        docs_url=None,  # FastAPI's pages load scripts from a CDN; routes/reference.py is ours
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # `Meters` has our metrics
    )
    studies = Studies(services.experiments, services.runs, services.analysis, services.storage.studies_folder())
    reader = Reader(services)
    app.state.bench = state = AppState(
        services=services,
        studies=studies,
        figure_files=FigureFiles(reader),
        meters=Meters(services.monitor),
        auth=AuthState(Callers(services.keyring), Leases(services.attempts.token_opens), requests_a_second),
        stopping=stopping,
    )
    for noun in NOUNS:  # each by itself: a router of routers is gone through once more for every request
        app.include_router(noun.router, prefix="/v1")
    app.include_router(health.router)
    app.include_router(reference.router)
    app.include_router(login.router)
    app.include_router(pages(services, studies, reader, stopping=stopping))
    handle_errors(app)
    # The last one added is the first to see a request.
    app.add_middleware(CompressionMiddleware)
    app.add_middleware(AdmissionMiddleware)
    app.add_middleware(BodyLimitMiddleware)
    app.add_middleware(AuthenticationMiddleware, auth=state.auth)
    app.add_middleware(HeadMiddleware)
    app.add_middleware(HostAndOriginMiddleware, allowed_hosts=allowed_hosts)
    app.add_middleware(InternalErrorMiddleware)
    app.add_middleware(AuditMiddleware, audit=services.audit)
    app.add_middleware(SecurityHeadersMiddleware)
    app.add_middleware(MetricsMiddleware, meters=state.meters)
    app.openapi = document_with_access(app.openapi)  # type: ignore[method-assign]  # FastAPI's own way to add to it
    return app
