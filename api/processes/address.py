"""The address of a service: its socket, whether it may listen there, and whether it answers."""

import socket
from ipaddress import ip_address

from orchestrator.errors import OrchestratorError
from orchestrator.settings import Settings
from orchestrator.store.admin.keyring import Keyring


class ServiceError(OrchestratorError):
    """The embedded service could not be started or kept up."""


class OpenServiceError(OrchestratorError):
    """The service would be open to everybody on the network."""


def require_keys(settings: Settings, keyring: Keyring) -> None:
    """Raise `OpenServiceError` if the service could be reached from elsewhere and has no keys."""
    strange = next((name for name in (settings.host, *settings.further_hosts()) if not is_loopback(name)), None)
    if strange is not None and not keyring.has_keys():
        verb = "to listen on" if strange == settings.host else "to answer to the name"
        raise OpenServiceError(
            f"refusing {verb} {strange}: the service has no keys, so everybody who reaches it could use it; make one "
            "with `adapm-bench keys create --scope admin --label <who>` on this data folder, or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches that address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raises `ServiceError` if the port is taken or the host is not ours."""
    # With the protocol named, asyncio sets TCP_NODELAY on every connection; without, each answer waits 40 ms.
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        raise ServiceError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another port with --port, or 0 for any"
        ) from error
    return listener


def answers(url: str, path: str = "/healthz") -> bool:
    """Return whether the service at `url` is there and reaches its database."""
    import httpx2  # a client, which the service itself has no use for

    try:
        # A proxy of the environment is not meant for this machine's own addresses; reading certificates, which only
        # HTTPS needs, takes longer than all of the rest.
        https = url.startswith("https:")
        return httpx2.get(f"{url}{path}", timeout=2.0, trust_env=False, verify=https).status_code == 200
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return False
