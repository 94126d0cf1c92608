"""`adapm-bench mlflow`: MLflow's own pages over the copy of all runs in the data folder. Loopback only."""

import os
import subprocess
import sys
import time
from typing import Annotated

import typer

from api.cli.console import complain
from api.cli.service import FAILED
from api.cli.up import Data, read_settings
from api.health import answers
from api.supervisor import ServiceError, listen

Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free one.")]

HOST = "127.0.0.1"
ENVIRONMENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""Without its job runners the server takes 0.4 GiB in two processes instead of 1.9 GiB in fifteen."""


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(mlflow)


def mlflow(data: Data = None, port: Port = 5000) -> None:
    """Open MLflow's pages on the copy of all runs. Ctrl-C stops them; the service itself needs none of it."""
    settings = read_settings(data=data)
    if settings.mlflow_uri is not None and settings.mlflow_uri.startswith("http"):
        print(f"runs are copied to the MLflow server at {settings.mlflow_uri}")
        return
    if settings.mlflow_uri is None and not (settings.data_folder / "mlflow.sqlite3").exists():
        complain(f"error: {settings.data_folder.absolute()} has no copies of runs yet; `adapm-bench up` makes them")
        raise typer.Exit(FAILED)
    try:
        port = _free_port(port)
    except ServiceError as error:
        complain(f"error: {error}")
        raise typer.Exit(FAILED) from error
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", settings.resolved_mlflow_uri()]
    command += ["--default-artifact-root", (settings.data_folder.resolve() / "mlflow").as_uri()]
    command += ["--host", HOST, "--port", str(port), "--workers", "1"]
    with subprocess.Popen(command, env=os.environ | ENVIRONMENT, stdout=subprocess.DEVNULL) as server:
        url = f"http://{HOST}:{port}"
        try:
            while server.poll() is None and not answers(url, path="/health"):
                time.sleep(0.2)
            if server.poll() is None:
                print(f"MLflow   {url}\nCtrl-C stops it.", flush=True)
            status = server.wait()
        except KeyboardInterrupt:
            server.terminate()
            raise typer.Exit(0) from None
    if status:
        complain(f"error: MLflow ended with status {status}")
        raise typer.Exit(FAILED)


def _free_port(port: int) -> int:
    """The port itself where it is free, any free one for 0."""
    listener = listen(HOST, port)
    found: int = listener.getsockname()[1]
    listener.close()
    return found
