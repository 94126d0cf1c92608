"""`adapm-bench up`: the whole service on this machine."""

import threading
from typing import Annotated

import typer

from api.cli.console import INTERRUPTED
from api.cli.settings import Data, Port, RayAddress, Slots, environment_settings
from api.processes.lifetime import stop_on_signals
from api.processes.supervisor import Supervisor
from worker.cpus import usable_cpus
from worker.words import pluralize

Host = Annotated[str | None, typer.Option(help="Address to listen on; anything but loopback needs a key first.")]


def up(
    data: Data = None,
    host: Host = None,
    port: Port = None,
    slots: Slots = None,
    ray_address: RayAddress = None,
) -> None:
    """Start the service: REST, dashboard, dispatcher with an embedded Ray, SQLite, MLflow. Ctrl-C stops it."""
    settings = environment_settings(data_folder=data, host=host, port=port, slots=slots, ray_address=ray_address)
    stop = threading.Event()
    try:
        with Supervisor(settings) as service:
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
