"""Whatever a stranger sends to the open door is answered or refused: nothing breaks, and nobody gets in."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.link.enrol_messages import (
    Await,
    Diagnose,
    Diagnosis,
    Facts,
    FromEnrollee,
    Poll,
    Refused,
    Renew,
    Submit,
    decode_from_enrollee,
    decode_from_enroller,
    encode_enrol,
)
from agent.link.errors import InviteError
from agent.link.invite import decode
from agent.link.keystore import Keystore
from agent.link.messages import MessageError
from console.fleet.admission import Admission
from console.registry.authority import Authority
from console.registry.registry import Registry

short = st.text(max_size=40)
facts = st.builds(
    Facts,
    host=short, os=short, arch=short, version=short, key_protection=st.sampled_from(["keyring", "file"]),
    cores=st.integers(0, 1 << 20), memory_bytes=st.integers(0, 1 << 50), devices=st.lists(short, max_size=4),
    machine_sha256=st.text(max_size=64),
)  # fmt: skip
nonces = st.binary(min_size=32, max_size=32)
submits = st.builds(
    Submit,
    protocol=st.integers(-1, 3), token_id=st.binary(min_size=8, max_size=8), csr=st.binary(max_size=600), nonce=nonces,
    facts=facts, mac=nonces,
)  # fmt: skip
renewals = st.builds(
    Renew,
    protocol=st.integers(-1, 3), certificate=st.binary(max_size=900), csr=st.binary(max_size=600),
    generation=st.integers(0, 1 << 40), nonce=nonces, signature=st.binary(max_size=128),
)  # fmt: skip
waits = st.builds(
    Await,
    protocol=st.integers(-1, 3), csr=st.binary(max_size=600), nonce=nonces, signature=st.binary(max_size=128),
    withdraw=st.booleans(),
)  # fmt: skip
questions = st.builds(
    Diagnose, certificate=st.binary(max_size=900), spki_sha256=st.one_of(st.just("ab" * 32), st.just("0" * 64))
)
TOLERANT = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def admission(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admission]:
    folder = tmp_path_factory.mktemp("admission")
    authority = Authority.open(folder / "authority", Keystore.files_only("test"))
    with Registry.open(folder / "registry.sqlite3") as registry:
        registry.invites.create(approve="auto", max_uses=9)
        yield Admission(registry, authority)
        assert registry.devices.list() == []


@TOLERANT
@given(st.one_of(submits, renewals, waits, questions))
def test_any_well_formed_message_is_refused_without_harm(admission: Admission, message: FromEnrollee) -> None:
    heard = decode_from_enrollee(encode_enrol(message))
    nonce = bytes(32)
    if isinstance(heard, Submit):
        device, reply = admission.submit(heard, nonce, "10.0.0.1")
        assert device is None
        assert isinstance(reply, Refused)
    elif isinstance(heard, Await):
        device, reply = admission.awaited(heard, nonce, "10.0.0.1")
        assert device is None
        assert isinstance(reply, Refused)
    elif isinstance(heard, Renew):
        assert isinstance(admission.renew(heard, nonce, "10.0.0.1"), Refused)
    elif isinstance(heard, Diagnose):
        told = admission.diagnose(heard, None)
        assert isinstance(told, Diagnosis)
        assert told.code != "ok"


@TOLERANT
@given(st.binary(max_size=2000))
def test_any_bytes_are_a_message_or_an_error_of_ours(data: bytes) -> None:
    for read in (decode_from_enrollee, decode_from_enroller):
        with contextlib.suppress(MessageError):
            read(data)


SAMPLES: list[FromEnrollee] = [
    Submit(1, bytes(8), b"csr" * 50, bytes(32), Facts("pc", "Linux", "x86_64", "1"), bytes(32)),
    Renew(1, b"der" * 90, b"csr" * 50, 3, bytes(32), b"signature" * 8),
    Await(1, b"csr" * 50, bytes(32), b"signature" * 8),
    Diagnose(b"der" * 90),
    Poll(),
]


def test_every_message_to_the_open_door_is_among_the_samples() -> None:
    assert {type(sample) for sample in SAMPLES} == set(get_args(FromEnrollee))


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Flip, cut, double or insert a little, as transmission and attackers do."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(4):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << chance.randrange(8)
            case 1:
                del changed[at : at + chance.randint(1, 40)]
            case 2:
                changed[at:at] = changed[: chance.randint(0, 40)]
            case _:
                changed[at:at] = chance.randbytes(chance.randint(1, 8))
    return bytes(changed)


def hammer(rounds: int, admission: Admission) -> None:
    chance = random.Random(20261129)
    lines = ["fallow1.AAAA.aaaaaaaa", "fallow1." + "A" * 300 + ".abcdefgh"]
    for number in range(rounds):
        sample = SAMPLES[number % len(SAMPLES)]
        try:
            heard = decode_from_enrollee(mutated(encode_enrol(sample), chance))
        except MessageError:
            heard = None
        if isinstance(heard, Renew):
            assert isinstance(admission.renew(heard, bytes(32), ""), Refused)
        elif isinstance(heard, Submit):
            assert admission.submit(heard, bytes(32), "")[0] is None
        elif isinstance(heard, Await):
            assert admission.awaited(heard, bytes(32), "")[0] is None
        elif isinstance(heard, Diagnose):
            admission.diagnose(heard, None)
        with pytest.raises(InviteError):
            decode(mutated(lines[number % 2].encode(), chance).decode("utf-8", "replace"))


def test_damaged_messages_and_invites_are_refused(admission: Admission) -> None:
    hammer(500, admission)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_damaged_messages_and_invites_are_refused(admission: Admission) -> None:
    hammer(100_000, admission)


def test_what_is_far_too_long_is_refused_before_it_is_looked_at() -> None:
    long = Facts("h" * 201, "", "", "")
    with pytest.raises(MessageError):
        decode_from_enrollee(encode_enrol(msgspec.structs.replace(SAMPLES[0], facts=long)))
