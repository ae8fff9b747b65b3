"""What is fuzzed: each target reads bytes nobody vouches for, and may only accept them or raise its own error.

A target also checks what it promises of bytes it accepted: that they mean the same when written again, and that nothing
of them can be used to get out of a folder, past a limit or into a loop.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import io
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.link.bulk import Locate
from agent.link.cutter import FrameCutter
from agent.link.enrol_messages import (
    Await,
    Diagnose,
    Facts,
    Poll,
    Submit,
    decode_from_enrollee,
    decode_from_enroller,
    encode_enrol,
)
from agent.link.errors import InviteError, SignatureRefused, TicketRefused
from agent.link.frames import HEADER, Fetch, Frame, FrameError, FrameType, decode, encode, kind_and_step, peek
from agent.link.invite import VERSION, Invite
from agent.link.invite import decode as decode_invite
from agent.link.invite import encode as encode_invite
from agent.link.manifests import parse_manifest
from agent.link.messages import (
    FetchLayers,
    Goodbye,
    Heartbeat,
    Holding,
    LayerRange,
    MarkKept,
    MessageError,
    decode_from_agent,
    decode_from_console,
    encode_message,
)
from agent.link.signatures import check_digest, sign_digest
from agent.link.stage_messages import StageFailed
from agent.link.store_errors import ManifestBad
from agent.link.tickets import FileTicket, RouteTicket, seal, unseal
from agent.stage.types import Epoch, Nack, PipelineId, Row, StepTable, StreamId
from agent.update.archives import is_inside
from agent.update.errors import ReleaseRefused
from agent.update.releases import MAX_ARCHIVE_BYTES, MAX_UNPACKED_BYTES, SignedRelease, decode_signed, encode_signed
from agent.update.trust import read_unverified
from console.fleet.peers import Peers
from shard_export.library.manifest import encode_manifest
from tests.support.libraries import make_library
from tests.support.releases import make_release


@dataclass(frozen=True)
class Target:
    """`check` raises for a fault and for nothing else; `seeds` are good inputs to start from."""

    check: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]


def _expect_sentence(refused: Exception) -> None:
    assert str(refused).endswith(".")


# --- frames


def check_frames(data: bytes) -> None:
    """Read bytes as one frame, as they are and with a right CRC, and as a stream in pieces."""
    for frame in (data, _sealed(data)):
        _check_frame(frame)
        _check_stream(frame)


def _sealed(data: bytes) -> bytes:
    """Put a right CRC into what may be a header, so that what lies behind that check is reached, too."""
    if len(data) < HEADER.size:
        return data
    head, body = data[: HEADER.size - 4], data[HEADER.size :]
    return head + zlib.crc32(body, zlib.crc32(head)).to_bytes(4, "little") + body


def _check_frame(data: bytes) -> None:
    try:
        frame = decode(data)
    except FrameError:
        return
    assert encode(frame) == data
    header = peek(data)
    assert header == (frame.type, frame.pipeline, frame.epoch, frame.step, frame.sequence, frame.stage)
    assert kind_and_step(data) == (frame.type, frame.step)
    with contextlib.suppress(FrameError):
        _PEERS.answer("reader", frame)


def _check_stream(data: bytes) -> None:
    """Cut a stream that arrives in pieces whose length the bytes themselves say."""
    seen: list[bytes] = []
    cutter = FrameCutter(seen.append, max_bytes=1 << 16)
    step = 1 + (data[-1] if data else 0)
    with contextlib.suppress(FrameError):
        for start in range(0, len(data), step):
            cutter.feed(data[start : start + step])
    assert data.startswith(b"".join(seen))


_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
_PUBLIC = _KEY.public_key().public_bytes_raw()
_PEERS = Peers(_KEY, allowed=True, now=lambda: 0.0)
_PEERS.joined("reader", "10.0.0.1", [])


def _frame_seeds() -> list[bytes]:
    hidden = np.arange(16, dtype=np.float32).reshape(2, 8)
    step = msgspec.msgpack.encode(StepTable([Row(StreamId(1), 0, 2)]))
    locate = msgspec.msgpack.encode(Locate(["0" * 64]))
    fetch = msgspec.msgpack.encode(Fetch("0" * 64, 0, 100))
    nack = msgspec.msgpack.encode(Nack(1, "gone", "A PC is gone."))
    return [
        encode(Frame(FrameType.STEP, 1, 1, 7, 9, 1, step, hidden)),
        encode(Frame(FrameType.TOKENS, 1, 1, 7, 9, 1, b"", np.arange(3, dtype=np.int32))),
        encode(Frame(FrameType.CHUNK, 0, 0, 0, 0, 0, b"", np.frombuffer(b"abc", np.uint8), 1)),
        encode(Frame(FrameType.LOCATE, 0, 0, 0, 0, 0, locate, None)),
        encode(Frame(FrameType.FETCH, 0, 0, 0, 0, 0, fetch, None)) * 2,
        encode(Frame(FrameType.NACK, 1, 1, 7, 9, 1, nack, None)),
    ]


# --- invites


def check_invites(data: bytes) -> None:
    """Read bytes as a pasted text, and as the content of an invite whose check letters are right."""
    _check_invite(data.decode("utf-8", "replace"))
    body = f"fallow{VERSION}.{base64.urlsafe_b64encode(data).decode().rstrip('=')}"
    check = base64.b32encode(hashlib.sha256(body.encode()).digest()[:5]).decode().lower()
    _check_invite(f"{body}.{check}")


def _check_invite(text: str) -> None:
    try:
        invite = decode_invite(text)
    except InviteError as refused:
        _expect_sentence(refused)
        return
    assert 1 <= len(invite.urls) <= 4
    assert all(url.casefold().startswith("wss://") for url in invite.urls)
    with contextlib.suppress(ValueError):  # longer than an invite may be, but harmless
        assert decode_invite(encode_invite(invite)) == invite


def _invite_seeds() -> list[bytes]:
    invite = Invite("fleet-1", "Fleet", ["wss://10.0.0.1:8461"], bytes(32), bytes(8), bytes(16), 1 << 31)
    text = encode_invite(invite)
    wrapped = "\r\n> ".join(text[start : start + 60] for start in range(0, len(text), 60))
    return [text.encode(), f"\ufeff“{wrapped}”".encode(), msgspec.msgpack.encode(invite)]


# --- manifests


def check_manifests(data: bytes) -> None:
    """Read bytes as a manifest, and as changes of a good one."""
    _check_manifest(data)
    _check_manifest(_altered(data))


def _check_manifest(data: bytes) -> None:
    """What is accepted is whole, and every file of it stays in its folder, on every system."""
    try:
        manifest = parse_manifest(data)
    except ManifestBad as refused:
        _expect_sentence(refused)
        return
    count = manifest.layer_count
    assert {unit.name for unit in manifest.units_of_range(0, count)} <= {unit.name for unit in manifest.units}
    assert manifest.units_of_range(count - 1, count)
    for record in manifest.files():
        assert len(record.sha256) == 64
        assert 0 <= record.size_bytes < 1 << 45
        assert "\0" not in record.path
        for root in (PurePosixPath("/store"), PureWindowsPath("C:/store")):
            path = root / record.path
            assert path.is_relative_to(root)
            assert path != root
            assert ".." not in path.parts
    names = {(record.path.casefold(), record.sha256) for record in manifest.files()}
    assert len(names) == len({name for name, _ in names})
    assert parse_manifest(encode_manifest(manifest)) == manifest


def _altered(data: bytes) -> bytes:
    """Change a few values of a good manifest as the bytes say: which, and into what."""
    plain, stream = msgspec.json.decode(_manifest_seeds()[0]), io.BytesIO(data)
    places = list(_values(plain))
    while len(head := stream.read(4)) == 4 and stream.tell() < 64:
        container, key = places[int.from_bytes(head[:2], "little") % len(places)]
        content = stream.read(head[3] % 32)
        other, its_key = places[len(content) * 7 % len(places)]
        changes: list[Any] = [
            int.from_bytes(content, "little", signed=True), content.decode("utf-8", "replace"), other[its_key],
            f"units/{content.decode('latin-1')}", None,
        ]  # fmt: skip
        container[key] = changes[head[2] % len(changes)]
    return msgspec.json.encode(plain)


def _values(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a tree that holds no further tree."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        if isinstance(value[key], dict | list) and value[key]:
            yield from _values(value[key])
        else:
            yield value, key


@functools.cache
def _manifest_seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        manifest, _ = make_library(Path(folder), layers=2, unit_bytes=32)
    plain = msgspec.json.encode(manifest)
    return [plain, plain.replace(b"units/000.xml", b"../units/000.xml"), plain.replace(b"{", b'{"x":[[[[]]]],')]


# --- messages


def check_messages(data: bytes) -> None:
    """Read bytes as each kind of message, ticket and signature there is."""
    for reader in (decode_from_agent, decode_from_console, decode_from_enrollee, decode_from_enroller):
        with contextlib.suppress(MessageError):
            reader(data)
    with contextlib.suppress(TicketRefused):
        unseal(data, _PUBLIC, 0.0, FileTicket)
    body = data[:900]
    with contextlib.suppress(TicketRefused):  # signed by the right key, and still not a ticket
        unseal(_KEY.sign(b"fallow route ticket 1\0" + body) + body, _PUBLIC, 0.0, RouteTicket)
    with contextlib.suppress(SignatureRefused):
        check_digest(data, "0" * 64, [], 0.0)
        raise AssertionError("a library was believed that nobody signed")


def _message_seeds() -> list[bytes]:
    facts = Facts("pc", "Linux", "x86_64", "1")
    layers = LayerRange("0" * 64, 0, 4)
    return [
        encode_message(Heartbeat(1 << 30, "held", ["user"])),
        encode_message(Holding(["10.0.0.1:8470"], ["0" * 64], [])),
        encode_message(MarkKept("a-1")),
        encode_message(StageFailed(PipelineId(1), Epoch(1), 0, "died", "It ended.")),
        encode_message(FetchLayers(layers, b"signature")),
        encode_message(Goodbye("stopping", "It stops.")),
        encode_enrol(Submit(1, bytes(8), b"csr" * 50, bytes(32), facts, bytes(32))),
        encode_enrol(Diagnose(b"der" * 90)),
        encode_enrol(Await(1, b"csr" * 50, bytes(32), b"signature" * 8)),
        encode_enrol(Poll()),
        seal(FileTicket("reader", "holder", 60.0), _KEY),
        sign_digest("0" * 64, _KEY, b"der"),
    ]


# --- releases


def check_releases(data: bytes) -> None:
    """Read bytes as a signed release, as each document of a good one, and as what somebody has put into one."""
    with contextlib.suppress(ReleaseRefused):
        decode_signed(data)
    good = decode_signed(_release_seeds()[0])
    payload = base64.b64encode(data).decode()
    wrapped = msgspec.json.encode({"payload": payload, "payloadType": "application/vnd.tuf+json", "signatures": []})
    for document in (data, wrapped):
        for name in ("timestamp", "targets"):
            _check_release(msgspec.structs.replace(good, **{name: document}))


def _check_release(signed: SignedRelease) -> None:
    """What is accepted is within every limit, and its archive has a name that leads nowhere else."""
    try:
        release = read_unverified(signed)
    except ReleaseRefused as refused:
        _expect_sentence(refused)
        return
    assert 0 < release.size_bytes <= MAX_ARCHIVE_BYTES
    assert 0 < release.description.unpacked_bytes <= MAX_UNPACKED_BYTES
    assert is_inside(release.archive)
    assert "/" not in release.archive
    assert len(release.sha256) == 64


@functools.cache
def _release_seeds() -> list[bytes]:
    signed = make_release()
    return [
        encode_signed(signed),
        signed.timestamp,
        signed.targets,
        *map(_payload_of, (signed.timestamp, signed.targets)),
    ]


def _payload_of(document: bytes) -> bytes:
    return base64.b64decode(msgspec.json.decode(document)["payload"])


TARGETS = {
    "frames": Target(check_frames, _frame_seeds),
    "invites": Target(check_invites, _invite_seeds),
    "manifests": Target(check_manifests, _manifest_seeds),
    "messages": Target(check_messages, _message_seeds),
    "releases": Target(check_releases, _release_seeds),
}
