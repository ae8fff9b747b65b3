"""Model files over the bulk link, real TLS: whole, resumed, damaged, refused, and while others wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from agent.link.bulk import Find, serve_files
from agent.link.channel import link_error
from agent.link.closing import FrameRefused, LinkCut, NotApproved
from agent.link.fetch import CONSOLE, Fetcher
from agent.link.frames import Fetch, Frame, FrameType, decode, encode
from agent.link.messages import BULK_PATH
from agent.link.store import Store
from agent.link.store_errors import StoreFull
from agent.link.transfer import FetchCut, FetchDamaged, NotServed
from agent.stage.types import Nack
from console.fleet.distribution import Distribution
from console.fleet.errors import LibraryNotServed
from shard_export.library.manifest import MANIFEST_NAME, Manifest
from tests.support.fleet import Fleet, running_fleet
from tests.support.libraries import make_library


@pytest.fixture
def library(fleet: Fleet) -> tuple[Manifest, str]:
    """A registered library with units of 2.5 MB: three chunks each."""
    folder = fleet.folder / "library"
    manifest, digest = make_library(folder, unit_bytes=2_500_000)
    assert fleet.distribution.register(folder) == digest
    return manifest, digest


class Bulk:
    """Dials the bulk link and counts how often."""

    def __init__(self, fleet: Fleet) -> None:
        self._dialler = fleet.dialler(fleet.enrol("ann"))
        self.dialled = 0
        self.link: ClientConnection | None = None

    async def __call__(self) -> ClientConnection:
        self.dialled += 1
        self.link = await self._dialler.dial(BULK_PATH)
        return self.link


def make_fetcher(fleet: Fleet, bulk: Bulk) -> tuple[Fetcher, Store]:
    store = Store(fleet.folder / "agent")
    return Fetcher(store, bulk, wait_s=lambda tries: 0.0), store


async def test_the_link_is_measured_by_what_comes_anyway_or_by_the_end_of_a_file(
    fleet: Fleet, library: tuple[Manifest, str]
) -> None:
    manifest, digest = library
    fetcher, store = make_fetcher(fleet, Bulk(fleet))
    await fetcher.fetch_range(digest, 1, 3, "s")
    passive = fetcher.throughput.count
    assert passive == len([unit for unit in manifest.units_of_range(1, 3) if unit.bin.size_bytes > 2 << 20])
    held = store.held()
    record = manifest.layer(0).bin
    await fetcher.probe(record.sha256, record.size_bytes)
    assert fetcher.throughput.count == passive + 1
    assert fetcher.throughput.bytes_per_s is not None
    assert store.held() == held
    with pytest.raises(NotServed):
        await fetcher.probe("f" * 64, 1 << 20)


async def test_only_the_missing_units_of_the_range_are_fetched(fleet: Fleet, library: tuple[Manifest, str]) -> None:
    manifest, digest = library
    bulk, progress = Bulk(fleet), list[tuple[int, int]]()
    fetcher, store = make_fetcher(fleet, bulk)
    got, folder = await fetcher.fetch_range(digest, 1, 3, "s", lambda done, total: progress.append((done, total)))
    units = manifest.units_of_range(1, 3)
    total = sum(unit.size_bytes for unit in units)
    assert got == manifest
    assert (folder / MANIFEST_NAME).read_bytes() == (fleet.folder / "library" / MANIFEST_NAME).read_bytes()
    for unit in units:
        assert (folder / unit.bin.path).read_bytes() == (fleet.folder / "library" / unit.bin.path).read_bytes()
    assert progress[0] == (0, total)
    assert progress[-1] == (total, total)
    assert progress == sorted(progress)
    assert not store.has(manifest.layer(0).bin.sha256)

    dialled = bulk.dialled
    await fetcher.fetch_range(digest, 1, 3, "s")
    assert bulk.dialled == dialled
    await fetcher.fetch_range(digest, 0, 4, "all")
    assert store.has(manifest.unit("head").bin.sha256)


async def test_the_last_stage_gets_the_tokenizer_and_no_other_one(fleet: Fleet, library: tuple[Manifest, str]) -> None:
    manifest, digest = library
    fetcher, store = make_fetcher(fleet, Bulk(fleet))
    (tokenizer,) = manifest.tokens.files
    await fetcher.fetch_range(digest, 0, 3, "first")
    assert not store.has(tokenizer.sha256)
    _, last = await fetcher.fetch_range(digest, 3, 4, "last")
    assert (last / tokenizer.path).read_bytes() == b"{}"


async def test_a_cut_fetch_continues_where_it_ended(
    fleet: Fleet, library: tuple[Manifest, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def two_chunks(link: ServerConnection, find: Find, **options: Any) -> None:
        """Serve two chunks and cut: most cuts fall into the middle of a file."""
        send, sent = link.send, 0

        async def send_two(data: bytes) -> None:
            nonlocal sent
            await send(data)
            sent += 1
            if sent == 2:
                await link.close(1001)

        link.send = send_two  # type: ignore[assignment,method-assign]  # the test's own cut
        await serve_files(link, find, **options)

    manifest, digest = library
    monkeypatch.setattr("console.fleet.reception.serve_files", two_chunks)
    bulk, seen = Bulk(fleet), list[int]()
    fetcher, _ = make_fetcher(fleet, bulk)
    _, folder = await fetcher.fetch_range(digest, 1, 3, "s", lambda done, total: seen.append(done))
    units = manifest.units_of_range(1, 3)
    for unit in units:
        assert (folder / unit.bin.path).read_bytes() == (fleet.folder / "library" / unit.bin.path).read_bytes()
    chunks = len(units) * (1 + 3)
    assert bulk.dialled == 1 + chunks // 2  # the manifest, then two chunks each time: none was sent twice
    assert seen == sorted(seen)


async def test_a_damaged_file_is_fetched_once_more_then_given_up(fleet: Fleet, library: tuple[Manifest, str]) -> None:
    manifest, digest = library
    fetcher, store = make_fetcher(fleet, Bulk(fleet))
    path = fleet.folder / "library" / manifest.layer(1).bin.path
    good = path.read_bytes()
    path.write_bytes(b"\0" + good[1:])
    with pytest.raises(FetchDamaged, match="verify"):
        await fetcher.fetch_range(digest, 1, 2, "s")
    assert not store.has(manifest.layer(1).bin.sha256)

    def repair(done: int, total: int) -> None:
        if done > 2_000_000:
            # Replaced whole: a file cut short for a moment would be another fault.
            whole = path.with_suffix(".whole")
            whole.write_bytes(good)
            whole.replace(path)

    _, folder = await fetcher.fetch_range(digest, 1, 2, "s", repair)
    assert (folder / manifest.layer(1).bin.path).read_bytes() == good


@pytest.mark.expected_logs("agent.link.bulk", "shorter than its manifest")
async def test_a_file_that_shrank_on_the_console_is_named_damaged(fleet: Fleet, library: tuple[Manifest, str]) -> None:
    manifest, digest = library
    path = fleet.folder / "library" / manifest.layer(1).bin.path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(NotServed, match="damaged on the console"):
        await make_fetcher(fleet, Bulk(fleet))[0].fetch_range(digest, 1, 2, "s")


async def test_only_registered_files_are_served(fleet: Fleet, library: tuple[Manifest, str]) -> None:
    _, digest = library
    fetcher, _ = make_fetcher(fleet, Bulk(fleet))
    with pytest.raises(NotServed, match="does not serve"):
        await fetcher.fetch_range("f" * 64, 0, 1, "s")
    with pytest.raises(NotServed, match="layers"):
        await fetcher.fetch_range(digest, 0, 9, "s")
    fleet.distribution.unregister(digest)
    with pytest.raises(NotServed, match="does not serve"):
        await fetcher.fetch_range(digest, 0, 1, "s")


async def test_a_link_that_keeps_breaking_is_given_up(fleet: Fleet, library: tuple[Manifest, str]) -> None:
    async def never() -> ClientConnection:
        raise LinkCut("The console at x cannot be reached; it is tried again.")

    with pytest.raises(FetchCut, match="keeps breaking"):
        await Fetcher(Store(fleet.folder / "agent"), never, lambda tries: 0.0).fetch_range(library[1], 0, 1, "s")


async def test_a_refused_device_does_not_try_again(fleet: Fleet, library: tuple[Manifest, str]) -> None:
    bulk = Bulk(fleet)
    fleet.set_state(next(iter(fleet.records)), "banned")
    with pytest.raises(NotApproved):
        await make_fetcher(fleet, bulk)[0].fetch_range(library[1], 0, 1, "s")
    assert bulk.dialled == 1


async def test_a_disk_without_room_is_said_before_fetching(
    fleet: Fleet, library: tuple[Manifest, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.link.store._RESERVE_BYTES", 1 << 60)
    with pytest.raises(StoreFull, match="free some space"):
        await make_fetcher(fleet, Bulk(fleet))[0].fetch_range(library[1], 0, 1, "s")


async def test_a_console_that_sends_another_piece_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def bulk(link: ServerConnection, find: Find, **options: Any) -> None:
        async for message in link:
            assert isinstance(message, bytes)
            await link.send(encode(Frame(FrameType.CHUNK, 0, 0, 99, 0, 0, b"", np.zeros(10, np.uint8))))

    async with running_fleet(tmp_path) as fleet:
        monkeypatch.setattr("console.fleet.reception.serve_files", bulk)
        with pytest.raises(FetchCut, match="Another piece"):
            await make_fetcher(fleet, Bulk(fleet))[0].fetch_range("a" * 64, 0, 1, "s")


def fetch_frame(*, sha256: str = "f" * 64, offset: int = 0, length: int = 1, table: bytes | None = None) -> bytes:
    table = table if table is not None else msgspec.msgpack.encode(Fetch(sha256, offset, length))
    return encode(Frame(FrameType.FETCH, 0, 0, 0, 5, 0, table, None))


async def test_bad_requests_cost_a_nack_and_the_link_stays(fleet: Fleet, library: tuple[Manifest, str]) -> None:
    manifest, digest = library
    link = await Bulk(fleet)()
    async with link:
        for request, code in [
            (fetch_frame(sha256="../../etc/passwd"), "unknown"),
            (fetch_frame(sha256=digest, offset=-1), "range"),
            (fetch_frame(sha256=digest, offset=1 << 40), "range"),
            (fetch_frame(sha256=digest, length=-5), "range"),
            (fetch_frame(table=b"\xc1"), "bad_request"),
        ]:
            await link.send(request)
            answer = decode(await link.recv(decode=False))
            assert answer.type is FrameType.NACK
            assert answer.sequence == 5
            assert msgspec.msgpack.decode(answer.table, type=Nack).code == code
        await link.send(fetch_frame(sha256=manifest.layer(0).xml.sha256, length=1 << 40))
        chunk = decode(await link.recv(decode=False))
        assert chunk.tensor is not None
        assert chunk.tensor.tobytes() == b"<net name='000'/>"


@pytest.mark.expected_logs("console.fleet.reception", "4400")
@pytest.mark.parametrize("message", [b"noise", encode(Frame(FrameType.STEP, 0, 0, 0, 0, 0, b"", None))])
async def test_what_is_no_fetch_closes_the_bulk_link(fleet: Fleet, message: bytes) -> None:
    link = await Bulk(fleet)()
    await link.send(message)
    with pytest.raises(ConnectionClosed) as closed:
        await link.recv()
    assert isinstance(link_error(closed.value), FrameRefused)


@pytest.mark.parametrize("harm", ["missing", "short", "outside", "noise"])
def test_a_library_that_is_not_whole_is_not_served(tmp_path: Path, harm: str) -> None:
    manifest, _ = make_library(tmp_path)
    path = tmp_path / manifest.layer(0).bin.path
    if harm == "missing":
        path.unlink()
    elif harm == "short":
        path.write_bytes(b"x")
    elif harm == "outside":
        text = (tmp_path / MANIFEST_NAME).read_text()
        (tmp_path / MANIFEST_NAME).write_text(text.replace("tokenizer/tokenizer.json", "../../etc/hostname"))
    else:
        (tmp_path / MANIFEST_NAME).write_bytes(b"\xff")
    with pytest.raises(LibraryNotServed):
        Distribution().register(tmp_path)


def test_a_file_two_libraries_share_stays_when_one_goes(tmp_path: Path) -> None:
    distribution = Distribution()
    (one, first), (_, second) = make_library(tmp_path / "1"), make_library(tmp_path / "2", revision="2")
    for name in ("1", "2"):
        distribution.register(tmp_path / name)
    distribution.unregister(first)
    found = distribution.find(one.layer(0).bin.sha256)
    assert found == (tmp_path / "2" / one.layer(0).bin.path, one.layer(0).bin.size_bytes)
    assert distribution.find(first) is None
    assert distribution.find(second) is not None


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
async def test_a_transfer_of_100_mb_goes_on_exactly_where_it_was_cut(
    fleet: Fleet, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fleet.folder / "large"
    manifest, digest = make_library(folder, layers=10, unit_bytes=8_000_000)
    fleet.distribution.register(folder)
    total = sum(unit.size_bytes for unit in manifest.units)
    sent = cuts = 0

    async def cut_once(link: ServerConnection, find: Find, **options: Any) -> None:
        async def before_sending(size_bytes: int) -> None:
            nonlocal sent, cuts
            sent += size_bytes
            if sent > share * total and not cuts:
                cuts += 1
                link.transport.abort()

        await serve_files(link, find, **{**options, "before_sending": before_sending})

    monkeypatch.setattr("console.fleet.reception.serve_files", cut_once)
    fetcher, store = make_fetcher(fleet, Bulk(fleet))
    _, stage = await fetcher.fetch_range(digest, 0, 10, "s")
    assert cuts == 1
    assert total > 100_000_000
    assert fetcher.bytes_from[CONSOLE] == total + (folder / MANIFEST_NAME).stat().st_size  # nothing came twice
    for unit in manifest.units:
        assert store.read(unit.bin.sha256) == (stage / unit.bin.path).read_bytes()
