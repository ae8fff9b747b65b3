"""A chat link: where the server is, which authority its certificate is of, and a key, in one address to hand over.

`https://HOST:PORT/#pin=HEX&key=KEY`: what stands behind the # never leaves the program that opens it. No I/O.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote, urlsplit

import httpx2

from console.addresses import is_this_pc
from console.errors import ConsoleError

_PIN = re.compile("[0-9a-f]{64}")
_KEY = re.compile("[!-~]+")
MOST_CHARACTERS = 2000
AUTHORITY_PATH = "/authority.pem"
"""Where a service serves its roots, for who has only the pin of one."""
NOT_PRIVATE = "A key is sent to other PCs only over https; ask your administrator for the right address."


class ChatLinkInvalid(ConsoleError):
    """A text is no chat link."""


@dataclass(frozen=True, slots=True)
class ChatLink:
    """`url` has no path; `pin` is the SHA-256 of the authority's public key in hex, empty for the system's roots."""

    url: str
    key: str = field(repr=False)
    pin: str = ""

    def text(self) -> str:
        """Return the link, to be handed over like a password."""
        pin = f"pin={self.pin}&" if self.pin else ""
        return f"{self.url}/#{pin}key={quote(self.key, safe='')}"


def read_link(text: str) -> ChatLink:
    """Read a link. Raises ChatLinkInvalid, which repeats nothing of it."""
    invalid = ChatLinkInvalid("This is no chat link; copy all of it, from https:// to its end.")
    text = text.strip()
    if len(text) > MOST_CHARACTERS:
        raise invalid
    try:
        parts = urlsplit(text)
        said = parse_qs(parts.fragment, strict_parsing=True)
        keys, pins = said["key"], said.get("pin", [""])
    except (ValueError, KeyError):
        raise invalid from None
    url = server_url(f"{parts.scheme}://{parts.netloc}") if parts.netloc else ""
    if len(keys) != 1 or len(pins) != 1 or not url or not is_key(keys[0]):
        raise invalid
    if pins[0] and not _PIN.fullmatch(pins[0]):
        raise invalid
    return ChatLink(url, keys[0], pins[0])


def server_url(text: str) -> str:
    """Return the address of a server from what somebody typed, without a path; empty if it is none."""
    text = text.strip().rstrip("/")
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or " " in text:
        return ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    url = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
    try:
        # What looks an address up takes fewer names than URLs may have: no part of one is empty or longer than 63.
        parts.hostname.encode("idna")
        httpx2.URL(url)
    except (UnicodeError, httpx2.InvalidURL):
        return ""
    return url


def is_key(text: str) -> bool:
    """Say whether a text can be a key: only such letters can be sent as one."""
    return _KEY.fullmatch(text) is not None


def is_private(url: str) -> bool:
    """Say whether nobody on the way can read along: https, or this PC itself."""
    return urlsplit(url).scheme == "https" or is_this_pc(url)
