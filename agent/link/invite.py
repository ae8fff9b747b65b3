"""The invite: one line of text that lets a PC find its console, recognise it, and prove that it was invited.

    fallow1.<payload, base64url>.<8 check letters>

The payload is a msgpack array, so later versions may append fields. The check letters tell a damaged paste from an
invite that is merely too old. Mail programs and chats wrap, quote and decorate what people paste: `decode` undoes
that. Nothing here does I/O or asks a clock.
"""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from agent.link.errors import InviteDamaged, InviteExpired, InviteWrongVersion
from agent.link.identity import FLEET_ID
from agent.link.parsing import UNREADABLE
from shard_export.library.counts import counted

VERSION = 1
MAX_INVITE_CHARS = 1024
MAX_URLS = 4
_MAX_PASTE_CHARS = 64 * 1024
_PATTERN = re.compile(r"fallow(\d{1,3})\.([a-z0-9_-]+)\.([a-z2-7]{8})", re.IGNORECASE | re.ASCII)
_FOREIGN = re.compile(r"[^A-Za-z0-9_.-]")
_AGAIN = "copy the whole line again, or ask your administrator to resend it"


class Invite(msgspec.Struct, frozen=True, array_like=True):
    """What an invite says.

    `urls` are 1 to 4 addresses of one console (`wss://host:port`). `ca_spki_sha256` pins the fleet's authority.
    `token_secret` (16 bytes) never leaves the PC: it only keys a MAC. `expires_at_s` is Unix time.
    """

    fleet_id: str
    fleet_name: str
    urls: list[str]
    ca_spki_sha256: bytes
    token_id: bytes
    token_secret: bytes
    expires_at_s: int
    max_uses: int = 1
    approve: Literal["auto", "manual"] = "manual"
    hint: str = ""

    def __repr__(self) -> str:
        return f"Invite(fleet_id={self.fleet_id!r}, token_id={self.token_id.hex()})"


_decoder = msgspec.msgpack.Decoder(Invite)


def encode(invite: Invite) -> str:
    """Write an invite as text. Raises ValueError if its fields are not allowed or it gets longer than 1 KiB."""
    problem = _problem(invite)
    if problem:
        raise ValueError(f"an invite cannot be made: {problem}")
    payload = base64.urlsafe_b64encode(msgspec.msgpack.encode(invite)).decode().rstrip("=")
    body = f"fallow{VERSION}.{payload}"
    text = f"{body}.{_check(body)}"
    if len(text) > MAX_INVITE_CHARS:
        raise ValueError(f"an invite of {counted(len(text), 'character')} is too long: use fewer or shorter addresses")
    return text


def decode(text: str) -> Invite:
    """Find and read the invite in a pasted text. Its time is not checked: see `ensure_current`.

    Raises InviteDamaged or InviteWrongVersion.
    """
    found = _candidates(text)
    damaged = InviteDamaged(f"The text is not a whole invite; {_AGAIN}.")
    for version, payload, check in found:
        if version == VERSION and check == _check(f"fallow{version}.{payload}"):
            try:
                invite = _decoder.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
            except (ValueError, *UNREADABLE):
                raise damaged from None
            problem = _problem(invite)
            if problem:
                raise InviteDamaged(f"The invite cannot be used: {problem}; ask your administrator for a new one.")
            return invite
    versions = {version for version, _, _ in found} - {VERSION}
    if found and versions and VERSION not in {version for version, _, _ in found}:
        raise InviteWrongVersion(
            f"The invite is of version {max(versions)} and this Fallow reads version {VERSION}; update Fallow on this "
            "PC or ask for an invite from an up-to-date console."
        )
    raise damaged


def ensure_current(invite: Invite, now_s: float) -> None:
    """Raise InviteExpired if the invite's time is over. Prefer the console's clock for `now_s`."""
    if now_s >= invite.expires_at_s:
        ended = datetime.fromtimestamp(invite.expires_at_s, UTC)
        raise InviteExpired(f"The invite expired on {ended:%Y-%m-%d %H:%M} UTC; ask your administrator for a new one.")


def _candidates(text: str) -> list[tuple[int, str, str]]:
    if len(text) > _MAX_PASTE_CHARS:
        raise InviteDamaged("The text is far too long to be an invite; paste only the line that starts with fallow1.")
    # Compatibility forms turn full-width digits into digits; every other foreign character (byte order mark,
    # zero-width and direction marks, quotes, line ends, `> ` of a reply, `=` of a soft wrap) is dropped.
    cleaned = _FOREIGN.sub("", unicodedata.normalize("NFKC", text))
    return [(int(match[1]), match[2], match[3].lower()) for match in _PATTERN.finditer(cleaned)]


def _check(body: str) -> str:
    return base64.b32encode(hashlib.sha256(body.encode()).digest()[:5]).decode().lower()


def _problem(invite: Invite) -> str:
    """Say what makes the fields unusable, or return an empty text."""
    if (len(invite.ca_spki_sha256), len(invite.token_id), len(invite.token_secret)) != (32, 8, 16):
        return "its pin or token has the wrong length"
    if not FLEET_ID.fullmatch(invite.fleet_id):
        return "its fleet id is not one"
    if not 1 <= len(invite.urls) <= MAX_URLS:
        return f"it has {counted(len(invite.urls), 'address', 'addresses')} instead of 1 to {MAX_URLS}"
    if invite.max_uses < 1 or not 0 < invite.expires_at_s < 1 << 40:
        return "its limits are not valid"
    wrong = next((url for url in invite.urls if not _is_console_url(url)), None)
    return "" if wrong is None else "one of its addresses is not of the form wss://host:port"


def _is_console_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        return False
    plain = not (parts.username or parts.password or parts.query or parts.fragment or parts.path.strip("/"))
    return bool(parts.scheme == "wss" and parts.hostname and plain and port_is_valid and url.isprintable())
