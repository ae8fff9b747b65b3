"""Bearer tokens: `flw-<id>-<secret>` is an API key, `fls-<id>-<secret>` somebody's login.

Only the SHA-256 of a whole token is stored; the id finds the row. The secret has 256 random bits, so a plain hash is
enough and a check costs one short read.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Literal

_TOKEN = re.compile(r"(flw|fls)-([0-9a-f]{12})-[A-Za-z0-9_-]{43}")
_NOBODY = bytes(32)

TokenKind = Literal["flw", "fls"]


def make_token(kind: TokenKind) -> tuple[str, str]:
    """Return a new id and its token."""
    token_id = secrets.token_hex(6)
    return token_id, f"{kind}-{token_id}-{secrets.token_urlsafe(32)}"


def token_id(token: str, kind: TokenKind) -> str | None:
    """Return the id in a token of this kind, None for anything else."""
    match = _TOKEN.fullmatch(token)
    return match[2] if match is not None and match[1] == kind else None


def token_hash(token: str) -> bytes:
    """Return what is stored of a token."""
    return hashlib.sha256(token.encode()).digest()


def is_same(token: str, stored: bytes | None) -> bool:
    """Compare a token with a stored hash in constant time; nothing is the same as None."""
    same = hmac.compare_digest(_NOBODY if stored is None else stored, token_hash(token))
    return same and stored is not None
