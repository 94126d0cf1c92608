"""Whether a service may listen where it is told to: without keys on loopback only, for there everybody is let in."""

from ipaddress import ip_address

from orchestrator.errors import OrchestratorError
from orchestrator.settings import Settings
from orchestrator.store.admin.keyring import Keyring


class OpenDoorError(OrchestratorError):
    """The service would be open to everybody on the network."""


def require_keys(settings: Settings, keyring: Keyring) -> None:
    """Raise `OpenDoorError` if the service could be reached from elsewhere and has no keys."""
    strange = next((name for name in (settings.host, *settings.further_hosts()) if not is_loopback(name)), None)
    if strange is not None and not keyring.any():
        verb = "to listen on" if strange == settings.host else "to answer to the name"
        raise OpenDoorError(
            f"refusing {verb} {strange}: the service has no keys, so everybody who reaches it could use it; make one "
            "with `adapm-bench keys create --scope admin --label <who>` on this data folder, or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
