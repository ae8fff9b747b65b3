"""The secret a service manager hands to a service: what protects keys where nobody logs in and no keyring opens.

systemd decrypts a credential at the start of a service, with the machine's TPM or a key of the machine that only root
reads, into a folder in memory that only this service sees (`LoadCredentialEncrypted=`). Its content stays the same
for good, so each key's passphrase is derived from it and from a salt of its own.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from agent.link.errors import KeyLocked

CREDENTIAL = "fallow.key"
LEAST_BYTES, MOST_BYTES = 32, 4096
_PURPOSE = b"fallow passphrase 1"

FindSecret = Callable[[], bytes | None]
"""Returns the secret, or None where no service manager gave one. Raises KeyLocked."""


def service_secret() -> bytes | None:
    """Read this service's credential; None without one.

    Raises KeyLocked for one that cannot be read or is too short: falling back to a file would hide the mistake.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "")
    path = Path(folder) / CREDENTIAL
    if not folder or not path.exists():
        return None
    try:
        with path.open("rb") as file:
            secret = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise KeyLocked(
            f"The credential {CREDENTIAL} of this service cannot be read ({error.strerror}); check its unit file."
        ) from None
    if not LEAST_BYTES <= len(secret) <= MOST_BYTES:
        raise KeyLocked(
            f"The credential {CREDENTIAL} of this service has {len(secret)} bytes instead of {LEAST_BYTES} to "
            f"{MOST_BYTES}; make a new one of random bytes."
        )
    return secret


def no_secret() -> None:
    """Stand in for `service_secret` where none is to be looked for."""


def derived_passphrase(secret: bytes, salt: str) -> str:
    """Return the passphrase (44 characters) of the key with this salt: HKDF of RFC 5869 with SHA-256."""
    key = HKDF(algorithm=SHA256(), length=32, salt=salt.encode(), info=_PURPOSE).derive(secret)
    return base64.urlsafe_b64encode(key).decode()
