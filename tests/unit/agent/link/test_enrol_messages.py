from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.link.enrol_messages import (
    MAX_ENROL_BYTES,
    Await,
    Diagnose,
    Diagnosis,
    EnrolHello,
    FromEnrollee,
    FromEnroller,
    Granted,
    Pending,
    Poll,
    Refused,
    Submit,
    await_content,
    decode_from_enrollee,
    decode_from_enroller,
    encode_enrol,
    submission_mac,
)
from agent.link.messages import MessageError
from tests.support.enrolment import make_facts


def make_submit(**fields: Any) -> Submit:
    values: dict[str, Any] = {
        "protocol": 1, "token_id": bytes(8), "csr": b"csr", "nonce": bytes(32), "facts": make_facts(), "mac": bytes(32),
    }  # fmt: skip
    return Submit(**(values | fields))


FROM_AGENT: list[FromEnrollee] = [
    make_submit(), Await(1, b"csr", bytes(32), b"sig", withdraw=True), Poll(), Diagnose(b"der"),
    Diagnose(spki_sha256="ab" * 32),
]  # fmt: skip
FROM_CONSOLE: list[FromEnroller] = [
    EnrolHello(1, 1, "fleet", "Fleet", 1.5, bytes(32), b"pem"),
    Pending(2.0),
    Granted("id", b"pem", b"pem"),
    Refused("code", "Sentence."),
    Diagnosis("ok", "Sentence."),
]


@pytest.mark.parametrize("message", FROM_AGENT, ids=lambda message: type(message).__name__)
def test_what_an_agent_says_is_understood_by_the_console_only(message: FromEnrollee) -> None:
    data = encode_enrol(message)
    assert decode_from_enrollee(data) == message
    with pytest.raises(MessageError):
        decode_from_enroller(data)


@pytest.mark.parametrize("message", FROM_CONSOLE, ids=lambda message: type(message).__name__)
def test_what_the_console_says_is_understood_by_an_agent_only(message: FromEnroller) -> None:
    data = encode_enrol(message)
    assert decode_from_enroller(data) == message
    with pytest.raises(MessageError):
        decode_from_enrollee(data)


@pytest.mark.parametrize(
    "message",
    [
        make_submit(token_id=bytes(9)),
        make_submit(csr=bytes(5000)),
        make_submit(nonce=b""),
        make_submit(mac=bytes(31)),
        make_submit(facts=make_facts(host="x" * 201)),
        make_submit(facts=make_facts(cores=-1)),
        make_submit(facts=make_facts(devices=["CPU"] * 33)),
        make_submit(facts=make_facts(key_protection="paper")),
        Await(1, bytes(5000), bytes(32), b""),
        Await(1, b"", bytes(31), b""),
        Await(1, b"", bytes(32), bytes(129)),
        Diagnose(bytes(9000)),
        Diagnose(spki_sha256="AB" * 32),
    ],
)
def test_fields_over_their_bounds_are_refused(message: FromEnrollee) -> None:
    with pytest.raises(MessageError, match="does not understand"):
        decode_from_enrollee(encode_enrol(message))


def test_text_is_no_message() -> None:
    decoders: list[Callable[[str], object]] = [decode_from_enrollee, decode_from_enroller]
    for decode in decoders:
        with pytest.raises(MessageError, match="text"):
            decode("{}")


def test_fields_of_a_later_version_are_ignored() -> None:
    fields = msgspec.msgpack.decode(encode_enrol(Poll())) | {"later": 1}
    assert decode_from_enrollee(msgspec.msgpack.encode(fields)) == Poll()


@settings(deadline=None)
@given(st.binary(max_size=600))
def test_any_bytes_are_understood_or_refused(data: bytes) -> None:
    for decode in (decode_from_enrollee, decode_from_enroller):
        with contextlib.suppress(MessageError):
            decode(data)


@settings(deadline=None)
@given(st.integers(0, 400), st.integers(1, 255))
def test_a_changed_byte_never_breaks_the_reader(place: int, change: int) -> None:
    data = bytearray(encode_enrol(make_submit(csr=bytes(120))))
    data[place % len(data)] ^= change
    with contextlib.suppress(MessageError):
        decode_from_enrollee(bytes(data))


def test_the_largest_allowed_messages_fit_the_link() -> None:
    facts = make_facts(host="x" * 200, devices=["y" * 200] * 32)
    assert len(encode_enrol(make_submit(csr=bytes(4096), facts=facts))) < MAX_ENROL_BYTES
    assert len(encode_enrol(Granted("i" * 200, bytes(4096), bytes(16 * 1024)))) < MAX_ENROL_BYTES


@pytest.mark.parametrize("part", range(5))
def test_the_mac_depends_on_every_part(part: int) -> None:
    parts = [bytes(32) for _ in range(5)]
    whole = submission_mac(*parts)
    parts[part] = b"\x01" + bytes(31)
    assert submission_mac(*parts) != whole


@pytest.mark.parametrize(
    "other",
    [
        (bytes(32), b"certificate", {"csr": b"another"}), (bytes(32), b"certificate", {"nonce": b"1" * 32}),
        (bytes(32), b"certificate", {"withdraw": True}), (bytes(32), b"another console's", {}),
        (b"1" * 32, b"certificate", {}),
    ],
)  # fmt: skip
def test_what_the_key_of_a_request_signs_depends_on_every_part(other: tuple[bytes, bytes, dict[str, Any]]) -> None:
    message = Await(1, b"csr", bytes(32), b"")
    nonce, certificate, changes = other
    changed = await_content(nonce, certificate, msgspec.structs.replace(message, **changes))
    assert changed != await_content(bytes(32), b"certificate", message)
    assert await_content(bytes(32), b"c", message) == await_content(
        bytes(32), b"c", msgspec.structs.replace(message, signature=b"x")
    )
