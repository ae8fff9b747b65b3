"""The agent's examination: which checks run, in which order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from agent.doctor import machine, network
from agent.doctor.findings import Check, Finding, examine, fine, in_thread, problem
from agent.doctor.peers import check_peers
from agent.link.approval import awaited
from agent.link.channel import Dialler
from agent.link.errors import EnrolmentError, IdentityMissing, KeyLocked, LinkError
from agent.link.identity import Identity, client_context, load_identity
from agent.link.keystore import Keystore
from agent.link.messages import BULK_PATH
from agent.link.renewal import diagnose
from agent.link.store import Store
from agent.seeding import DirectSetup, PeerDialler
from agent.settings import AgentSettings, SettingsError, load_settings, read_state
from agent.threads import finish_in_thread
from agent.volunteer.memory_book import MemoryBook
from agent.volunteer.policy import Policy
from shard_export.library.counts import counted


async def examine_agent(folder: Path, keystore: Keystore) -> list[Finding]:
    """Examine this PC. Takes as long as reading every model file once, and loading one layer."""
    try:
        settings = load_settings(folder)
    except SettingsError as error:
        settings, broken = AgentSettings(), [problem("settings", str(error), "Correct agent.toml.")]
    else:
        broken = []
    checks: list[tuple[str, Check]] = []
    try:
        identity = await asyncio.to_thread(load_identity, folder / "identity", keystore)
    except (LinkError, OSError) as error:
        broken.append(await finish_in_thread(partial(_unusable, error, folder)))
        checks.append(("proxy", in_thread(network.check_proxy, [])))
    else:
        checks += _network_checks(folder, identity, settings)
    memory = MemoryBook(
        folder, lambda: Policy(unattended=settings.volunteer == "always"), limit_bytes=settings.memory_mb << 20
    )
    checks += [
        ("disk", in_thread(machine.check_disk, folder)),
        ("memory", in_thread(machine.check_memory, memory)),
        ("device", in_thread(machine.check_devices)),
        ("files", in_thread(machine.check_store, folder)),
        ("token", lambda: machine.check_token(folder, settings.threads)),
        ("agent", in_thread(_check_running, folder)),
    ]
    return broken + await examine(checks)


def _unusable(error: LinkError | OSError, folder: Path) -> Finding:
    """Say what to do about an identity: one that is locked or out of reach is not lost, and needs no new one."""
    if isinstance(error, OSError):
        said = f"{error.filename or folder} cannot be read ({error.strerror or type(error).__name__})."
        return problem("identity", said, "Correct its rights or check the disk; this PC need not be enrolled again.")
    if isinstance(error, IdentityMissing):
        # A note that cannot be read is no reason to say less than that there is no identity.
        with contextlib.suppress(OSError):
            waiting = awaited(folder / "identity")
            if waiting is not None:
                said = f"an administrator has to approve this PC; its code is {waiting.device_code}"
                return problem("identity", said, "Tell them the code, and keep the agent running.")
    return problem("identity", str(error), "" if isinstance(error, KeyLocked) else "Enrol this PC: fallow-agent enrol")


def _network_checks(folder: Path, identity: Identity, settings: AgentSettings) -> list[tuple[str, Check]]:
    checks: list[tuple[str, Check]] = [("identity", lambda: _check_identity(identity))]
    for url in identity.urls:
        checks.append(("port", partial(network.check_address, url)))
        check = partial(network.check_console, url, identity.fleet_id, identity.authorities_pem)
        checks.append(("certificate", check))
    checks.append(("proxy", in_thread(network.check_proxy, identity.urls)))
    if settings.direct_links:
        host = "127.0.0.1" if _is_local(identity.urls) else "0.0.0.0"  # noqa: S104 - opened for a moment, to see if it can be
        checks.append(("firewall", lambda: network.check_own_port(host, *settings.direct_ports)))
        checks.append(("peers", partial(_check_peers, folder, identity, settings)))
    return checks


def _is_local(urls: Sequence[str]) -> bool:
    return all(urlsplit(url).hostname in {"127.0.0.1", "localhost", "::1"} for url in urls)


async def _check_identity(identity: Identity) -> list[Finding]:
    said = f"device {identity.device_id} of {identity.record.fleet_name}, key protected by a {identity.key_protection}"
    try:
        told = await diagnose(identity)
    except EnrolmentError:
        return [fine("identity", said)]  # the checks of the way there say why
    if told.code != "ok":
        return [problem("identity", told.message, "Ask your administrator, with this PC's id and name.")]
    return [fine("identity", f"{said}; the console lets it in")]


async def _check_peers(folder: Path, identity: Identity, settings: AgentSettings) -> list[Finding]:
    tls = await asyncio.to_thread(client_context, identity)
    dialler = Dialler(identity.urls, tls, identity.server_hostname)
    peers = PeerDialler(DirectSetup(lambda: identity, settings))
    held = await asyncio.to_thread(Store(folder).held)
    return await check_peers(lambda: dialler.dial(BULK_PATH), peers, held)


def _check_running(folder: Path) -> list[Finding]:
    state = read_state(folder)
    if state is None or state.link == "stopped":
        return [problem("agent", "it does not run", "Start it: fallow-agent run")]
    if state.link != "connected":
        return [problem("agent", f"it is {state.link}: {state.message}", "See the lines above.")]
    return [fine("agent", f"connected to {state.console_url}, {counted(len(state.stages), 'stage')} loaded")]
