"""The service as a program: until it is interrupted, with its log and its limits."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path

import msgspec

from agent.logs.handlers import Format
from agent.logs.types import Level
from console.capacity import allow_many_files, shrink_tls_buffers
from console.garbage import keep_collections_short
from console.logs import logging_to
from console.service import ConsoleService, ServiceSettings

log = logging.getLogger(__name__)


def serve(
    settings: ServiceSettings,
    *,
    log_level: Level = "INFO",
    log_file: Path | None = None,
    log_format: Format = "auto",
    json_output: bool = False,
) -> int:
    """Run until SIGINT or SIGTERM; the addresses go to standard output, the log as `logging_to` says."""
    with logging_to(settings.folder, log_file, log_level, log_format, database=settings.database):
        allow_many_files()
        shrink_tls_buffers()
        asyncio.run(_run(settings, json_output=json_output))
    return 0


async def _run(settings: ServiceSettings, *, json_output: bool) -> None:
    stopping = asyncio.Event()
    _on_signals(stopping)
    async with ConsoleService(settings) as service:
        if json_output:
            sys.stdout.write(msgspec.json.encode(await service.status()).decode() + "\n")
        else:
            sys.stdout.write(f"API for people:  {service.api_url}/v1\n")
            sys.stdout.write(f"Agents dial:     {', '.join(service.agents_urls())}\n")
            sys.stdout.write(f"Data folder:     {settings.folder}\n")
        sys.stdout.flush()
        await keep_collections_short(service, stopping)
        log.info("Stopping.")


def _on_signals(stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stopping.set)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stopping.set))
