"""Tokens of those who want to stay signed in, in the system's keyring; nowhere else. No Qt here.

All calls may wait for the keyring: not for the GUI thread. What a keyring refuses costs only the comfort.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from keyring.backend import KeyringBackend

from agent.link.keystore import system_keyring

log = logging.getLogger(__name__)

SERVICE = "fallow/console windows"


class KeptTokens:
    """One token for each address. `find_backend` returns None where there is no keyring."""

    def __init__(self, find_backend: Callable[[], KeyringBackend | None] = system_keyring) -> None:
        self._find_backend = find_backend

    def read(self, url: str) -> str:
        """Return the token kept for an address, or an empty text."""
        try:
            backend = self._find_backend()
            return (backend.get_password(SERVICE, url) or "") if backend else ""
        except Exception as error:  # noqa: BLE001 - each keyring has its own exceptions
            log.info("The keyring cannot be read: %s", type(error).__name__)
            return ""

    def keep(self, url: str, token: str) -> bool:
        """Keep a token. Returns whether the keyring has it now."""
        try:
            backend = self._find_backend()
            if backend is None:
                return False
            backend.set_password(SERVICE, url, token)
            return backend.get_password(SERVICE, url) == token
        except Exception as error:  # noqa: BLE001 - each keyring has its own exceptions
            log.info("The keyring takes nothing: %s", type(error).__name__)
            return False

    def forget(self, url: str) -> None:
        """Let go of a token."""
        try:
            backend = self._find_backend()
            if backend is not None and backend.get_password(SERVICE, url):
                backend.delete_password(SERVICE, url)
        except Exception as error:  # noqa: BLE001 - each keyring has its own exceptions
            log.info("The keyring lets nothing go: %s", type(error).__name__)
