"""The api process: its composition root. It loads no torch, ray or mlflow and holds no run's state in memory."""

import gc
import resource
import socket

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.middleware.connections import MOST_CONNECTIONS, BoundedProtocol
from api.middleware.forwarded import ForwardedMiddleware
from api.processes.address import require_keys
from api.processes.lifetime import stop_with_parent
from orchestrator.logs import configure_logs
from orchestrator.services.composition import compose_services
from orchestrator.settings import Settings
from orchestrator.store.database import Database

_OPEN_FILES = resource.RLIMIT_NOFILE
GRACEFUL_SECONDS = 3
"""Open event streams are cut after this when the process is asked to end."""


def serve(settings: Settings, listener: socket.socket, *, watch_stdin: bool) -> None:
    """Migrate the database, then answer on `listener` until asked to end."""
    configure_logs("api")
    database = Database(settings.resolved_database_url())
    database.migrate()
    services = compose_services(database, settings)
    server: uvicorn.Server
    require_keys(settings, services.keyring)
    app = create_app(
        services,
        allowed_hosts=allowed_hosts(settings),
        stopping=lambda: server.should_exit,
        requests_a_second=settings.requests_a_second,
    )
    # What lives as long as the process is never garbage: looking through its many objects would stop every thread,
    # now and then.
    gc.collect()
    gc.freeze()
    BoundedProtocol.most_connections = min(MOST_CONNECTIONS, _open_files(2 * MOST_CONNECTIONS) // 2)
    server = uvicorn.Server(server_config(app, settings.root_path))

    def stop() -> None:
        server.should_exit = True

    if watch_stdin:
        stop_with_parent(stop)
    server.run(sockets=[listener])


def server_config(app: FastAPI, root_path: str = "") -> uvicorn.Config:
    """Return the server configuration of `app`, which a proxy that sends no prefix publishes below `root_path`."""
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        proxy_headers=False,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
    )
    config.app = ForwardedMiddleware(app, config.forwarded_allow_ips, root_path)
    return config


def _open_files(wanted: int) -> int:
    """Return the limit of open files of this process: `wanted` if the system allows it; most begin with 1,024."""
    soft, hard = (wanted if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(_OPEN_FILES))
    if soft < wanted:
        resource.setrlimit(_OPEN_FILES, (min(wanted, hard), resource.getrlimit(_OPEN_FILES)[1]))
    return max(soft, min(wanted, hard))


def allowed_hosts(settings: Settings) -> tuple[str, ...]:
    """Return the host names that a browser may use: loopback, the address that we listen on, and the operator's."""
    return tuple(dict.fromkeys(["127.0.0.1", "localhost", "[::1]", settings.host, *settings.further_hosts()]))
