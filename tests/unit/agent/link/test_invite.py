from __future__ import annotations

import base64
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.link.errors import InviteDamaged, InviteError, InviteExpired, InviteWrongVersion
from agent.link.invite import MAX_INVITE_CHARS, Invite, _check, decode, encode, ensure_current


def make_invite(**fields: Any) -> Invite:
    values: dict[str, Any] = {
        "fleet_id": "e39511756f80",
        "fleet_name": "Nordlicht",
        "urls": ["wss://console.corp.example:7443", "wss://10.1.2.3:7443"],
        "ca_spki_sha256": bytes(range(32)),
        "token_id": b"token-id",
        "token_secret": b"sixteen  secrets",
        "expires_at_s": 1_800_000_000,
    }
    return Invite(**(values | fields))


INVITE = make_invite()
TEXT = encode(INVITE)


def forge(payload: bytes, version: int = 1) -> str:
    """An invite with a right check around any payload."""
    body = f"fallow{version}." + base64.urlsafe_b64encode(payload).decode().rstrip("=")
    return f"{body}.{_check(body)}"


invites = st.builds(
    make_invite,
    fleet_name=st.text(max_size=60),
    urls=st.lists(
        st.builds("wss://{}:{}".format, st.from_regex(r"[a-z]{1,40}", fullmatch=True), st.integers(1, 65535)),
        min_size=1,
        max_size=4,
    ),
    ca_spki_sha256=st.binary(min_size=32, max_size=32),
    token_id=st.binary(min_size=8, max_size=8),
    token_secret=st.binary(min_size=16, max_size=16),
    expires_at_s=st.integers(1, 1 << 33),
    max_uses=st.integers(1, 10_000),
    approve=st.sampled_from(["auto", "manual"]),
    hint=st.text(max_size=40),
)


@settings(deadline=None)
@given(invites)
def test_an_invite_survives_its_text(invite: Invite) -> None:
    text = encode(invite)
    assert re.fullmatch(r"fallow1\.[A-Za-z0-9_-]+\.[a-z2-7]{8}", text)
    assert len(text) <= MAX_INVITE_CHARS
    assert decode(text) == invite


@settings(deadline=None)
@given(st.integers(0, len(TEXT) - 1), st.sampled_from("abcXYZ019-_."))
def test_a_changed_character_is_noticed(place: int, letter: str) -> None:
    damaged = TEXT[:place] + letter + TEXT[place + 1 :]
    try:
        assert decode(damaged) == INVITE
        assert damaged.lower()[-8:] == TEXT[-8:]
    except (InviteDamaged, InviteWrongVersion):
        assert damaged != TEXT


@settings(deadline=None)
@given(st.integers(0, len(TEXT) - 1))
def test_a_cut_invite_is_noticed(length: int) -> None:
    with pytest.raises(InviteDamaged, match="not a whole invite"):
        decode(TEXT[:length])


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_text_is_read_or_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InviteError) as refused:
        decode(text)
    assert str(refused.value).endswith(".")


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_payload_with_a_right_check_is_refused_cleanly(payload: bytes) -> None:
    with pytest.raises(InviteDamaged):
        decode(forge(payload))


@pytest.mark.parametrize(
    "dress",
    [
        "\ufeff{}",
        "\u200b{}\u200b\u2060",
        "\u202e{}\u202c",
        '"{}"',
        "\u201c{}\u201d",
        "<{}>",
        "  {}\r\n",
        "Your invite: {}",
        "fallow-agent enrol {}",
        "https://safe.example/?url=https%3A%2F%2Fx.example%2F%23{}&data=05%7C02",
        "{}\r\n-- \r\nSent from my telephone",
        "Hello,\n\nplease paste this:\n\n    {}\n\nKind regards,\nIT",
        "**{}**",
        "`{}`",
    ],
)
def test_what_mail_and_chat_add_is_removed(dress: str) -> None:
    assert decode(dress.format(TEXT)) == INVITE


@pytest.mark.parametrize("glue", ["\r\n", "\n> ", "=\r\n", " ", "\u00ad", "\u200b\n\t"])
@pytest.mark.parametrize("width", [10, 64, 76])
def test_wrapped_lines_are_joined(glue: str, width: int) -> None:
    assert decode(glue.join(TEXT[at : at + width] for at in range(0, len(TEXT), width))) == INVITE


def test_full_width_characters_are_read() -> None:
    wide = "".join(chr(ord(letter) + 0xFEE0) if letter.isascii() and letter != " " else letter for letter in TEXT)
    assert decode(wide) == INVITE


def test_a_capital_letter_at_the_start_is_forgiven() -> None:
    assert decode("F" + TEXT[1:]) == INVITE


def test_another_version_is_told_from_damage() -> None:
    with pytest.raises(InviteWrongVersion, match="version 2"):
        decode(forge(b"whatever comes then", version=2))


def test_fields_appended_by_a_later_console_are_ignored() -> None:
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(INVITE))
    assert decode(forge(msgspec.msgpack.encode([*fields, ["tag"]]))) == INVITE


def test_far_too_much_text_is_refused_before_it_is_searched() -> None:
    with pytest.raises(InviteDamaged, match="far too long"):
        decode(TEXT + " " * 70_000)


@pytest.mark.parametrize(
    "fields",
    [
        {"urls": []},
        {"urls": ["wss://a:1"] * 5},
        {"urls": ["ws://a:1"]},
        {"urls": ["file:///etc/passwd"]},
        {"urls": ["wss://user:pass@a:1"]},
        {"urls": ["wss://a:1/other"]},
        {"urls": ["wss://a:99999"]},
        {"urls": ["wss://[::1"]},
        {"urls": ["wss://"]},
        {"urls": ["wss://a\u202e:1"]},
        {"ca_spki_sha256": bytes(31)},
        {"token_id": b""},
        {"token_secret": bytes(17)},
        {"fleet_id": "../.."},
        {"fleet_id": ""},
        {"max_uses": 0},
        {"expires_at_s": 0},
    ],
)
def test_fields_that_are_not_allowed_are_neither_written_nor_read(fields: dict[str, Any]) -> None:
    invite = make_invite(**fields)
    with pytest.raises(ValueError, match="cannot be made"):
        encode(invite)
    with pytest.raises(InviteDamaged, match="cannot be used"):
        decode(forge(msgspec.msgpack.encode(invite)))


def test_ipv6_addresses_are_allowed() -> None:
    invite = make_invite(urls=["wss://[fd00::17]:7443"])
    assert decode(encode(invite)) == invite


def test_an_invite_over_a_kilobyte_is_not_made() -> None:
    with pytest.raises(ValueError, match="too long"):
        encode(make_invite(urls=[f"wss://{'a' * 250}:1"] * 4))


def test_an_invite_ends_at_its_second() -> None:
    ensure_current(INVITE, INVITE.expires_at_s - 0.5)
    with pytest.raises(InviteExpired, match="2027-01-15 08:00 UTC"):
        ensure_current(INVITE, INVITE.expires_at_s)


def test_the_secret_is_never_shown() -> None:
    assert "sixteen" not in repr(INVITE)
    assert "sixteen" not in str(INVITE)
