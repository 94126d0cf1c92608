"""`adapm-bench dispatcher`: the dispatcher process alone, Ray and the export to MLflow."""

import os
from typing import Annotated

import typer

from api.cli.settings import Data, RayAddress, Slots, WatchStdin, environment_settings
from api.processes.dispatcher import dispatch
from orchestrator.logs import keep_standard_streams


def dispatcher(
    service_url: Annotated[str, typer.Option(help="Where workers reach the api.")],
    data: Data = None,
    slots: Slots = None,
    ray_address: RayAddress = None,
    name: Annotated[str | None, typer.Option(help="Who this is; default: made anew at each start.")] = None,
    watch_stdin: WatchStdin = False,
) -> None:
    """Run the dispatcher process alone: Ray and the export to MLflow."""
    keep_standard_streams()
    settings = environment_settings(data_folder=data, slots=slots, ray_address=ray_address)
    os.umask(settings.umask_bits())
    dispatch(settings, service_url, name=name, watch_stdin=watch_stdin)
