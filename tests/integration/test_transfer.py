"""A library to two PCs through everything that goes wrong on the way: cuts, a flipped byte, a full disk.

Real agents, real TLS. The library is small in every run and 100 MB in the slow one.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from agent.link.bulk import Find, serve_files
from agent.link.manifests import files_beside
from agent.link.messages import LayerRange
from agent.link.sockets import CHUNK_BYTES
from agent.link.store import Part
from agent.link.store_errors import StoreFull
from agent.settings import AgentSettings
from console.fleet.errors import DeliveryFailed, StageLoadFailed
from shard_export.library.manifest import MANIFEST_NAME, Manifest
from tests.support.agents import Agent, load, running_agent
from tests.support.fleet import Fleet, make_load, running_fleet
from tests.support.libraries import make_library
from tests.support.patience import until

OPEN = AgentSettings(direct_ports=(0, 0))
LAYERS = 10
SIZES = [pytest.param(400_000, id="5 MB"), pytest.param(8_000_000, id="100 MB", marks=pytest.mark.slow)]


@dataclass
class Transfer:
    """A fleet, a library of `total` bytes, and what the console does to the bytes it sends."""

    fleet: Fleet
    manifest: Manifest
    digest: str
    cut_at: list[float] = field(default_factory=list)
    """The link is cut when this share of the library was sent by the console."""
    flip: str = ""
    """One byte of this file is flipped, once, on its way."""
    sent: int = 0
    cuts: int = 0
    flips: int = 0

    @property
    def total(self) -> int:
        beside = files_beside(self.manifest, self.manifest.layer_count)
        return sum(unit.size_bytes for unit in self.manifest.units) + sum(file.size_bytes for file in beside)

    @property
    def manifest_bytes(self) -> int:
        return (self.fleet.folder / "library" / MANIFEST_NAME).stat().st_size

    async def serve(self, link: ServerConnection, find: Find, **options: Any) -> None:
        """Stand in for the console's `serve_files`."""

        async def before_sending(size_bytes: int) -> None:
            self.sent += size_bytes
            if self.cut_at and self.sent > self.cut_at[0] * self.total:
                self.cut_at.pop(0)
                self.cuts += 1
                link.transport.abort()

        def found(sha256: str) -> tuple[Path, int] | None:
            place = find(sha256)
            if place is None or sha256 != self.flip or self.flips:
                return place
            self.flips += 1
            data = bytearray(place[0].read_bytes())
            data[len(data) // 2] ^= 1
            wrong = self.fleet.folder / "flipped"
            wrong.write_bytes(data)
            return wrong, place[1]

        await serve_files(link, found, **{**options, "before_sending": before_sending})

    async def load(self, agent: Agent) -> None:
        await load(self.fleet, agent, make_load(library_digest=self.digest, first=0, last=LAYERS))

    def nothing_torn(self, agent: Agent) -> bool:
        """Whether every file in the store is what its name says, and the stage folders hold nothing else."""
        store = agent.service._store
        whole = all(store.read(name) for name in store.held())
        files = [path for path in (agent.folder / "stages").rglob("*") if path.is_file()]
        return whole and all(path.stat().st_nlink > 1 for path in files)

    def has_everything(self, agent: Agent) -> bool:
        library, store = self.fleet.folder / "library", agent.service._store
        return all(
            store.read(file.sha256) == (library / file.path).read_bytes()
            for unit in self.manifest.units
            for file in (unit.xml, unit.bin)
        )


def got(agent: Agent) -> dict[str, int]:
    return dict(agent.service._fetcher.bytes_from)


@pytest.fixture
async def transfer(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Transfer]:
    async with running_fleet(tmp_path, direct_links=True) as fleet:
        manifest, digest = make_library(tmp_path / "library", layers=LAYERS, unit_bytes=request.param)
        fleet.distribution.register(tmp_path / "library")
        made = Transfer(fleet, manifest, digest)
        monkeypatch.setattr("console.fleet.reception.serve_files", made.serve)
        yield made


@pytest.mark.parametrize("transfer", SIZES, indirect=True)
async def test_two_pcs_get_every_byte_once_through_cuts_and_a_flipped_byte(transfer: Transfer) -> None:
    transfer.cut_at = [0.1, 0.5, 0.99]
    bad = transfer.manifest.layer(3).bin
    transfer.flip = bad.sha256
    async with running_agent(transfer.fleet, "ann", OPEN) as ann, running_agent(transfer.fleet, "bob", OPEN) as bob:
        ann.service._fetcher._wait_s = lambda tries: 0.0
        await transfer.load(ann)
        assert (transfer.cuts, transfer.flips) == (3, 1)
        # A cut costs nothing and goes on where it was; the damaged file alone came twice.
        assert got(ann) == {"console": transfer.total + transfer.manifest_bytes + bad.size_bytes}
        assert transfer.has_everything(ann)
        assert transfer.nothing_torn(ann)

        peers = transfer.fleet.hub._peers._peers
        await until(lambda: len(peers[ann.device_id].held) > 2 * len(transfer.manifest.units))
        await transfer.load(bob)
        assert got(bob)[ann.device_id] >= 0.8 * sum(got(bob).values())
        assert sum(got(bob).values()) == transfer.total + transfer.manifest_bytes
        assert transfer.has_everything(bob)
        assert transfer.nothing_torn(bob)


@pytest.mark.parametrize("transfer", SIZES, indirect=True)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
async def test_an_agent_that_ends_in_the_middle_goes_on_where_it_was(transfer: Transfer, share: float) -> None:
    async with running_agent(transfer.fleet, "ann", OPEN) as ann:
        ann.children.hold = asyncio.Event()  # the stage is never up before the agent is told to end
        loading = asyncio.create_task(transfer.load(ann))
        await until(lambda: transfer.sent > share * transfer.total)
    with pytest.raises(StageLoadFailed):
        await loading
    async with running_agent(transfer.fleet, "ann", OPEN) as again:
        await transfer.load(again)
        # Near the end all of it may have come before the agent was told to end.
        came = got(ann)["console"] + got(again).get("console", 0)
        # Nothing came twice; a piece that was being written when the agent ended was not counted, and is there.
        assert 0 <= transfer.total + transfer.manifest_bytes - came <= CHUNK_BYTES
        assert transfer.has_everything(again)
        assert transfer.nothing_torn(again)


@pytest.mark.parametrize("transfer", SIZES, indirect=True)
async def test_a_disk_that_fills_up_in_the_middle_keeps_what_it_has_and_goes_on(
    transfer: Transfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = LayerRange(transfer.digest, 0, LAYERS)
    write, written = Part.write, 0

    def limited(part: Part, data: bytes | memoryview) -> None:
        nonlocal written
        if written > transfer.total / 2:
            raise StoreFull("The disk is full; free some space and try again.") from OSError(
                errno.ENOSPC, os.strerror(errno.ENOSPC)
            )
        write(part, data)
        written += len(data)

    async with running_agent(transfer.fleet, "ann", OPEN) as ann:
        with monkeypatch.context() as patch:
            patch.setattr(Part, "write", limited)
            with pytest.raises(DeliveryFailed, match="free some space"):
                await transfer.fleet.hub.deliver(ann.device_id, layers)
            assert transfer.nothing_torn(ann)
            with pytest.raises(StageLoadFailed, match="free some space"):
                await transfer.load(ann)
            assert ann.children.started == []
        await transfer.fleet.hub.deliver(ann.device_id, layers)
        assert transfer.has_everything(ann)
        assert transfer.nothing_torn(ann)
