"""The checks of `adapm-bench doctor`.

`python -m api.cli.admin.checks NAME` makes one check in a process of its own: it prints what it found, and its exit
code is 1 where something is broken.
"""

import contextlib
import fcntl
import importlib.metadata
import json
import os
import platform
import re
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import sqlalchemy as sa

from api.cli.settings import URL_VARIABLE, environment_settings
from api.client.client import Client, ClientError
from api.processes.address import listen
from api.processes.data_folder import read_note
from orchestrator.dispatch.ray_session import folder_for_sockets
from orchestrator.errors import OrchestratorError
from orchestrator.settings import Settings
from orchestrator.store import migrations
from orchestrator.store.admin import maintenance
from orchestrator.store.database import Database
from worker.cpus import usable_cpus
from worker.errors import WorkerError
from worker.files import try_lock
from worker.remote.folder import RemoteFolder
from worker.words import pluralize

CONNECT_SECONDS = 5.0
WORST_SKEW_SECONDS = 5.0
"""Leases are counted by the database's clock alone; above this, pages and logs date one event differently."""
STORAGE_PROBE = b"Can be deleted: adapm-bench doctor checked whether it can write here."


class FaultError(OrchestratorError):
    """Something is broken, although nothing raised an exception."""


def data_folder(settings: Settings) -> str:
    """Write and lock a file in the data folder, or in the folder where it will be made, and measure the disk's room."""
    folder = settings.data_folder.absolute()
    parent = next(path for path in (folder, *folder.parents) if path.exists())
    with tempfile.NamedTemporaryFile(dir=parent, prefix=".doctor-") as probe, open(probe.name, "rb") as second:
        probe.write(bytes(2**20))  # a full quota shows only here
        probe.flush()
        os.fsync(probe.fileno())
        fcntl.flock(probe.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        if try_lock(second.fileno()):
            raise FaultError(f"the file system of {parent} gives one lock to two processes at once")
    free_bytes = shutil.disk_usage(parent).free
    if free_bytes < settings.free_bytes:
        raise FaultError(
            f"{parent} has {free_bytes / 1e9:.1f} GB free; no run starts below {settings.free_bytes / 1e9:.1f} GB "
            "(ADAPM_BENCH_FREE_BYTES)"
        )
    return f"{folder}{'' if folder.exists() else ' (will be made)'}, {free_bytes / 1e9:.1f} GB free, keeps locks"


def service(settings: Settings) -> str:
    """Ask the service whether it starts runs; where none is running, listen on its port."""
    note = read_note(settings.data_folder)
    url = os.environ.get(URL_VARIABLE) or (note and note.url)
    if not url:
        listen(settings.host, settings.port).close()
        return f"not running; port {settings.port} is free"
    with Client(url, retries=0, timeout_seconds=CONNECT_SECONDS) as client:
        hindrance = client.health().hindrance
    if hindrance is not None:
        raise FaultError(f"{url} answers, and starts no run: {hindrance}")
    return f"answers at {url}"


def database(settings: Settings) -> str:
    """Compare the schema with this version's, write a row as it was, and compare the clocks."""
    url = sa.make_url(settings.resolved_database_url())
    shown = url.render_as_string(hide_password=True)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        return f"{shown}, which `adapm-bench up` will make"
    if url.get_backend_name() == "postgresql":
        url = url.update_query_dict({"connect_timeout": f"{CONNECT_SECONDS:.0f}"})
    with contextlib.closing(Database(url.render_as_string(hide_password=False))) as store:
        revision, newest = maintenance.revision(store)
        if revision is not None and (unknown := migrations.unknown_schema(revision)) is not None:
            raise FaultError("; ".join(unknown))
        if revision != newest:
            raise FaultError(f"the schema of {shown} is {revision or 'missing'}, not this version's {newest}")
        with store.writing() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")
            asked_at = time.time()
            skew_seconds = abs(store.read_clock(connection) - asked_at)
            if skew_seconds > WORST_SKEW_SECONDS + time.time() - asked_at:
                raise FaultError(f"the clock of {shown} and this machine's are {skew_seconds:.1f} s apart")
    return f"{shown}, schema {revision}, takes writes"


def without_password(url: str) -> str:
    """Return `url` with stars instead of its password."""
    try:
        return sa.make_url(url).render_as_string(hide_password=True)
    except sa.exc.ArgumentError:
        return url


def storage(settings: Settings) -> str:
    """Write, list, read and delete a small file in each remote folder."""
    urls = [url for url in (settings.checkpoint_url, settings.dataset_url) if url is not None]
    for url in urls:
        folder = RemoteFolder(f"{url}/doctor-{secrets.token_hex(4)}")
        folder.write("probe", STORAGE_PROBE)
        if folder.sizes() != {"probe": len(STORAGE_PROBE)} or folder.read("probe") != STORAGE_PROBE:
            raise FaultError(f"{url} does not show the file that was written there")
        folder.remove(["probe"])
    return f"{', '.join(urls)}: takes files" if urls else "checkpoints and datasets stay in the data folder"


def mlflow(settings: Settings) -> str:
    """Ask MLflow's server for its version, or look whether its file can be written."""
    uri = settings.resolved_mlflow_uri()
    shown = without_password(uri)
    if uri.startswith(("http://", "https://")):
        answer = httpx2.get(f"{uri.rstrip('/')}/version", timeout=CONNECT_SECONDS)
        if answer.status_code != 200 or not re.fullmatch(r"\d[\w.+-]*", answer.text.strip()):
            raise FaultError(f"{shown} answers with status {answer.status_code}, but not as MLflow")
        server_version, client_version = answer.text.strip(), importlib.metadata.version("mlflow")
        if server_version.partition(".")[0] != client_version.partition(".")[0]:
            raise FaultError(f"{shown} is MLflow {server_version}, this machine's client {client_version}")
        return f"{shown}, MLflow {server_version}"
    if uri.startswith("sqlite:///") or "://" not in uri:
        file = Path(uri.removeprefix("sqlite:///")).absolute()
        if not os.access(next(path for path in (file, *file.parents) if path.exists()), os.W_OK):
            raise FaultError(f"{file} cannot be written")
    return shown


def nvml(_settings: Settings) -> str:
    """List the devices of NVIDIA's driver."""
    import pynvml  # loads NVML

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        if _has_nvidia_devices():
            raise
        return "no NVIDIA GPU on this machine"
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    names = [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    if not names:
        raise FaultError("the driver shows no device")
    return f"driver {pynvml.nvmlSystemGetDriverVersion()}: {', '.join(names)}"


def torch(_settings: Settings) -> str:
    """Multiply two matrices on every device that PyTorch sees."""
    import torch as pytorch  # loads torch

    cuda = pytorch.version.cuda
    build = f"{pytorch.__version__}, {f'CUDA {cuda}' if cuda else 'a CPU build'}"
    if _has_nvidia_devices() and not pytorch.cuda.is_available():
        if cuda:
            pytorch.cuda.init()  # type: ignore[no-untyped-call]  # torch's own; it raises the reason
        raise FaultError(f"{build}, can use no NVIDIA GPU of this machine")
    devices = [f"cuda:{index}" for index in range(pytorch.cuda.device_count())]
    for device in ("cpu", *devices):
        ones = pytorch.ones(8, 8, device=device)
        if (ones @ ones).sum().item() != 512.0:
            raise FaultError(f"{build}: a product of matrices is wrong on {device}")
    return f"{build}, {pluralize(usable_cpus(), 'usable CPU')}, {pluralize(len(devices), 'GPU')}: they calculate"


def _has_nvidia_devices() -> bool:
    return any(Path("/dev").glob("nvidia*"))


def ray(settings: Settings) -> str:
    """Find a folder for the sockets of an embedded Ray, or ask the cluster for its version and nodes."""
    version, address = importlib.metadata.version("ray"), settings.ray_address
    if address is None:
        folder_for_sockets()
        return f"{version}, starts with the service"
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()  # Ray would wait for 40 s
    from ray._common.usage.usage_constants import CLUSTER_METADATA_KEY  # loads Ray
    from ray._private.ray_constants import KV_NAMESPACE_CLUSTER

    client: Any = importlib.import_module("ray._raylet").GcsClient(address=address)
    metadata = client.internal_kv_get(CLUSTER_METADATA_KEY, namespace=KV_NAMESPACE_CLUSTER, timeout=CONNECT_SECONDS)
    cluster = json.loads(metadata)
    cluster_version = f"{cluster['ray_version']} and Python {cluster['python_version']}"
    own_version = f"{version} and Python {platform.python_version()}"
    if cluster_version != own_version:
        raise FaultError(f"the cluster at {address} has Ray {cluster_version}, this machine {own_version}")
    nodes = client.get_all_node_info(timeout=CONNECT_SECONDS).values()
    alive = sum(node.state == 0 for node in nodes)  # 0: alive, by Ray's GcsNodeInfo
    if not alive:
        raise FaultError(f"no node at {address}, so that runs wait; on each that trains: ray start --address={address}")
    return f"{version}, {pluralize(alive, 'node')} at {address}"


class CheckEntry(NamedTuple):
    """A check of this machine, and the remedy if it fails."""

    function: Callable[[Settings], str]
    """Returns what it found, or raises what is broken."""
    way_out: str


CHECKS: Mapping[str, CheckEntry] = {
    "data folder": CheckEntry(
        data_folder, "set ADAPM_BENCH_DATA_FOLDER to a folder of a local disk that this user may write, and make room"
    ),
    "service": CheckEntry(
        service, f"`adapm-bench up` starts one; ADAPM_BENCH_PORT chooses a free port, {URL_VARIABLE} another service"
    ),
    "database": CheckEntry(
        database,
        "`adapm-bench db upgrade` brings a schema up to date, `adapm-bench db check` names damage; for a server, look "
        "at its log and at ADAPM_BENCH_DATABASE_URL; NTP keeps clocks together",
    ),
    "storage": CheckEntry(
        storage, "look at the bucket's name, at AWS_ACCESS_KEY_ID and its secret, and at AWS_ENDPOINT_URL_S3"
    ),
    "MLflow": CheckEntry(
        mlflow, "start its server, or correct ADAPM_BENCH_MLFLOW_URI; runs that end meanwhile are sent later"
    ),
    "NVML": CheckEntry(nvml, "see that `nvidia-smi` works for this user and in this container"),
    "PyTorch": CheckEntry(
        torch, "install a build for this machine's driver (pytorch.org/get-started), and unset CUDA_VISIBLE_DEVICES"
    ),
    "Ray": CheckEntry(
        ray,
        "give all machines one version of Ray and the cluster's token (RAY_AUTH_TOKEN_PATH), and start its head: "
        "ray start --head; ADAPM_BENCH_RAY_ADDRESS is its host:port",
    ),
}
"""The checks by name, in the order of the answers."""


def answer(function: Callable[[Settings], str]) -> None:
    """Print what a check finds, or the first line of what it raises; ends this process with 0 or 1."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print on stdout is no answer
    try:
        text, status = function(environment_settings()), 0
    except Exception as error:  # noqa: BLE001 - whatever is raised is the answer
        line = (str(error).strip().splitlines() or [""])[0]
        is_own_error = isinstance(error, OrchestratorError | WorkerError | ClientError)
        text, status = line if is_own_error else f"{type(error).__name__}: {line}", 1
    print(text, file=output, flush=True)
    sys.exit(status)


if __name__ == "__main__":
    answer(CHECKS[sys.argv[1]].function)
