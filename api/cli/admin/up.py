"""`adapm-bench up`: the whole service on this machine; `api` and `dispatcher`: its two processes."""

import gc
import os
import socket
import threading
from pathlib import Path
from typing import Annotated

import typer

from api.cli.console import complain
from api.cli.service import FAILED, environment_settings
from api.processes.lifetime import stop_on_signals
from orchestrator.errors import OrchestratorError
from orchestrator.logs import keep_standard_streams
from orchestrator.settings import Settings
from worker.errors import TracingError

Data = Annotated[Path | None, typer.Option("--data", help="Data folder; default: .adapm-bench in the current folder.")]
Host = Annotated[str | None, typer.Option(help="Address to listen on; others than loopback once the service has keys.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free one.")]
Slots = Annotated[int | None, typer.Option(min=1, help="CPUs that runs may occupy at once; default: all.")]
RayAddress = Annotated[str | None, typer.Option(help="An existing Ray cluster, host:port; default: an embedded Ray.")]
WatchStdin = Annotated[bool, typer.Option("--watch-stdin", help="End when standard input is closed.")]


def register(app: typer.Typer) -> None:
    """Add the verbs of this file."""
    app.command()(up)
    app.command(name="api", hidden=True)(api_process)
    app.command(name="dispatcher", hidden=True)(dispatcher_process)
    app.command(name="sweep-driver", hidden=True)(driver_process)


def up(
    data: Data = None,
    host: Host = None,
    port: Port = None,
    slots: Slots = None,
    ray_address: RayAddress = None,
) -> None:
    """Start the service: REST, dashboard, dispatcher with an embedded Ray, SQLite, MLflow. Ctrl-C stops it."""
    from api.processes.supervisor import Supervisor

    settings = read_settings(data=data, host=host, port=port, slots=slots, ray_address=ray_address)
    stop = threading.Event()
    try:
        with Supervisor(settings) as service:
            stop_on_signals(stop.set)
            print(f"dashboard and REST   {service.url}")
            print(f"data folder          {settings.data_folder.absolute()}")
            print("Ctrl-C stops the service; unfinished runs go on at its next start.", flush=True)
            while not stop.wait(0.2):
                service.check()
            print("stopping: workers write checkpoints", flush=True)
    except OrchestratorError as error:
        complain(f"error: {error}")
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def api_process(
    descriptor: Annotated[int | None, typer.Option("--socket", help="Inherited listening socket.")] = None,
    data: Data = None,
    host: Host = None,
    port: Port = None,
    watch_stdin: WatchStdin = False,
) -> None:
    """The api process alone: REST and dashboard."""
    keep_standard_streams()
    gc.disable()  # what imports make is no garbage: looking through it costs a tenth of the start; `serve` enables it
    from api.processes.api import serve
    from api.processes.supervisor import listen

    settings = read_settings(data=data, host=host, port=port)
    os.umask(settings.umask_bits())
    try:
        listener = socket.socket(fileno=descriptor) if descriptor is not None else listen(settings.host, settings.port)
        serve(settings, listener, watch_stdin=watch_stdin)
    except (OrchestratorError, TracingError) as error:
        complain(f"error: {error}")
        raise typer.Exit(FAILED) from error


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
    from api.processes.dispatcher import dispatch

    try:
        settings = read_settings(data=data, slots=slots, ray_address=ray_address)
        os.umask(settings.umask_bits())
        dispatch(settings, service_url, name=name, watch_stdin=watch_stdin)
    except (OrchestratorError, TracingError) as error:
        complain(f"error: {error}")
        raise typer.Exit(FAILED) from error


def driver_process() -> None:
    """The process of one sweep's driver; the dispatcher starts it."""
    keep_standard_streams()
    from api.processes.sweep_driver import drive

    drive()


def read_settings(
    *,
    data: Path | None = None,
    host: str | None = None,
    port: int | None = None,
    slots: int | None = None,
    ray_address: str | None = None,
) -> Settings:
    """The environment's settings with the given flags over them."""
    flags = {"data_folder": data, "host": host, "port": port, "slots": slots, "ray_address": ray_address}
    return environment_settings().model_copy(update={key: flag for key, flag in flags.items() if flag is not None})
