"""What an address says about who can use it. No I/O."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


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
