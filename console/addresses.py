"""What an address says about who can use it, and which addresses this PC has."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from urllib.parse import urlsplit

EVERYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, never bound here


def is_loopback(host: str) -> bool:
    """Whether a host's name or address means the PC of whoever uses it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_this_pc(url: str) -> bool:
    """Whether an address works on one PC only: that of its service."""
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def reach_text(url: str) -> str:
    """Say so if an address that is handed out works on the service's own PC only; empty: it works elsewhere as well."""
    if not is_this_pc(url):
        return ""
    return "The address in it works on this PC only; start the service with --host to be reached from others."


def default_urls(host: str, port: int) -> list[str]:
    """List the addresses agents can be told: the bound one, or this PC's own when bound to all."""
    if host not in EVERYWHERE:
        return [f"wss://[{host}]:{port}" if ":" in host else f"wss://{host}:{port}"]
    addresses = [own_address(), socket.gethostname()]
    return [f"wss://{address}:{port}" for address in dict.fromkeys(addresses)]


def own_address() -> str:
    """Return the address this PC has in the network its default route leads to; loopback without one."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # a documentation address: UDP connect only picks a route, nothing is sent
        return str(probe.getsockname()[0])
    return "127.0.0.1"
