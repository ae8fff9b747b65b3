"""Proxies this PC is set to use. Links go past them, so they are named where a link fails for want of a way."""

from __future__ import annotations

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def proxy_hosts(proxies: dict[str, str] | None = None) -> list[str]:
    """List the hosts of the web proxies that are set, without what else their addresses say (passwords)."""
    known = getproxies() if proxies is None else proxies
    values = [value for kind, value in known.items() if kind in {"http", "https", "all"}]
    hosts = [urlsplit(value if "//" in value else f"//{value}").hostname or "" for value in values]
    return list(dict.fromkeys(host for host in hosts if host))


def proxy_hint(url: str) -> str:
    """Return a sentence about the proxy that others would take to `url`, with a space before it; empty without one."""
    host = urlsplit(url).hostname or ""
    hosts = proxy_hosts()
    if not hosts or host in {"localhost", "127.0.0.1", "::1"} or proxy_bypass(host):
        return ""
    return (
        f" This PC is set to use the proxy {' and '.join(hosts)}; Fallow does not, so the network must let it reach "
        f"{host} directly."
    )
