"""Checks of the way to a console: names, ports, certificate, clock, proxies, this PC's own port. Event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit
from urllib.request import getproxies

from websockets.exceptions import ConnectionClosed

from agent.doctor.findings import Finding, fine, problem, unknown
from agent.link.errors import EnrolmentError
from agent.link.identity import server_hostname
from agent.link.pinning import verified_connection
from agent.link.proxies import proxy_hosts

WAIT_S = 5.0
MAX_SKEW_S = 300.0
"""What certificates and tickets forgive, with room to spare."""


async def check_address(url: str) -> list[Finding]:
    """Does the name resolve, does something answer on the port?"""
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 443
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(WAIT_S):
            found = await loop.getaddrinfo(host, port, type=1)
    except (OSError, TimeoutError):
        return [problem("name", f"{host} has no address", "Check the name in DNS, and that this PC is in the network.")]
    addresses = ", ".join(dict.fromkeys(str(entry[4][0]) for entry in found))
    resolved = fine("name", f"{host} is {addresses}")
    try:
        async with asyncio.timeout(WAIT_S):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        how = "nothing answers (a firewall drops it)" if isinstance(error, TimeoutError) else f"refused ({error})"
        advice = f"Start the console, or let TCP {port} to {host} through the firewalls on the way."
        return [resolved, problem("port", f"{host}:{port}: {how}", advice)]
    writer.close()
    with contextlib.suppress(OSError, ssl.SSLError):
        await writer.wait_closed()
    return [resolved, fine("port", f"{host}:{port} answers")]


async def check_console(
    url: str, fleet_id: str, authorities_pem: bytes, now: Callable[[], float] = time.time
) -> list[Finding]:
    """Does the fleet's console answer there, with a certificate that holds, and do the clocks agree?"""
    try:
        async with verified_connection(url, fleet_id, authorities_pem) as console:
            skew_s = now() - console.hello.now_s
    except EnrolmentError as error:
        issuer = await _issuer(url, fleet_id)
        who = f" Its certificate comes from {issuer}." if issuer else ""
        advice = (
            "If a proxy or firewall inspects TLS, exempt the console; else check this PC's clock, or enrol it again."
        )
        return [problem("certificate", f"{error}{who}", advice)]
    except ConnectionClosed:
        return [unknown("certificate", f"{url} closed the connection", "Try again; the console may be restarting.")]
    holds = fine("certificate", f"{url} is the console of the fleet {fleet_id}")
    if abs(skew_s) > MAX_SKEW_S:
        said = f"this PC is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the console"
        return [holds, problem("clock", said, "Let both PCs take their time from the same server.")]
    return [holds, fine("clock", f"{abs(skew_s):.1f} s from the console's")]


async def _issuer(url: str, fleet_id: str) -> str:
    """Return who issued the certificate that is shown there; empty if none is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent: the certificate is what we came to see
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 443
    try:
        async with asyncio.timeout(WAIT_S):
            name = server_hostname(fleet_id)
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    except (OSError, TimeoutError):
        return ""
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    shown = tls.getpeercert(binary_form=True)
    writer.close()
    with contextlib.suppress(OSError, ssl.SSLError):
        await writer.wait_closed()
    from cryptography import x509

    return repr(x509.load_der_x509_certificate(shown).issuer.rfc4514_string()[:120]) if shown else ""


def check_proxy(urls: Sequence[str], proxies: Callable[[], dict[str, str]] = getproxies) -> list[Finding]:
    """Is a proxy set? Links go past it, so the way without it must be open."""
    known = proxy_hosts(proxies())
    if not known:
        return [fine("proxy", "none is set")]
    hosts = ", ".join(sorted(urlsplit(url).hostname or "" for url in urls))
    said = f"{', '.join(known)} is set; links to {hosts} go past it"
    return [fine("proxy", f"{said}, so TCP must be open without it")]


async def check_own_port(host: str, first: int, last: int) -> list[Finding]:
    """Is a port free for other PCs? Whether firewalls let them in shows on the console, link by link."""
    for port in range(first, last + 1):
        try:
            server = await asyncio.start_server(lambda reader, writer: writer.close(), host, port)
        except OSError:
            continue
        server.close()
        await server.wait_closed()
        bound = f"TCP {first} to {last}" if last else "TCP"
        return [fine("firewall", f"a port is free on {host}; to be reached by other PCs, allow {bound} inbound")]
    advice = "Free one, or choose others with direct_ports in agent.toml; without it the console relays."
    return [problem("firewall", f"no port of {first} to {last} is free on {host}", advice)]
