"""The dispatcher process: its composition root. Ray, and a loop for each duty."""

import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import structlog

from api.processes.address import answers
from api.processes.lifetime import stop_on_signals, stop_with_parent
from orchestrator.dispatch.disk import wait_for_room
from orchestrator.dispatch.dispatcher import Dispatcher
from orchestrator.dispatch.ray_process import connect_to_ray, start_embedded_ray, stop_embedded_ray
from orchestrator.dispatch.webhook_sender import WebhookSender
from orchestrator.export.exporter import Exporter
from orchestrator.jobs import ExperimentId, LeasePolicy
from orchestrator.logs import configure_logs
from orchestrator.retention.checkpoints import Retention
from orchestrator.services.composition import compose_services
from orchestrator.services.follow_ups import FollowUps
from orchestrator.settings import Settings
from orchestrator.store.database import Database
from orchestrator.store.leadership import Duty, LeaderLoop, Leadership
from orchestrator.store.queue.queue import Queue
from orchestrator.sweeps.keeper import ROLE, DriverOrder, SweepKeeper
from orchestrator.webhooks.signing import SigningKey
from worker.cpus import usable_cpus

log = structlog.get_logger(__name__)


def dispatch(settings: Settings, service_url: str, *, name: str | None, watch_stdin: bool) -> None:
    """Dispatch and export until asked to end; then let the workers write checkpoints and leave.

    Of several dispatchers on one database one leads, and one exports. One that is started again under the `name` of a
    dead one goes on at once instead of waiting for its lease to run out.
    """
    configure_logs("dispatcher")
    stop = threading.Event()
    if watch_stdin:
        stop_with_parent(stop.set)
    if not wait_for_room(
        settings.folders_on_disk(), lambda reason: log.warning("waiting for room", reason=reason), stop
    ):
        return
    policy = LeasePolicy()
    database = Database(settings.resolved_database_url())
    database.migrate()
    services = compose_services(database, settings, policy)
    holder = name or f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(8)}"
    # One that cannot be closed, because the database is away, does not keep the others open.
    with ExitStack() as stack:
        exporter = Exporter(
            services.experiments,
            services.runs,
            database,
            settings.resolved_mlflow_uri(),
            settings.data_folder.resolve() / "mlflow",
            holder=holder,
        )
        start(stack, exporter, stop_seconds=10.0)
        key, find = SigningKey(services.storage.data_folder), partial(services.experiments.get_any, deleted_too=True)
        sender = WebhookSender(database, find, settings.webhook_policy(), key, holder=holder)
        start(stack, sender, stop_seconds=5.0)
        retention = Retention(
            database, settings.storage().runs_folder(), settings.keep_checkpoints, settings.checkpoint_url
        )
        start(stack, retention, stop_seconds=5.0)
        if settings.ray_address is not None:
            connect_to_ray(settings.ray_address)
        else:
            start_embedded_ray(settings.data_folder, settings.slots or usable_cpus())
        stack.callback(stop_embedded_ray, settings.data_folder)
        from orchestrator.dispatch.ray_runner import RayRunner  # Ray reads its environment while it is imported

        runner = RayRunner(service_url, detached=settings.ray_address is not None)
        start(stack, sweep_keeper(settings, database, holder, runner.address))
        # After Ray, which installs handlers of its own.
        stop_on_signals(stop.set)
        dispatcher = Dispatcher(
            Queue(database, policy),
            runner,
            Leadership(database, holder),
            service_answers=partial(answers, service_url),
            dispatch_blocker=services.monitor.dispatch_blocker,
            follow_up=FollowUps(database).follow,
        )
        loop = LeaderLoop(dispatcher)
        stack.callback(loop.close)
        log.info("dispatching", service_url=service_url)
        loop.run(stop)


def start(stack: ExitStack, duty: Duty, stop_seconds: float | None = None) -> None:
    """Have a duty done on a thread until the stack is closed, which waits for it for so long."""
    loop = LeaderLoop(duty, stop_seconds)
    loop.start()
    stack.callback(loop.close)


def sweep_keeper(settings: Settings, database: Database, holder: str, ray_address: Callable[[], str]) -> SweepKeeper:
    """Return the keeper that starts a process for each sweep, on the Ray that this process has joined."""
    folder = settings.data_folder.resolve()

    def order(sweep_id: ExperimentId) -> DriverOrder:
        return DriverOrder(
            sweep_id=sweep_id,
            database_url=settings.resolved_database_url(),
            ray_address=ray_address(),
            folder=str(folder / "sweeps" / sweep_id),
        )

    command = [sys.executable, "-m", "api.processes.sweep_driver"]
    return SweepKeeper(database, Leadership(database, holder, role=ROLE), command, order, folder / "logs")
