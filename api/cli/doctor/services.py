"""What the doctor sees of what the service relies on beside its database: Ray, MLflow and shared storage."""

import importlib
import importlib.metadata
import json
import os
import platform
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2

from api.cli.doctor.check import Check, fails, notice, passes
from api.cli.doctor.machine import shared_memory_free_bytes
from api.cli.doctor.settings import without_password
from orchestrator.dispatch.ray_process import OBJECT_STORE_BYTES
from orchestrator.dispatch.ray_session import folder_for_sockets
from orchestrator.errors import ClusterError
from orchestrator.settings import Settings
from worker.errors import RemoteFolderError
from worker.remote.folder import RemoteFolder
from worker.words import pluralize

CONNECT_SECONDS = 5.0
STORAGE_PROBE = b"Can be deleted: adapm-bench doctor checked whether it can write here."


def ray(settings: Settings) -> Iterator[Check]:
    """The Ray of the settings: the embedded one could start, or the cluster answers and is of our version."""
    try:
        ours = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        yield fails("Ray", "not installed", "make install")
        return
    yield embedded_ray(ours) if settings.ray_address is None else cluster(settings.ray_address, ours)


def embedded_ray(version: str) -> Check:
    """Whether a Ray of this machine's own has room for its sockets and its store of objects."""
    name = "Ray"
    try:
        folder_for_sockets()
    except ClusterError as error:
        found, _, way_out = str(error).partition("; ")
        return fails(name, f"{version}: {found}", way_out)
    free_bytes = shared_memory_free_bytes()
    if free_bytes is not None and free_bytes < OBJECT_STORE_BYTES:
        found = f"{version}, embedded; /dev/shm has {free_bytes // 2**20} MiB, so that its store is a file on the disk"
        return notice(name, found, "give it 256 MiB: `--shm-size=256m` for a container")
    return passes(name, f"{version}, embedded: starts with the service")


