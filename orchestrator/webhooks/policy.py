"""Targets of webhooks: URLs that the operator names, and no address inside of a network that they do not name.

A name is looked up once, every address that it has is judged, and the connection goes to one of those: a name that
means something else a moment later (DNS rebinding) gains nothing.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self
from urllib.parse import SplitResult, unquote, urlsplit

from orchestrator.errors import OrchestratorError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
LookUp = Callable[[str, int], Awaitable[tuple[str, ...]]]

DEFAULT_PORTS = {"http": 80, "https": 443}
IPV6_UNICAST = ipaddress.ip_network("2000::/3")
"""All IPv6 addresses that IANA has given out for the internet. What lies outside is of one site or one link, or stands
for an IPv4 address, which this machine or a gateway would take to a private network: `::a.b.c.d` (RFC 4291, 2.5.5.1),
`::ffff:a.b.c.d` (mapped), `::ffff:0:a.b.c.d` (RFC 2765), 64:ff9b::/96 and 64:ff9b:1::/48 (NAT64), fec0::/10 (RFC 3879).
"""


class WebhookUrlError(OrchestratorError):
    """Webhooks may not go to this URL."""


class AddressError(OrchestratorError):
    """A name has no address that webhooks may go to."""


@dataclass(frozen=True, kw_only=True)
class WebhookPolicy:
    """The operator's policy; by default nothing is allowed."""

    prefixes: tuple[str, ...] = ()
    """URLs that allowed ones begin with: the same scheme, host and port, and the path or one below it."""
    networks: tuple[Network, ...] = ()
    """Private networks that may be reached all the same."""

    @classmethod
    def parse(cls, urls: str, networks: str) -> Self:
        """Return the policy of two settings, each with commas between its parts; raises `ValueError` with the way
        out."""
        return cls(prefixes=tuple(map(_prefix, _parts(urls))), networks=tuple(map(_network, _parts(networks))))

    def check(self, url: str) -> None:
        """Raise `WebhookUrlError` unless messages may be posted to the URL, as far as its text shows."""
        if not self.prefixes:
            raise WebhookUrlError("Webhooks are off; the operator names allowed URLs in ADAPM_BENCH_WEBHOOK_URLS.")
        parts = _split(url)
        if not any(_covers(urlsplit(prefix), parts) for prefix in self.prefixes):
            raise WebhookUrlError(
                f"{url[:200]!r} is not allowed; webhooks may go to URLs that begin with {', '.join(self.prefixes)}"
            )
        address = _address(parts.hostname or "")
        if address is not None and not self.permits(address):
            raise WebhookUrlError(f"{address} is an address of a network that the operator does not name: {_WAY_OUT}.")

    def permits(self, address: Address) -> bool:
        """Return whether a connection may go to the address."""
        if any(address in network for network in self.networks if network.version == address.version):
            return True
        if isinstance(address, ipaddress.IPv6Address) and (address not in IPV6_UNICAST or address.sixtofour):
            return False
        return address.is_global and not address.is_multicast

    async def resolve_address(self, url: str, look_up: LookUp) -> str:
        """Return the address that the URL's host has now; raises `AddressError` unless webhooks may go to all that it
        has."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        try:
            addresses = await look_up(host, _port(parts))
        except (OSError, UnicodeError) as error:
            raise AddressError(f"{host} cannot be looked up: {error}") from error
        refused = [text for text in addresses if not self.permits(ipaddress.ip_address(text))]
        if refused or not addresses:
            raise AddressError(f"{host} is {refused[0] if refused else 'nowhere'}: {_WAY_OUT}")
        return addresses[0]


_WAY_OUT = "ADAPM_BENCH_WEBHOOK_NETWORKS names the private networks that may be reached"


async def resolve_host(host: str, port: int) -> tuple[str, ...]:
    """Return the addresses of a host, as this machine sees them."""
    address_infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[0]).partition("%")[0] for *_, address in address_infos))


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _prefix(text: str) -> str:
    try:
        parts = _split(text)
    except WebhookUrlError as error:
        raise ValueError(str(error)) from error
    if parts.query:
        raise ValueError(f"{text!r} has a query; the beginning of a URL ends with its path")
    return text


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a network: {error}; give one like 10.1.0.0/16") from error


def _split(url: str) -> SplitResult:
    """Return the parts of a URL that means one thing to everybody who reads it; raises `WebhookUrlError`."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise WebhookUrlError(f"{url[:200]!r} is not a URL: {error}; give one like https://host/path") from error
    plain = url.isascii() and url.isprintable() and not any(letter in url for letter in ' \\"<>^`{|}')
    steps = unquote(unquote(parts.path)).replace("\\", "/").split("/")
    if (
        parts.scheme not in DEFAULT_PORTS
        or not parts.hostname
        or parts.username is not None
        or parts.fragment
        or port == 0
        or not plain
        or any(step.split(";")[0] in (".", "..") for step in steps)
    ):
        raise WebhookUrlError(
            f"{url[:200]!r} is not a URL for webhooks; give one like https://host/path, in ASCII, without a user, a "
            "fragment, or dots for a step"
        )
    return parts


def _covers(prefix: SplitResult, url: SplitResult) -> bool:
    """Return whether the URL lies at the prefix, or below it."""
    is_same_origin = (prefix.scheme, prefix.hostname, _port(prefix)) == (url.scheme, url.hostname, _port(url))
    root = prefix.path.rstrip("/")
    return is_same_origin and (url.path == prefix.path or url.path == root or url.path.startswith(f"{root}/"))


def _port(parts: SplitResult) -> int:
    return parts.port or DEFAULT_PORTS[parts.scheme]


def _address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
