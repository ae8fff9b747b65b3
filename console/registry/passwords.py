"""Passwords: Argon2id with the parameters OWASP recommends, from `cryptography`. Blocks for about 0.1 s."""

from __future__ import annotations

import functools
import secrets

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from console.registry.errors import PasswordUnfit

MIN_CHARACTERS, MAX_BYTES = 10, 1024
_MEMORY_KIB, _PASSES = 19_456, 2


def hash_password(password: str) -> str:
    """Return the salted hash to store. Raises PasswordUnfit."""
    data = password.encode("utf-8", "replace")
    if len(password) < MIN_CHARACTERS or len(data) > MAX_BYTES:
        raise PasswordUnfit(f"A password has at least {MIN_CHARACTERS} characters and at most {MAX_BYTES} bytes.")
    return _derive(data)


def matches(password: str, stored: str | None) -> bool:
    """Whether a password is the one a hash was made of. Takes the same time for None, which nothing matches."""
    data = password.encode("utf-8", "replace")
    if len(data) > MAX_BYTES:
        return False
    try:
        Argon2id.verify_phc_encoded(data, stored or _nobodys())
    except InvalidKey:
        return False
    return stored is not None


def _derive(data: bytes) -> str:
    salt = secrets.token_bytes(16)
    deriver = Argon2id(salt=salt, length=32, iterations=_PASSES, lanes=1, memory_cost=_MEMORY_KIB)
    return deriver.derive_phc_encoded(data)


@functools.cache
def _nobodys() -> str:
    """A hash nothing matches: checking it takes as long as a real one, so the time does not tell which names exist."""
    return _derive(secrets.token_bytes(32))
