"""What is in a console's support bundle: asked of the running service, and read from its data folder. Blocking."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil

from agent.logs.handlers import log_files
from agent.support.agent_parts import agent_secrets
from agent.support.bundle import Part
from agent.support.machine import common_parts, log_parts
from console import calls_operations as calls
from console.client import AdminClient
from console.data import ServiceFile, admin_key_path, log_path, service_file_path
from console.doctor import examine_console

_PASSWORD = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")


def console_parts(folder: Path, *, doctor: bool) -> list[Part]:
    """List the parts; those that ask the service say so when it does not run."""

    def asked(ask: Callable[[AdminClient], object]) -> Callable[[], object]:
        def make() -> object:
            with AdminClient.for_data_folder(folder) as client:
                return ask(client)

        return make

    parts = [
        *common_parts(folder),
        Part("settings.json", "where the service is, and what it was started with", lambda: _settings(folder)),
        Part("status.json", "what is deployed, by which plan, and how it is", asked(AdminClient.status)),
        Part("libraries.json", "the layer libraries", asked(AdminClient.libraries)),
        Part("builds.json", "libraries that are or were built", asked(AdminClient.builds)),
        Part("deliveries.json", "models that are brought to PCs", asked(AdminClient.deliveries)),
        Part("pcs.json", "the PCs of the fleet: names, devices, memory, reasons", asked(AdminClient.agents)),
        Part("policy.json", "what volunteering PCs may do", asked(AdminClient.policy)),
        Part("log_levels.json", "how much is logged", asked(lambda client: client.ask(calls.log_levels()))),
        Part(
            "metrics.txt",
            "the numbers of this moment, as Prometheus reads them",
            asked(lambda client: client.ask(calls.metrics())),
        ),
        *log_parts(log_files(log_path(folder))),
    ]
    if doctor:
        parts.append(Part("doctor.json", "what the doctor found", lambda: asyncio.run(examine_console(folder))))
    return parts


def console_secrets(folder: Path) -> list[str]:
    """Return the secrets of a data folder and of the service on it, to be hidden wherever they came by chance."""
    found = agent_secrets(folder)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        found.append(admin_key_path(folder).read_text("utf-8").strip())
    with contextlib.suppress(OSError, msgspec.MsgspecError, psutil.Error):
        process = psutil.Process(_service(folder).process_id)
        words = [*process.cmdline(), process.environ().get("FALLOW_DATABASE", "")]
        found += [password for word in words for password in _PASSWORD.findall(word)]
        found.append(process.environ().get("PGPASSWORD", ""))
    return found


def _service(folder: Path) -> ServiceFile:
    return msgspec.json.decode(service_file_path(folder).read_bytes(), type=ServiceFile)


def _settings(folder: Path) -> dict[str, Any]:
    service = _service(folder)
    words: list[str] = []
    with contextlib.suppress(psutil.Error):
        words = psutil.Process(service.process_id).cmdline()
    return {"service": msgspec.to_builtins(service), "started_with": words}
