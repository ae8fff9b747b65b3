"""Fetching a stage's files: only what is missing, from PCs that hold it before the console, resumed after a cut."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

from agent.link.bulk import Holder
from agent.link.channel import link_error
from agent.link.closing import LinkCut, LinkDown, LinkRefused
from agent.link.errand import Errand, OnProgress
from agent.link.errors import LinkError
from agent.link.locating import CannotLocate, DialBulk, locate
from agent.link.manifests import files_beside
from agent.link.pace import Pace
from agent.link.speed import Throughput, Transfer, read_end
from agent.link.store import Store
from agent.link.store_errors import FileDamaged, StoreError
from agent.link.transfer import FetchCut, FetchDamaged, FetchError, NotServed, fetch_file
from agent.threads import finish_in_thread
from shard_export.library.manifest import FileRecord, Manifest

log = logging.getLogger(__name__)

TRIES_WITHOUT_PROGRESS = 5
CONSOLE = "console"
_WANTED = "wanted now"
_UNLIMITED = Pace(0, 0, 0, lambda: 0.0)

OnFiles = Callable[[Sequence[str], Sequence[str]], None]
"""Called with the files that came into the store and those that had to go."""


class DialPeer(Protocol):
    """Opens a bulk link to a PC that holds files."""

    async def dial(self, holder: Holder) -> ClientConnection:
        """Raises OSError, TimeoutError, LinkError or WebSocketException."""
        ...


class Fetcher:
    """Brings files into a store. Fetches wait for each other; event loop only, the disk is used in threads.

    `wait_s` gives the pause before try number n (1, 2, ...) after a cut. `peers` may be set at any time; without it
    only the console is asked. `bytes_from` counts what each source sent: device ids and `CONSOLE`.
    """

    def __init__(
        self,
        store: Store,
        dial: DialBulk,
        wait_s: Callable[[int], float] = lambda tries: min(tries, 10),
        *,
        pace: Pace = _UNLIMITED,
        on_files: OnFiles = lambda _added, _removed: None,
    ) -> None:
        self._store = store
        self._dial = dial
        self._wait_s = wait_s
        self._pace = pace
        self._lock = asyncio.Lock()
        self.on_files = on_files
        self.peers: DialPeer | None = None
        self.bytes_from: Counter[str] = Counter()
        self.throughput = Throughput()
        """What the link to the console was seen to carry, from files that came anyway."""

    @property
    def is_busy(self) -> bool:
        """Whether files are being fetched."""
        return self._lock.locked()

    async def probe(self, sha256: str, size_bytes: int) -> None:
        """Measure the link to the console with the end of a file of its libraries; nothing of it is kept.

        Raises FetchError, LinkDown, TimeoutError or ConnectionClosed.
        """
        async with self._lock, await self._dial() as link:
            self.throughput.add(await read_end(link, sha256, size_bytes))

    @property
    def may_probe(self) -> bool:
        """Whether nothing limits transfers now, so that a probe would measure the link."""
        return not self._pace.limits_now

    async def fetch_range(
        self, digest: str, first: int, last: int, stage_name: str, on_progress: OnProgress = lambda _done, _total: None
    ) -> tuple[Manifest, Path]:
        """Get the manifest and what layers `first <= i < last` need; return it as a library folder.

        Raises FetchError, LinkRefused or StoreError. What was fetched before an error stays for the next try.
        """
        async with self._lock:
            try:
                self._store.pin(_WANTED, [digest])
                await self._fetch_all([FileRecord("", -1, digest)], lambda _done, _total: None, None)
                manifest = await asyncio.to_thread(self._store.manifest, digest)
                if not 0 <= first < last <= manifest.layer_count:
                    raise NotServed(
                        f"The plan asks for layers {first} to {last} of a model with {manifest.layer_count}."
                    )
                units = manifest.units_of_range(first, last)
                extra = files_beside(manifest, last)
                files = [record for unit in units for record in (unit.xml, unit.bin)] + extra
                records = {record.sha256: record for record in files}
                self._store.pin(_WANTED, [digest, *records])
                await self._fetch_all(list(records.values()), on_progress, self.peers)
                folder = await finish_in_thread(partial(self._store.materialise, digest, units, stage_name, extra))
            finally:
                self._store.unpin(_WANTED)
        return manifest, folder

    async def fetch_one(self, record: FileRecord) -> Path:
        """Get one file and return where it lies. Raises FetchError, LinkRefused or StoreError, as `fetch_range`."""
        async with self._lock:
            try:
                self._store.pin(_WANTED, [record.sha256])
                await self._fetch_all([record], lambda _done, _total: None, self.peers)
            finally:
                self._store.unpin(_WANTED)
        return self._store.path(record.sha256)

    async def _fetch_all(self, records: Sequence[FileRecord], on_progress: OnProgress, peers: DialPeer | None) -> None:
        missing, removed = await finish_in_thread(
            partial(self._missing, records), lambda found: self._say_removed(found[1])
        )
        self._say_removed(removed)
        total = sum(max(record.size_bytes, 0) for record in records)
        errand = Errand(missing, total, on_progress)
        if not missing:
            return
        helpers: list[asyncio.Task[None]] = []
        before = self.bytes_from.copy()
        if peers is not None:
            for holder in await self._locate(missing):
                errand.offer(holder.device_id, [missing[place].sha256 for place in holder.files])
                work = self._from_peer(peers, holder, errand)
                helpers.append(asyncio.create_task(work, name=f"fetch-from-{holder.device_id}"))
        try:
            await self._from_console(errand)
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
        if helpers:
            got = self.bytes_from - before
            log.info(
                "Fetched %.1f MB, %.1f of them from other PCs.", got.total() / 1e6, (got.total() - got[CONSOLE]) / 1e6
            )

    def _say_removed(self, removed: Sequence[str]) -> None:
        if removed:
            log.info("%d model files that were not used for longest made room for new ones.", len(removed))
            self.on_files([], removed)

    def _missing(self, records: Sequence[FileRecord]) -> tuple[list[FileRecord], list[str]]:
        """Return what is not here, and what had to go for it."""
        missing = [
            record
            for record in records
            if not self._store.has(record.sha256, record.size_bytes if record.size_bytes >= 0 else None)
        ]
        return missing, self._store.make_room(sum(max(record.size_bytes, 0) for record in missing))

    async def _locate(self, missing: Sequence[FileRecord]) -> list[Holder]:
        """Ask the console which PCs hold these files; none when it does not say in time."""
        try:
            return await locate(self._dial, [record.sha256 for record in missing])
        except CannotLocate as error:
            log.info("The console does not say which PCs hold the files (%s); it is asked for all of them.", error)
            return []

    async def _from_peer(self, peers: DialPeer, holder: Holder, errand: Errand) -> None:
        """Fetch what one PC holds until it fails or has nothing more; the others take over what it leaves."""
        record: FileRecord | None = None
        try:
            async with await peers.dial(holder) as link:
                while (record := errand.take_of(holder.device_id)) is not None:
                    await self._fetch(link, record, errand, holder.device_id)
        except (FileDamaged, FetchError, LinkDown, LinkError, WebSocketException, OSError, TimeoutError) as error:
            log.info("PC %s is not asked for files any more: %s", holder.device_id, str(error) or type(error).__name__)
        except StoreError as error:
            errand.fail(error)
        finally:
            if record is not None:
                errand.put_back(record)
            errand.withdraw(holder.device_id)

    async def _from_console(self, errand: Errand) -> None:
        """Fetch what no PC holds or brought, until everything is here."""
        tries, damaged = 0, set[str]()
        record = await errand.take_of_console()
        while record is not None:
            before = self.bytes_from[CONSOLE]
            try:
                async with await self._dial() as link:
                    while record is not None:
                        await self._fetch(link, record, errand, CONSOLE)
                        record = await errand.take_of_console()
            except FileDamaged as error:
                if record is None or record.sha256 in damaged:
                    raise FetchDamaged(
                        "A model file arrived damaged twice; check the library on the console with "
                        "`fallow-export verify`."
                    ) from error
                damaged.add(record.sha256)
            except (ConnectionClosed, LinkDown, TimeoutError) as error:
                cause = _as_link_down(error)
                if isinstance(cause, LinkRefused):
                    raise cause from error
                tries = 1 if self.bytes_from[CONSOLE] > before else tries + 1
                if tries > TRIES_WITHOUT_PROGRESS:
                    raise FetchCut(f"The model files cannot be fetched, the link keeps breaking: {cause}") from error
                await asyncio.sleep(self._wait_s(tries))

    async def _fetch(self, link: ClientConnection, record: FileRecord, errand: Errand, source: str) -> None:
        transfer, now_s = Transfer(), asyncio.get_running_loop().time

        def received(size_bytes: int) -> None:
            self.bytes_from[source] += size_bytes
            errand.received(record, size_bytes)
            transfer.came(size_bytes, now_s())

        had = errand.had
        await fetch_file(
            link, self._store, record, had=lambda size: had(record, size), received=received, pace=self._pace
        )
        if source == CONSOLE and not self._pace.limits_now:
            self.throughput.add(transfer)
        errand.finish(record)
        self.on_files([record.sha256], [])


def _as_link_down(error: Exception) -> LinkDown:
    if isinstance(error, ConnectionClosed):
        return link_error(error)
    if isinstance(error, LinkDown):
        return error
    return LinkCut("The console sends nothing.", "timeout")
