"""`adapm-bench api`: the api process alone, REST and dashboard."""

import os
import socket
from typing import Annotated

import typer

from api.cli.settings import Data, Port, WatchStdin, environment_settings
from api.processes.address import listen
from api.processes.api import serve
from orchestrator.logs import keep_standard_streams


def api(
    descriptor: Annotated[int | None, typer.Option("--socket", help="Inherited listening socket.")] = None,
    data: Data = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Port = None,
    watch_stdin: WatchStdin = False,
) -> None:
    """Run the api process alone: REST and dashboard."""
    keep_standard_streams()
    settings = environment_settings(data_folder=data, host=host, port=port)
    os.umask(settings.umask_bits())
    listener = socket.socket(fileno=descriptor) if descriptor is not None else listen(settings.host, settings.port)
    serve(settings, listener, watch_stdin=watch_stdin)
