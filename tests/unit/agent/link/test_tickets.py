from __future__ import annotations

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from agent.link.errors import TicketRefused
from agent.link.tickets import LIFE_S, MAX_TICKET_BYTES, RouteTicket, seal, unseal
from agent.stage.types import Epoch, PipelineId

NOW_S = 1_800_000_000.0
KEY = Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw()
TICKET = RouteTicket(PipelineId(3), Epoch(7), 1, "ann", "bob", NOW_S + LIFE_S)


def code_of(data: bytes, public: bytes = PUBLIC, now_s: float = NOW_S) -> str:
    with pytest.raises(TicketRefused) as refused:
        unseal(data, public, now_s, RouteTicket)
    return refused.value.code


def test_a_sealed_ticket_opens() -> None:
    assert unseal(seal(TICKET, KEY), PUBLIC, NOW_S, RouteTicket) == TICKET


def test_a_ticket_of_another_console_is_refused() -> None:
    assert code_of(seal(TICKET, Ed25519PrivateKey.generate())) == "signature"


def test_a_bare_signature_over_the_body_is_no_ticket() -> None:
    body = msgspec.msgpack.encode(TICKET)
    assert code_of(KEY.sign(body) + body) == "signature"


def test_without_a_key_every_ticket_is_refused() -> None:
    assert code_of(seal(TICKET, KEY), public=b"") == "signature"


@pytest.mark.parametrize("now_s", [NOW_S + LIFE_S + 1, NOW_S - 2 * LIFE_S])
def test_a_ticket_is_good_for_minutes_only(now_s: float) -> None:
    assert code_of(seal(TICKET, KEY), now_s=now_s) == "expired"


def test_a_ticket_without_an_end_is_refused() -> None:
    assert code_of(seal(msgspec.structs.replace(TICKET, expires_s=float("nan")), KEY)) == "expired"


@pytest.mark.parametrize("size", [0, 64, MAX_TICKET_BYTES + 1])
def test_a_ticket_of_impossible_size_is_refused(size: int) -> None:
    assert code_of(b"x" * size) == "malformed"


@given(st.integers(min_value=0), st.integers(1, 255))
def test_every_changed_byte_is_found(at: int, flip: int) -> None:
    data = bytearray(seal(TICKET, KEY))
    data[at % len(data)] ^= flip
    assert code_of(bytes(data)) == "signature"


@given(st.binary(max_size=2 * MAX_TICKET_BYTES))
def test_any_bytes_are_refused_without_a_crash(data: bytes) -> None:
    assert code_of(data) in {"malformed", "signature"}
