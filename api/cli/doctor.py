"""`adapm-bench doctor`: what this machine has, what is missing, and the way out of each trouble."""

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import typer
from pydantic import BaseModel

from api.cli.console import print_json
from api.cli.service import FAILED, Json, environment_settings
from orchestrator.settings import Settings

OLDEST_PYTHON = (3, 11)
LEAST_FREE_BYTES = 2 * 10**9
"""Token shards, checkpoints of tiny models and MLflow's store fit; larger models need more."""


class Check(BaseModel):
    """One thing that was looked at."""

    name: str
    ok: bool
    found: str
    way_out: str = ""
    """What to do about it; empty where all is well."""


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(doctor)


def doctor(json: Json = False) -> None:
    """Check this machine: Python, PyTorch, GPU, Ray, database, data folder, port."""
    settings = environment_settings()
    found: list[Check] = []
    for check in checks(settings):
        found.append(check)
        if not json:
            _say(check)
    if json:
        print_json(found)
    if not all(check.ok for check in found):
        raise typer.Exit(FAILED)


def checks(settings: Settings) -> Iterator[Check]:
    """Every check, one after the other: some take seconds."""
    looks: tuple[Callable[[], Check], ...] = (python, torch, gpu, lambda: installed("ray"), lambda: installed("mlflow"))
    for look in looks:
        yield look()
    yield data_folder(settings.data_folder)
    yield database(settings)
    yield port(settings)


def python() -> Check:
    """The interpreter's version."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= OLDEST_PYTHON:
        return Check(name="Python", ok=True, found=found)
    return Check(name="Python", ok=False, found=found, way_out="install Python 3.11 or newer")


def installed(package: str) -> Check:
    """Whether a package can be imported; it is not imported, which would take seconds."""
    if importlib.util.find_spec(package) is None:
        return Check(name=package, ok=False, found="not installed", way_out="make install")
    return Check(name=package, ok=True, found=importlib.metadata.version(package))


def torch() -> Check:
    """PyTorch, and the threads that it would use."""
    try:
        import torch as pytorch
    except (ImportError, OSError) as error:  # OSError: a shared library of a broken installation
        return Check(name="PyTorch", ok=False, found=f"cannot be imported: {error}", way_out="make install")
    return Check(name="PyTorch", ok=True, found=f"{pytorch.__version__}, {pytorch.get_num_threads()} threads")


def gpu() -> Check:
    """GPUs that PyTorch can use; none is fine, unless the machine has one."""
    import torch as pytorch

    drivers = _nvml_devices()
    if pytorch.cuda.is_available():
        names = [pytorch.cuda.get_device_name(index) for index in range(pytorch.cuda.device_count())]
        nvml = "NVML reads their memory" if drivers else "no NVML: process memory will not be measured"
        return Check(name="GPU", ok=True, found=f"{', '.join(names)}; {nvml}")
    if not drivers:
        return Check(name="GPU", ok=True, found="none; runs use the CPU")
    found = f"{', '.join(drivers)}, but this PyTorch cannot use CUDA"
    return Check(name="GPU", ok=False, found=found, way_out="install a CUDA build of PyTorch: pytorch.org/get-started")


def _nvml_devices() -> list[str]:
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        return [str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index))) for index in range(count)]
    except pynvml.NVMLError:
        return []


def data_folder(folder: Path) -> Check:
    """Whether the data folder can be written, and the free space there."""
    name, place = "data folder", folder.absolute()
    parent = next(path for path in (place, *place.parents) if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        way_out = f"make {parent} writable, or set ADAPM_BENCH_DATA_FOLDER to another folder"
        return Check(name=name, ok=False, found=f"{place} cannot be written", way_out=way_out)
    free_bytes = shutil.disk_usage(parent).free
    found = f"{place}{'' if place.exists() else ' (will be made)'}, {free_bytes / 1e9:.1f} GB free"
    if free_bytes < LEAST_FREE_BYTES:
        way_out = f"free {LEAST_FREE_BYTES / 1e9:.0f} GB, or set ADAPM_BENCH_DATA_FOLDER to a larger disk"
        return Check(name=name, ok=False, found=found, way_out=way_out)
    return Check(name=name, ok=True, found=found)


def database(settings: Settings) -> Check:
    """Whether the database answers and has our tables; a SQLite file that is not there yet is fine."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    from orchestrator.errors import StoreError
    from orchestrator.store.database import Database

    text, name = settings.resolved_database_url(), "database"
    try:
        url = make_url(text)
        shown = url.render_as_string(hide_password=True)
        if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
            return Check(name=name, ok=True, found=f"{shown} (`adapm-bench up` will make it)")
        store = Database(text)
        try:
            store.check()
        finally:
            store.close()
    except ArgumentError:
        return Check(name=name, ok=False, found="no database URL", way_out="set ADAPM_BENCH_DATABASE_URL, or unset it")
    except StoreError as error:
        return Check(name=name, ok=False, found=str(error), way_out="start the service, which migrates it")
    return Check(name=name, ok=True, found=shown)


def port(settings: Settings) -> Check:
    """Whether the service answers, or could listen."""
    from api.cli.service import service_url
    from api.client import Client, ClientError
    from api.supervisor import ServiceError, listen

    name, url = "service", service_url(None)
    try:
        with Client(url, retries=0, timeout_seconds=5.0) as client:
            client.health()
    except ClientError as error:
        if error.status is not None:
            way_out = "stop what answers there, or choose another port: ADAPM_BENCH_PORT"
            return Check(name=name, ok=False, found=f"{url} answers, but not as this service does", way_out=way_out)
    else:
        return Check(name=name, ok=True, found=f"answers at {url}")
    try:
        listen(settings.host, settings.port).close()
    except ServiceError as error:
        return Check(name=name, ok=False, found=str(error), way_out="choose another port: ADAPM_BENCH_PORT")
    return Check(name=name, ok=True, found=f"not running; port {settings.port} is free")


def _say(check: Check) -> None:
    print(f"{'✓' if check.ok else '✗'} {check.name:<12} {check.found}", flush=True)
    if check.way_out:
        print(f"  {'':<12} → {check.way_out}", flush=True)
