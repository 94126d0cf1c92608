"""This process's Ray: start, join or stop it.

Ray reads its environment while it is imported, and the path of its token depends on the data folder. So Ray is imported
in here after the environment is set, and modules that import it at their top are themselves imported after that.
"""

import os
import secrets
from pathlib import Path

from orchestrator.dispatch.ray_session import RaySession, close_session, open_session
from orchestrator.errors import ClusterError

OBJECT_STORE_BYTES = 100 * 2**20
"""The object store: nothing large travels through Ray, only specifications and one word as answer."""

NAMESPACE = "adapm-bench"

_embedded: list[RaySession] = []
"""This process's Ray: a process has one at most."""


def start_embedded_ray(data_folder: Path, cpus: int) -> None:
    """Start a Ray of this process's own, on loopback, with token authentication; it ends with this process.

    Raises `ClusterError`.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    # Ray's shared secret lies with our data, not in the home folder, readable by its owner alone.
    token = data_folder.resolve() / "ray_token"
    if not token.exists():
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
    # Despite its name this is what makes Ray listen on 127.0.0.1 instead of on every interface.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    import ray

    session = open_session(data_folder)
    try:
        ray.init(
            address="local",
            num_cpus=cpus,
            namespace=NAMESPACE,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            object_store_memory=OBJECT_STORE_BYTES,
            _temp_dir=str(session.temp_dir),
        )
    except Exception as error:  # Ray raises bare ones, for a machine that is too busy for instance
        close_session(session, data_folder)
        raise ClusterError(f"Ray did not start: {error}") from error
    _embedded.append(session)


def connect_to_ray(address: str) -> None:
    """Join the Ray cluster at that address (`host:port`); its machines need this package. Raises `ClusterError`."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if address.startswith(("127.", "localhost:")):
        # Otherwise Ray looks for a loopback cluster at this machine's other address, where it does not listen.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    import ray

    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    except (OSError, RuntimeError, ValueError, ConnectionError, ray.exceptions.RayError) as error:
        raise ClusterError(
            f"no Ray cluster at {address}: {error}; start one with `ray start --head`, or leave --ray-address out"
        ) from error


def stop_embedded_ray(data_folder: Path) -> None:
    """End Ray with every process of it, and remove its sockets and logs. Raises `ClusterError`."""
    import ray

    ray.shutdown()
    while _embedded:
        close_session(_embedded.pop(), data_folder)
