"""`adapm-bench up`: the whole service on this machine; `api`, `dispatcher` and `sweep-driver`: its processes; `mlflow`:
MLflow's own pages over the copy of all runs in the data folder. Each of them loads what it needs and nothing else.
"""

import gc
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from api.cli.console import INTERRUPTED, fail
from api.cli.service import Data, Port, Slots, environment_settings, exit_on_errors
from api.processes.lifetime import stop_on_signals
from orchestrator.logs import keep_standard_streams
from worker.cpus import usable_cpus
from worker.errors import TracingError
from worker.words import pluralize

Host = Annotated[str | None, typer.Option(help="Address to listen on; anything but loopback needs a key first.")]
RayAddress = Annotated[str | None, typer.Option(help="An existing Ray cluster, host:port; default: an embedded Ray.")]
WatchStdin = Annotated[bool, typer.Option("--watch-stdin", help="End when standard input is closed.")]
MlflowPort = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes any free one.")]

MLFLOW_HOST = "127.0.0.1"
MLFLOW_ENVIRONMENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""Without its job runners the server takes a fraction of the memory and of the processes."""


def up(
    data: Data = None,
    host: Host = None,
    port: Port = None,
    slots: Slots = None,
    ray_address: RayAddress = None,
) -> None:
    """Start the service: REST, dashboard, dispatcher with an embedded Ray, SQLite, MLflow. Ctrl-C stops it."""
    from api.processes.supervisor import Supervisor  # each verb loads what it needs

    settings = environment_settings(data_folder=data, host=host, port=port, slots=slots, ray_address=ray_address)
    stop = threading.Event()
    try:
        with exit_on_errors(), Supervisor(settings) as service:
            stop_on_signals(stop.set)
            print(f"dashboard and REST   {service.url}")
            print(f"data folder          {settings.data_folder.absolute()}")
            if not settings.ray_address:
                print(f"slots for runs       {pluralize(settings.slots or usable_cpus(), 'CPU')}")
            print("Ctrl-C stops the service; unfinished runs continue at its next start.", flush=True)
            while not stop.wait(0.2):
                service.check()
            print("stopping: workers write checkpoints", flush=True)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def api_process(
    descriptor: Annotated[int | None, typer.Option("--socket", help="Inherited listening socket.")] = None,
    data: Data = None,
    host: Host = None,
    port: Port = None,
    watch_stdin: WatchStdin = False,
) -> None:
    """The api process alone: REST and dashboard."""
    keep_standard_streams()
    gc.disable()  # what imports make is no garbage: looking through it costs time; `serve` enables it
    from api.processes.address import listen
    from api.processes.api import serve  # loads FastAPI, with the garbage collector off

    settings = environment_settings(data_folder=data, host=host, port=port)
    os.umask(settings.umask_bits())
    with exit_on_errors(TracingError):
        listener = socket.socket(fileno=descriptor) if descriptor is not None else listen(settings.host, settings.port)
        serve(settings, listener, watch_stdin=watch_stdin)


def dispatcher_process(
    service_url: Annotated[str, typer.Option(help="Where workers reach the api.")],
    data: Data = None,
    slots: Slots = None,
    ray_address: RayAddress = None,
    name: Annotated[str | None, typer.Option(help="Who this is; default: made anew at each start.")] = None,
    watch_stdin: WatchStdin = False,
) -> None:
    """The dispatcher process alone: Ray and the export to MLflow."""
    keep_standard_streams()
    from api.processes.dispatcher import dispatch  # loads Ray

    settings = environment_settings(data_folder=data, slots=slots, ray_address=ray_address)
    os.umask(settings.umask_bits())
    with exit_on_errors(TracingError):
        dispatch(settings, service_url, name=name, watch_stdin=watch_stdin)


def driver_process() -> None:
    """The process of one sweep's driver; the dispatcher starts it."""
    keep_standard_streams()
    from api.processes.sweep_driver import drive  # loads Ray

    drive()


def mlflow(data: Data = None, port: MlflowPort = 5000) -> None:
    """Open MLflow's pages on the copy of all runs; Ctrl-C stops them. The service does not need them."""
    settings = environment_settings(data_folder=data)
    if settings.mlflow_uri is not None and settings.mlflow_uri.startswith("http"):
        print(f"runs are copied to the MLflow server at {settings.mlflow_uri}")
        return
    if settings.mlflow_uri is None and not (settings.data_folder / "mlflow.sqlite3").exists():
        fail(f"error: {settings.data_folder.absolute()} has no copies of runs yet; `adapm-bench up` writes them")
    from api.processes.address import listen  # loads the database

    with exit_on_errors(), listen(MLFLOW_HOST, port) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", settings.resolved_mlflow_uri()]
    command += ["--default-artifact-root", (settings.data_folder.resolve() / "mlflow").as_uri()]
    command += ["--host", MLFLOW_HOST, "--port", str(port), "--workers", "1"]
    log_path = settings.data_folder / "logs" / "mlflow.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    if status := _serve_mlflow(command, f"http://{MLFLOW_HOST}:{port}", log_path):
        fail(f"error: MLflow ended with status {status}; its log says why: {log_path}")


def _serve_mlflow(command: list[str], url: str, log_path: Path) -> int:
    """Run the server until it ends or Ctrl-C; its exit status, 0 where we ended it."""
    from api.processes.address import answers  # as above

    stop = threading.Event()
    stop_on_signals(stop.set)
    # A session of its own: Ctrl-C reaches us alone, and the server ends in order.
    with (
        log_path.open("ab") as log,
        subprocess.Popen(
            command, env=os.environ | MLFLOW_ENVIRONMENT, stdout=log, stderr=log, start_new_session=True
        ) as server,
    ):
        announced = False
        while server.poll() is None and not stop.wait(0.2):
            if not announced and answers(url, path="/health"):
                announced = True
                print(f"MLflow   {url}\nCtrl-C stops it.", flush=True)
        ended_by_us = server.poll() is None
        server.terminate()
        return 0 if ended_by_us else server.wait()
