"""Tokens of those who want to stay signed in, in the system's keyring; nowhere else. No Qt here.

A keyring may wait for an unlock prompt that nobody sees: each call ends after `agent.link.keystore.DEADLINE_S`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from keyring.backend import KeyringBackend

from agent.link.keystore import DEADLINE_S, KeyringUnusable, NoKeyring, awaited_within_deadline, system_keyring

log = logging.getLogger(__name__)

SERVICE = "fallow/console windows"


class KeptTokens:
    """One token for each address. `find_backend` returns None where there is no keyring. For an event loop."""

    def __init__(
        self,
        find_backend: Callable[[], KeyringBackend | None] = system_keyring,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._find_backend = find_backend
        self._deadline_s = deadline_s

    async def read(self, url: str) -> str:
        """Return the token kept for an address, or an empty text. Raises KeyringUnusable."""
        kept = await awaited_within_deadline(
            lambda keyring: keyring.get_password(SERVICE, url), self._find_backend, self._deadline_s
        )
        return kept or ""

    async def keep(self, url: str, token: str) -> None:
        """Keep a token. Raises KeyringUnusable when the keyring does not have it then."""

        def store_and_check(keyring: KeyringBackend) -> bool:
            keyring.set_password(SERVICE, url, token)
            return keyring.get_password(SERVICE, url) == token

        if not await awaited_within_deadline(store_and_check, self._find_backend, self._deadline_s):
            raise KeyringUnusable("it returned another value than it was given")

    async def forget(self, url: str) -> None:
        """Let go of a token, as far as the keyring lets."""

        def forget(keyring: KeyringBackend) -> None:
            if keyring.get_password(SERVICE, url):
                keyring.delete_password(SERVICE, url)

        try:
            await awaited_within_deadline(forget, self._find_backend, self._deadline_s)
        except KeyringUnusable as error:
            log.info("The keyring lets nothing go: %s", error)


def unusable_text(error: KeyringUnusable) -> str:
    """Say as a clause why a token is not in the keyring."""
    return "this PC has no keyring" if isinstance(error, NoKeyring) else f"the keyring cannot be used ({error})"
