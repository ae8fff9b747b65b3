"""The releases this console has for PCs: taken from a folder of its machine, copied, served, listed.

What a release says of itself is shown and followed; whether it may be believed is for the PCs to find out.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from agent.threads import finish_in_thread
from agent.update.archives import measure
from agent.update.errors import ReleaseRefused
from agent.update.releases import MAX_SIGNED_BYTES, Release, decode_signed
from agent.update.trust import read_unverified
from console.errors import ReleaseUnusable
from console.fleet.distribution import Distribution
from console.fleet.releases import ReleasePost, update_phase
from console.registry.audit import Actor
from console.registry.errors import WrongState
from console.registry.records import ReleaseRecord, Ring
from console.registry.registry import Registry

log = logging.getLogger(__name__)

Listed = list[tuple[ReleaseRecord, int, dict[str, int]]]
"""Each release, how many PCs have its version, and how many are in which phase of an update to it."""


class ReleaseShelf:
    """On the service's event loop; disk and registry are used in threads. `folder` is this console's own."""

    def __init__(
        self,
        registry: Registry,
        distribution: Distribution,
        post: ReleasePost,
        folder: Path,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._registry, self._distribution, self._post = registry, distribution, post
        self._folder, self._now = folder, now

    async def open(self) -> None:
        """Serve what was not withdrawn."""
        for record in await finish_in_thread(self._registry.releases.list):
            if record.withdrawn_s is None:
                self._serve(record)

    async def add(self, file: Path, actor: Actor) -> ReleaseRecord:
        """Take a signed release and the archive beside it; nobody is offered it yet.

        Raises ReleaseUnusable, also for one that was withdrawn; nothing is kept of it then.
        """
        record = await finish_in_thread(partial(self._add, file, actor))
        self._serve(record)
        await self._post.publish()
        return record

    async def set_ring(self, release_id: str, ring: Ring, percent: int | None, actor: Actor) -> ReleaseRecord:
        """Offer a release to a ring of PCs. Raises NotFound or WrongState."""
        record = await finish_in_thread(partial(self._registry.releases.set_ring, release_id, ring, percent, actor))
        await self._post.publish()
        return record

    async def withdraw(self, release_id: str, actor: Actor) -> ReleaseRecord:
        """Offer a release to nobody any more; PCs that have it keep it. Raises NotFound."""
        record = await finish_in_thread(partial(self._registry.releases.withdraw, release_id, actor))
        self._distribution.unregister_file(record.sha256)
        await self._post.publish()
        await finish_in_thread(partial(self._file(record.sha256).unlink, missing_ok=True))
        return record

    async def list(self) -> Listed:
        """Return each release, how many PCs have its version, and how many are in which phase of an update to it."""
        return await finish_in_thread(self._list)

    def _list(self) -> Listed:
        devices = [device for device in self._registry.devices.list() if device.state == "active"]
        having = Counter((device.facts.get("version"), device.facts.get("platform")) for device in devices)
        phases = Counter(update_phase(device.facts) for device in devices)
        rows = []
        for record in self._registry.releases.list():
            said = record.description
            under_way = {phase: count for (phase, version), count in phases.items() if version == said.version}
            rows.append((record, having[said.version, said.platform], under_way))
        return rows

    def _file(self, sha256: str) -> Path:
        return self._folder / f"{sha256}.tar.gz"

    def _serve(self, record: ReleaseRecord) -> None:
        path = self._file(record.sha256)
        if path.is_file():
            self._distribution.register_file(record.sha256, path, record.size_bytes)
        else:
            log.info("The archive of release %s is not here; it is offered where it was added.", record.release_id)

    def _add(self, file: Path, actor: Actor) -> ReleaseRecord:
        try:
            with file.open("rb") as signed_file:
                signed = signed_file.read(MAX_SIGNED_BYTES + 1)
            release = read_unverified(decode_signed(signed))
            if release.expires_s <= self._now():
                raise ReleaseUnusable(f"{file.name} has expired, and no PC would take it; sign it again.")
            self._registry.releases.check_not_withdrawn(release.sha256)
            self._copy(file.with_name(release.archive), release)
            try:
                return self._registry.releases.add(release, signed, file.name, actor)
            except WrongState:  # withdrawn since, by another console
                self._file(release.sha256).unlink(missing_ok=True)
                raise
        except (ReleaseRefused, WrongState) as error:
            raise ReleaseUnusable(f"{file.name}: {error}") from None
        except OSError as error:
            raise ReleaseUnusable(
                f"{error.filename or file} cannot be used ({error.strerror}); the signed release and its archive lie "
                "in one folder of the console's PC."
            ) from None

    def _copy(self, archive: Path, release: Release) -> None:
        """Copy the archive to this console's folder, whole or not at all. Raises ReleaseUnusable or OSError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        kept = self._file(release.sha256)
        if archive.stat().st_size != release.size_bytes:
            raise ReleaseUnusable(f"{archive.name} is not of the size that was signed; copy it again.")
        fresh = kept.with_suffix(".new")
        try:
            shutil.copyfile(archive, fresh)
            if measure(fresh) != (release.size_bytes, release.sha256):
                raise ReleaseUnusable(f"{archive.name} is not the archive that was signed; copy it again.")
            fresh.replace(kept)
        finally:
            fresh.unlink(missing_ok=True)
