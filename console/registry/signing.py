"""Signs libraries and policies for agents: see `agent.link.signatures`.

The key lives in memory, for one run of the console.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding

from agent.link.signatures import sign_digest, sign_policy
from console.registry.authority import Authority
from console.registry.certificates import SERVER_LIFE


class Signer:
    """Signs digests and policies. A console that runs for half a year, or rotates its root, gets itself a new key."""

    def __init__(self, authority: Authority, now: Callable[[], float] = time.time) -> None:
        self._authority = authority
        self._now = now
        self._renew()

    def sign(self, digest: str) -> bytes:
        """Return the console's word for a library."""
        self._renew_if_due()
        return sign_digest(digest, self._key, self._certificate)

    def sign_policy(self, body: bytes) -> bytes:
        """Return the console's word for a policy's body."""
        self._renew_if_due()
        return sign_policy(body, self._key, self._certificate)

    def _renew_if_due(self) -> None:
        if self._now() > self._renew_s or self._authority.ca_spki_sha256 != self._root:
            self._renew()

    def _renew(self) -> None:
        self._root = self._authority.ca_spki_sha256
        self._key = Ed25519PrivateKey.generate()
        certificate = self._authority.issue_signer(self._key.public_key())
        self._certificate = certificate.public_bytes(Encoding.DER)
        self._renew_s = self._now() + SERVER_LIFE.total_seconds() / 2
