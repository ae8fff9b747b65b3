"""The builds of one console, in memory and on the disk."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import msgspec

from agent.threads import finish_in_thread
from console.api.admin.build_types import Build
from console.builds.records import KEPT, Records
from console.errors import DataFolderUnusable
from console.registry.errors import NotFound

log = logging.getLogger(__name__)


class Book:
    """What is known of each build. On the service's event loop; the disk is written in threads."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self._builds: dict[str, Build] = {}
        self._writing = asyncio.Lock()

    async def open(self) -> None:
        """Read what there is. Raises DataFolderUnusable."""
        self._builds = {build.build_id: build for build in await finish_in_thread(self.records.open)}

    def all(self) -> list[Build]:
        """List all builds in the order they were asked for."""
        return list(self._builds.values())

    def find(self, build_id: str) -> Build:
        """Return a build. Raises NotFound."""
        if build_id not in self._builds:
            raise NotFound(f"There is no build {build_id[:32]}; see: fallow-console build list")
        return self._builds[build_id]

    async def put(self, build: Build) -> Build:
        """Take a build as it is now. A disk that cannot take it costs only what a restart would have known."""
        self._builds[build.build_id] = build
        async with self._writing:
            # The latest: others may have come while this one waited.
            latest = self._builds.get(build.build_id)
            if latest is not None:
                try:
                    await finish_in_thread(partial(self.records.save, latest))
                except DataFolderUnusable as error:
                    log.warning("How the build of %s is cannot be noted: %s", build.model_id, error)
        return build

    def see_memory(self, build_id: str, memory_bytes: int, peak_bytes: int) -> None:
        """Take what a build's process uses now; the disk hears of it with the next change."""
        self._builds[build_id] = msgspec.structs.replace(
            self._builds[build_id], memory_bytes=memory_bytes, memory_peak_bytes=peak_bytes
        )

    async def forget_old(self) -> None:
        """Forget the oldest of those that ended."""
        ended = [build.build_id for build in self._builds.values() if build.state in {"built", "cancelled", "failed"}]
        for build_id in ended[:-KEPT]:
            # Two may forget at once.
            self._builds.pop(build_id, None)
            await finish_in_thread(partial(self.records.forget, build_id))