def cluster(address: str, ours: str) -> Check:
    """Whether the cluster answers at that address, lets us in, and is of our version."""
    name = "Ray"
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return fails(name, f"{address} is no address", "set ADAPM_BENCH_RAY_ADDRESS to host:port, mostly port 6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except socket.gaierror:
        return fails(name, f"no machine is called {host}", "correct the host in ADAPM_BENCH_RAY_ADDRESS")
    except TimeoutError:
        way = f"let this machine through the firewall to port {port}, or correct ADAPM_BENCH_RAY_ADDRESS"
        return fails(name, f"nothing answers at {address} within {CONNECT_SECONDS:.0f} s", way)
    except OSError as error:
        return fails(name, f"{address}: {error.strerror}", f"on {host}: ray start --head --port={port}")
    try:
        theirs, nodes = _ask_cluster(address)
    except Exception as error:  # noqa: BLE001 - Ray raises bare ones
        return fails(name, f"what listens at {address} does not answer as Ray: {_first_sentence(error)}", _TOKEN)
    if theirs["ray_version"] != ours:
        found = f"the cluster at {address} has Ray {theirs['ray_version']}, this machine {ours}"
        return fails(name, found, f"install one version on all machines: pip install ray=={theirs['ray_version']}")
    python = platform.python_version()
    if theirs["python_version"] != python:
        found = f"the cluster at {address} has Python {theirs['python_version']}, this machine {python}"
        return fails(name, found, "use one image, or one version of Python, on all machines")
    if nodes == 0:
        way = f"on every machine that trains: ray start --address={address}"
        return notice(name, f"{ours}, no node at {address}: runs wait", way)
    return passes(name, f"{ours}, {pluralize(nodes, 'node')} at {address}")


_TOKEN = "give this process the cluster's token: RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH"  # noqa: S105 - words


def _ask_cluster(address: str) -> tuple[dict[str, str], int]:
    """The cluster's versions and how many nodes it has: asked without becoming one, as `ray status` does."""
    from ray._common.usage.usage_constants import CLUSTER_METADATA_KEY  # loads Ray
    from ray._private.ray_constants import KV_NAMESPACE_CLUSTER

    client: Any = importlib.import_module("ray._raylet").GcsClient(address=address)
    said = client.internal_kv_get(CLUSTER_METADATA_KEY, namespace=KV_NAMESPACE_CLUSTER, timeout=CONNECT_SECONDS)
    alive = client.get_all_node_info(timeout=CONNECT_SECONDS)
    nodes = [each for each in alive.values() if each.state == 0]  # 0: alive, by Ray's GcsNodeInfo
    return json.loads(said), len(nodes)


def mlflow(settings: Settings) -> Iterator[Check]:
    """Whether the copy of all runs has somewhere to go; nothing of a comparison depends on it."""
    name = "MLflow"
    try:
        ours = importlib.metadata.version("mlflow")
    except importlib.metadata.PackageNotFoundError:
        yield fails(name, "not installed", "make install")
        return
    uri = settings.resolved_mlflow_uri()
    if uri.startswith(("http://", "https://")):
        yield mlflow_server(uri, ours)
        return
    if uri.startswith("sqlite:///") or "://" not in uri:
        file = Path(uri.removeprefix("sqlite:///"))
        above = next(path for path in file.absolute().parents if path.exists())
        if not os.access(file if file.exists() else above, os.W_OK):
            yield fails(name, f"{file} cannot be written", "let this user write it, or set ADAPM_BENCH_MLFLOW_URI")
            return
    yield passes(name, f"{ours}, into {without_password(uri)}")


def mlflow_server(uri: str, ours: str) -> Check:
    """Whether an MLflow server of about our version answers there."""
    name, shown = "MLflow", without_password(uri)
    start = "start it (mlflow server), or correct ADAPM_BENCH_MLFLOW_URI; what ends meanwhile is sent later"
    try:
        answer = httpx2.get(f"{uri.rstrip('/')}/version", timeout=CONNECT_SECONDS)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return fails(name, f"{shown}: {_first_sentence(error)}", start)
    theirs = answer.text.strip()
    if answer.status_code != 200 or not theirs[:1].isdigit() or len(theirs) > 40:
        return fails(name, f"{shown} answers {answer.status_code}, but not as MLflow does", start)
    if theirs.split(".")[0] != ours.split(".")[0]:
        way = f"run a server of MLflow {ours.split('.')[0]}, or here: pip install mlflow=={theirs}"
        return fails(name, f"{shown} is MLflow {theirs}, this machine's client {ours}", way)
    if theirs != ours:
        return notice(name, f"{shown}, {theirs}; this machine's client is {ours}", "use one version when it is easy")
    return passes(name, f"{shown}, {theirs}")


def _first_sentence(error: Exception) -> str:
    """Its first sentence: Ray's have pages of advice."""
    said = str(error).strip().splitlines()
    return said[0].partition(". ")[0] if said else type(error).__name__


def storage(settings: Settings) -> Iterator[Check]:
    """Each remote folder of the settings, with this process's keys."""
    urls = {"checkpoints": settings.checkpoint_url, "datasets": settings.dataset_url}
    if not any(urls.values()):
        yield passes("storage", "checkpoints and datasets stay in the data folder")
    for what, url in urls.items():
        if url is not None:
            yield storage_check(what, url)


def storage_check(what: str, url: str) -> Check:
    """Whether a small file can be written, listed, read and deleted there."""
    folder, name = RemoteFolder(f"{url}/doctor-{secrets.token_hex(4)}"), "probe"
    done = "written"
    try:
        folder.write(name, STORAGE_PROBE)
        done = "read back"
        if folder.sizes() != {name: len(STORAGE_PROBE)} or folder.read(name) != STORAGE_PROBE:
            found = f"{what}: {url} does not show what was written there"
            return fails("storage", found, "use storage that lists its files")
        done = "deleted"
        folder.remove([name])
    except RemoteFolderError as error:
        lines = str(error.__cause__ or error).strip().splitlines()
        reason = lines[0].rstrip(".") if lines else type(error.__cause__).__name__
        return fails("storage", f"{what}: nothing can be {done} at {url}: {reason}", _storage_hint(error))
    return passes("storage", f"{what}: {url}, written, read and deleted")


def _storage_hint(error: RemoteFolderError) -> str:
    """By the kind of what the storage's library raised."""
    cause = error.__cause__
    kinds = {kind.__name__ for kind in type(cause).__mro__}
    if "NoCredentialsError" in kinds or "PartialCredentialsError" in kinds:
        return "give this process keys: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or the machine's role"
    if isinstance(cause, PermissionError):
        return "correct the keys, or let them put, get, list and delete objects below that prefix"
    if isinstance(cause, FileNotFoundError):
        return "make the bucket, or correct its name in the setting"
    return "look at the network and at AWS_ENDPOINT_URL_S3, the storage's address where it is not Amazon's"
