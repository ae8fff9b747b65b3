"""Which PC holds which model files, and who may fetch from whom. Event loop only.

PCs say what they hold when they connect and whenever that changes. One that asks gets a few holders, the nearest and
least asked first, each with a ticket that lives for five minutes. What a holder sends is checked by its hash, so a PC
that lies costs time and nothing else.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.link.bulk import MAX_LOCATED, Holder, Holders, Locate, answer_to
from agent.link.frames import Frame, FrameMalformed, FrameType
from agent.link.messages import Holding
from agent.link.parsing import UNREADABLE
from agent.link.tickets import LIFE_S, FileTicket, seal
from console.fleet.direct import MAX_ADDRESSES, is_usable

log = logging.getLogger(__name__)

MAX_HOLDERS = 4
"""Told at once: more would only share one reader's link."""
MAX_HELD = 100_000
SAME_SUBNET_BITS = {4: 24, 6: 64}
BUSY_S = 60.0
"""A holder counts as asked for so long; then it is as good as any other again."""


@dataclass
class _Peer:
    seen_at: str
    """Its address as the console sees it."""
    addresses: list[str] = field(default_factory=list)
    held: set[bytes] = field(default_factory=set)
    asked_s: list[float] = field(default_factory=list)


class Peers:
    """The index of what PCs hold. `key` signs tickets; `allowed` False: PCs never hear of each other."""

    def __init__(self, key: Ed25519PrivateKey, *, allowed: bool, now: Callable[[], float] = time.time) -> None:
        self._key = key
        self._allowed = allowed
        self._now = now
        self._peers: dict[str, _Peer] = {}
        self._holders: defaultdict[bytes, set[str]] = defaultdict(set)

    def joined(self, device: str, seen_at: str, held: Iterable[str]) -> None:
        """A PC connected and says what it holds."""
        self.left(device)
        self._peers[device] = _Peer(seen_at)
        self._add(device, held)

    def left(self, device: str) -> None:
        """A PC is gone."""
        peer = self._peers.pop(device, None)
        for key in peer.held if peer is not None else ():
            self._drop(device, key)

    def changed(self, device: str, message: Holding) -> None:
        """A PC got or lost files, or says where it can be reached."""
        peer = self._peers.get(device)
        if peer is None:
            return
        peer.addresses = [item for item in message.addresses if is_usable(item, peer.seen_at)][:MAX_ADDRESSES]
        self._add(device, message.added)
        for key in map(_key, message.removed):
            peer.held.discard(key)
            self._drop(device, key)

    def holds(self, device: str, sha256: Sequence[str]) -> bool:
        """Whether a PC has all of these files, as far as it said."""
        peer = self._peers.get(device)
        return peer is not None and peer.held.issuperset(map(_key, sha256))

    def answer(self, device: str, request: Frame) -> Frame | None:
        """Answer a LOCATE on a bulk link; None for any other frame. Raises FrameMalformed."""
        if request.type is not FrameType.LOCATE:
            return None
        try:
            asked = msgspec.msgpack.decode(request.table, type=Locate)
        except UNREADABLE as error:
            raise FrameMalformed(f"A LOCATE cannot be read: {error}") from None
        found = Holders(self.locate(device, asked.sha256[:MAX_LOCATED]))
        return answer_to(request, FrameType.HOLDERS, table=msgspec.msgpack.encode(found))

    def locate(self, reader: str, sha256: Sequence[str]) -> list[Holder]:
        """Return up to `MAX_HOLDERS` PCs `reader` may fetch some of these files from, the best first."""
        asking = self._peers.get(reader)
        if not self._allowed or asking is None:
            return []
        files: defaultdict[str, list[int]] = defaultdict(list)
        for place, name in enumerate(sha256):
            for device in self._holders.get(_key(name), ()):
                files[device].append(place)
        files.pop(reader, None)
        now_s = self._now()

        def order(device: str) -> tuple[bool, int, int, str]:
            peer = self._peers[device]
            peer.asked_s = [at_s for at_s in peer.asked_s if at_s > now_s - BUSY_S]
            return not _same_subnet(asking.seen_at, peer.seen_at), len(peer.asked_s), -len(files[device]), device

        chosen = sorted((device for device in files if self._peers[device].addresses), key=order)[:MAX_HOLDERS]
        for device in chosen:
            self._peers[device].asked_s.append(now_s)
        return [self._holder(reader, device, files[device]) for device in chosen]

    def _holder(self, reader: str, device: str, files: list[int]) -> Holder:
        ticket = seal(FileTicket(reader, device, self._now() + LIFE_S), self._key)
        return Holder(device, self._peers[device].addresses, ticket, files)

    def _add(self, device: str, names: Iterable[str]) -> None:
        peer = self._peers[device]
        for key in map(_key, names):
            if key and len(peer.held) < MAX_HELD:
                peer.held.add(key)
                self._holders[key].add(device)

    def _drop(self, device: str, key: bytes) -> None:
        holders = self._holders.get(key)
        if holders is not None:
            holders.discard(device)
            if not holders:
                del self._holders[key]


def _key(sha256: str) -> bytes:
    """Half the memory of the text; empty for what is none."""
    try:
        key = bytes.fromhex(sha256)
    except ValueError:
        return b""
    return key if len(key) == 32 else b""


def _same_subnet(one: str, other: str) -> bool:
    try:
        a, b = ipaddress.ip_address(one), ipaddress.ip_address(other)
    except ValueError:
        return False
    if a.version != b.version:
        return False
    bits = a.max_prefixlen - SAME_SUBNET_BITS[a.version]
    return int(a) >> bits == int(b) >> bits
