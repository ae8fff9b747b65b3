"""`fallow-console doctor`: what is wrong with this console, its fleet and its models, and what to do about it.

Asks the running service over its own HTTP routes, like any client, and dials the agents' port like an agent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from agent.doctor.findings import Check, Finding, examine, fine, in_thread, problem, unknown
from agent.doctor.machine import check_disk, check_memory
from agent.doctor.network import check_address, check_console, check_proxy
from agent.threads import finish_in_thread
from agent.volunteer.memory_book import MemoryBook
from agent.volunteer.policy import Policy
from console.api.admin import types as wire
from console.client import AdminClient
from console.data import ServiceFile, authority_path, service_file_path
from console.errors import ClientError, ServiceRefused
from shard_export.library.counts import counted
from shard_export.library.errors import LibraryError
from shard_export.library.store import verify_library

LONG_AWAY_S = 7 * 86_400.0


async def examine_console(folder: Path) -> list[Finding]:
    """Examine the console of a data folder. Takes as long as reading every file of every library once."""
    memory = MemoryBook(folder, lambda: Policy(unattended=True))
    checks: list[tuple[str, Check]] = [
        ("disk", in_thread(check_disk, folder)),
        ("memory", in_thread(check_memory, memory)),
    ]
    try:
        client = await finish_in_thread(partial(AdminClient.for_data_folder, folder), AdminClient.close)
    except ClientError as error:
        return [*await examine(checks), problem("service", str(error), "Start it: fallow-console serve")]
    try:
        checks += [
            ("service", partial(_check_service, client, folder)),
            ("registry", in_thread(_check_audit, client)),
            ("agents", in_thread(_check_agents, client)),
            ("files", in_thread(_check_libraries, client)),
            ("token", in_thread(_check_models, client)),
        ]
        return await examine(checks)
    finally:
        await finish_in_thread(client.close)


async def _check_service(client: AdminClient, folder: Path) -> list[Finding]:
    """Dial the service and the agents' port at every address invites name."""
    try:
        status = await finish_in_thread(client.status)
    except ClientError as error:
        return [problem("service", str(error), "Start it again: fallow-console serve")]
    service = await asyncio.to_thread(_service_file, folder)
    fleet_id, authorities = await asyncio.to_thread(_fleet, authority_path(folder))
    found = [fine("service", f"version {status.version} answers at {status.api_url}")]
    for url in service.agents_urls:
        reached = await check_address(url)
        found += reached
        if all(finding.verdict == "ok" for finding in reached):
            found += await check_console(url, fleet_id, authorities)
    found += check_proxy(service.agents_urls)
    if all(urlsplit(url).hostname in {"127.0.0.1", "localhost", "::1"} for url in service.agents_urls):
        advice = "Start it with --agents-host 0.0.0.0 and --advertise wss://NAME:PORT for PCs to join."
        found.append(unknown("firewall", "agents are only told addresses of this PC itself", advice))
    else:
        port = service.agents_port
        found.append(fine("firewall", f"PCs need TCP {port} inbound here; those connected below came through"))
    return found


def _service_file(folder: Path) -> ServiceFile:
    return msgspec.json.decode(service_file_path(folder).read_bytes(), type=ServiceFile)


class _Fleet(msgspec.Struct, frozen=True):
    fleet_id: str


def _fleet(folder: Path) -> tuple[str, bytes]:
    fleet = msgspec.json.decode((folder / "fleet.json").read_bytes(), type=_Fleet)
    return fleet.fleet_id, (folder / "authorities.pem").read_bytes()


def _check_audit(client: AdminClient) -> list[Finding]:
    try:
        checked = client.verify_audit()
    except ServiceRefused as error:
        advice = "Compare with an earlier export, and find out who can write the registry."
        return [problem("registry", str(error), advice)]
    said = counted(checked.entries, "entry of the audit log is as it was", "entries of the audit log are as they were")
    return [fine("registry", f"{said} written")]


def _check_agents(client: AdminClient) -> list[Finding]:
    agents = client.agents()
    connected = [agent for agent in agents if agent.link == "connected"]
    found = [fine("agents", f"{len(connected)} of {counted(len(agents), 'PC is', 'PCs are')} connected")]
    if not connected:
        found = [
            problem("agents", f"none of {counted(len(agents), 'PC')} is connected", "Invite PCs: fallow-console invite")
        ]
    for agent in agents:
        found += _look_at(agent)
    return found


def _look_at(agent: wire.Agent) -> Iterable[Finding]:
    name = f"{agent.name} ({agent.device_id[:8]})"
    if agent.state == "pending":
        yield problem("agents", f"{name} waits for approval", f"fallow-console approve {agent.device_id}")
    elif agent.state in {"suspended", "expired"}:
        yield problem("agents", f"{name} is {agent.state}: {agent.reason}", "Resume it, or let it enrol again.")
    elif agent.state == "active" and agent.link == "offline":
        away_s = time.time() - (agent.seen_s or 0)
        if agent.seen_s is not None and away_s > LONG_AWAY_S:
            advice = "Ask on the PC: fallow-agent doctor. Revoke it if it is gone."
            yield problem("agents", f"{name} was not seen for {counted(round(away_s / 86_400), 'day')}", advice)
    if agent.key_protection == "file" and agent.state == "active":
        yield unknown("agents", f"{name} keeps its key's passphrase in a file", "A keyring on that PC would guard it.")


def _check_libraries(client: AdminClient) -> list[Finding]:
    found = []
    for library in client.libraries():
        if library.problem:
            found.append(problem("files", f"{library.model_id}: {library.problem}", "Export it again, then add it."))
            continue
        try:
            verify_library(Path(library.folder))
        except LibraryError as error:
            found.append(problem("files", f"{library.model_id}: {error}", "Export it again, then add it."))
        else:
            found.append(fine("files", f"{library.model_id} is as its manifest says"))
    return found or [unknown("files", "there is no layer library yet", "Add one: fallow-console models --add FOLDER")]


def _check_models(client: AdminClient) -> list[Finding]:
    """Ask for the truth of a real token through all stages of each model, and how its PCs reach each other."""
    readiness = client.readiness()
    pipelines = client.status().pipelines
    if not pipelines:
        return [unknown("token", "no model is deployed", "Deploy one: fallow-console deploy MODEL")]
    found: list[Finding] = []
    for view in pipelines:
        if view.model in readiness:
            found.append(fine("token", f"one came through {counted(len(view.stages), 'stage')} of {view.model}"))
        else:
            why = view.message or view.probe.message
            found.append(
                problem("token", f"{view.model} is {view.state}: {why}", "See the PCs above, then deploy again.")
            )
        found += _links_of(view)
    return found


def _links_of(view: wire.PipelineView) -> Sequence[Finding]:
    relayed = [link for link in view.links if link.way == "relay" and link.reason != "direct links are off"]
    return [
        unknown("peers", f"stage {link.stage} of {view.model} is reached by the relay: {link.reason}",
                "Allow its direct_ports in the firewall between the two PCs.")
        for link in relayed
    ]  # fmt: skip
