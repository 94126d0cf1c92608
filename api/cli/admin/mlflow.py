"""`adapm-bench mlflow`: MLflow's own pages over the copy of all runs in the data folder. Loopback only."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from api.cli.admin.up import Data, read_settings
from api.cli.console import complain
from api.cli.service import FAILED
from api.processes.lifetime import answers, stop_on_signals
from orchestrator.errors import OrchestratorError

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
    except OrchestratorError as error:
        complain(f"error: {error}")
        raise typer.Exit(FAILED) from error
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", settings.resolved_mlflow_uri()]
    command += ["--default-artifact-root", (settings.data_folder.resolve() / "mlflow").as_uri()]
    command += ["--host", HOST, "--port", str(port), "--workers", "1"]
    log_path = settings.data_folder / "logs" / "mlflow.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    if status := _serve(command, f"http://{HOST}:{port}", log_path):
        complain(f"error: MLflow ended with status {status}; its log says why: {log_path}")
        raise typer.Exit(FAILED)


def _serve(command: list[str], url: str, log_path: Path) -> int:
    """Run the server until it ends or Ctrl-C; its exit status, 0 where we ended it."""
    stop = threading.Event()
    stop_on_signals(stop.set)
    # A session of its own: Ctrl-C reaches us alone, and the server ends in order.
    with (
        log_path.open("ab") as log,
        subprocess.Popen(
            command, env=os.environ | ENVIRONMENT, stdout=log, stderr=log, start_new_session=True
        ) as server,
    ):
        said = False
        while server.poll() is None and not stop.wait(0.2):
            if not said and answers(url, path="/health"):
                said = True
                print(f"MLflow   {url}\nCtrl-C stops it.", flush=True)
        ended_by_us = server.poll() is None
        server.terminate()
        return 0 if ended_by_us else server.wait()


def _free_port(port: int) -> int:
    """The port itself where it is free, any free one for 0."""
    from api.processes.supervisor import listen

    listener = listen(HOST, port)
    found: int = listener.getsockname()[1]
    listener.close()
    return found
