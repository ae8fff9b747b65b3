"""Passphrases of private keys: of a service's credential, in the operating system's keyring, or in a file that says so.

A private key is an encrypted PKCS#8 file; only its passphrase (44 characters) lives here. Windows limits a keyring
entry to 2560 bytes, and Python's `ssl` loads keys from paths only: so the key itself is never the entry. Beside each
key lies a small `passphrase` file that tells where the passphrase is: a salt, with which it is derived from the
service's credential; the name of a keyring entry; or, where there is neither, the passphrase itself. The latter is
reported as protection `file`.
"""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import contextlib
import logging
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from keyring.backend import KeyringBackend

from agent.link.errors import IdentityMissing, IdentityUnreadable, KeyLocked
from agent.link.parsing import UNREADABLE
from agent.link.service_secret import CREDENTIAL, FindSecret, derived_passphrase, no_secret, service_secret

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

Protection = Literal["credential", "keyring", "file"]
DEADLINE_S = 10.0
"""A keyring may wait for an unlock prompt that nobody sees."""

_USER = "key"
_MAX_FILE_BYTES = 4096


class Passphrase:
    """A passphrase and where it is kept. Never shows its value in a representation."""

    __slots__ = ("protection", "value")

    def __init__(self, value: str, protection: Protection) -> None:
        self.value = value
        self.protection: Protection = protection

    def __repr__(self) -> str:
        return f"Passphrase(protection={self.protection!r})"


class _Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Content of a passphrase file."""

    protection: Protection
    service: str = ""
    passphrase: str = ""
    salt: str = ""


def ensure_private_folder(folder: Path) -> None:
    """Create `folder` for this user alone (0700); an existing one is narrowed."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)


def write_private(path: Path, data: bytes) -> None:
    """Replace `path` by `data` at once, readable by this user alone (0600); its folder must exist.

    Raises OSError; the former content is then untouched.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mkstemp creates with 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
        _flush_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _flush_folder(folder: Path) -> None:
    """Make a rename survive a power cut; Windows keeps renames in its journal and opens no folders."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def system_keyring() -> KeyringBackend | None:
    """Return this PC's keyring, or None. Call it off the event loop: it may talk to D-Bus.

    Only the operating system's own backends count, constructed directly: what an environment variable or a
    keyringrc names (plain text files, say) is not taken.
    """
    for backend in _system_backends():
        if backend.viable:
            found = backend()
            if sys.platform == "win32":
                # The default roams with the user's profile to other PCs; an identity belongs to one.
                found.persist = "local machine"  # type: ignore[attr-defined]
            return found
    return None


def _system_backends() -> list[type[KeyringBackend]]:
    if sys.platform == "win32":
        from keyring.backends.Windows import WinVaultKeyring

        return [WinVaultKeyring]
    if sys.platform == "darwin":
        from keyring.backends.macOS import Keyring as MacKeyring

        return [MacKeyring]
    from keyring.backends.kwallet import DBusKeyring
    from keyring.backends.SecretService import Keyring as SecretServiceKeyring

    return [SecretServiceKeyring, DBusKeyring]


class KeyringUnusable(Exception):
    """The keyring cannot be used now; the text is a clause, not a sentence."""


class NoKeyring(KeyringUnusable):
    """This PC has no keyring."""


def within_deadline(
    call: Callable[[KeyringBackend], _T],
    find_backend: Callable[[], KeyringBackend | None] = system_keyring,
    deadline_s: float = DEADLINE_S,
) -> _T:
    """Do something with the keyring and wait for it. Raises KeyringUnusable, which repeats nothing a backend said."""
    try:
        return _begun(call, find_backend).result(deadline_s)
    except TimeoutError:
        raise _silent(deadline_s) from None


async def awaited_within_deadline(
    call: Callable[[KeyringBackend], _T],
    find_backend: Callable[[], KeyringBackend | None] = system_keyring,
    deadline_s: float = DEADLINE_S,
) -> _T:
    """The same for an event loop, which goes on meanwhile."""
    try:
        return await asyncio.wait_for(asyncio.wrap_future(_begun(call, find_backend)), deadline_s)
    except TimeoutError:
        raise _silent(deadline_s) from None


def _begun(
    call: Callable[[KeyringBackend], _T], find_backend: Callable[[], KeyringBackend | None]
) -> concurrent.futures.Future[_T]:
    """Begin `call` in a thread of its own, which is left behind if it hangs."""
    answer: concurrent.futures.Future[_T] = concurrent.futures.Future()
    # From here on nobody can cancel it: who stopped waiting does not hear of it, that is all.
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            backend = find_backend()
            result = call(backend) if backend is not None else None
        except Exception as error:  # noqa: BLE001 - thread edge: each backend has its own exceptions
            # The text of a backend's exception is not repeated: it might quote what it was given.
            answer.set_exception(KeyringUnusable(f"it failed with {type(error).__name__}"))
        else:
            if backend is None:
                answer.set_exception(NoKeyring("this PC has none"))
            else:
                answer.set_result(result)  # type: ignore[arg-type]  # None only if T may be None

    threading.Thread(target=run, name="fallow-keyring", daemon=True).start()
    return answer


def _silent(deadline_s: float) -> KeyringUnusable:
    return KeyringUnusable(f"it did not answer within {deadline_s:g} s")


class Keystore:
    """Creates and reads passphrases. Every call may block up to `deadline_s` times two: not for the event loop.

    `label` appears in the keyring's own window (`fallow/<label>/...`). `find_backend` is asked once, inside the
    deadline; None (or a backend that fails while creating) means files. `find_secret` goes before both: where a service
    has a credential, that is meant.
    """

    def __init__(
        self,
        label: str,
        *,
        find_backend: Callable[[], KeyringBackend | None] = system_keyring,
        find_secret: FindSecret = service_secret,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._label = label
        self._find_backend = find_backend
        self._find_secret = find_secret
        self._deadline_s = deadline_s

    @classmethod
    def files_only(cls, label: str) -> Keystore:
        """A keystore that never asks a keyring (services without a session, tests)."""
        return cls(label, find_backend=lambda: None, find_secret=no_secret)

    def create(self, path: Path) -> Passphrase:
        """Make a new passphrase and remember at `path` where it is.

        Raises OSError if `path` cannot be written, KeyLocked if there is a credential that cannot be used.
        """
        secret = self._find_secret()
        if secret is not None:
            salt = secrets.token_hex(16)
            write_private(path, msgspec.json.encode(_Place("credential", salt=salt)))
            return Passphrase(derived_passphrase(secret, salt), "credential")
        value = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
        # One service name per entry: Windows renames entries, not atomically, when two users share a service.
        service = f"fallow/{self._label}/{secrets.token_hex(8)}"
        # Named before it is made: a keyring cannot be searched for an entry whose name was lost with the power.
        write_private(path, msgspec.json.encode(_Place("keyring", service=service)))
        if self._store(service, value):
            return Passphrase(value, "keyring")
        write_private(path, msgspec.json.encode(_Place("file", passphrase=value)))
        return Passphrase(value, "file")

    def read(self, path: Path) -> Passphrase:
        """Return the passphrase remembered at `path`.

        Raises IdentityMissing (no such file), IdentityUnreadable (damaged, or the keyring lost the entry) or
        KeyLocked (the keyring did not answer in time, or refused; the service's credential is not here); OSError for a
        file that is there and cannot be read now.
        """
        place = _read_place(path)
        if place.protection == "file":
            return Passphrase(place.passphrase, "file")
        if place.protection == "credential":
            secret = self._find_secret()
            if secret is None:
                raise KeyLocked(
                    f"This PC's key is protected by the credential {CREDENTIAL} of its service, which is not here; "
                    "start the service, or run this command with the same credential (systemd-run)."
                )
            return Passphrase(derived_passphrase(secret, place.salt), "credential")
        try:
            value = self._within_deadline(lambda keyring: keyring.get_password(place.service, _USER))
        except KeyringUnusable as error:
            raise KeyLocked(
                f"The keyring that holds this PC's key passphrase cannot be used ({error}); unlock it or log in to "
                "the desktop, then start again."
            ) from None
        if not value:
            raise IdentityUnreadable(
                f"The keyring no longer holds the entry {place.service}; enrol this PC again with a new invite."
            )
        return Passphrase(value, "keyring")

    def forget(self, path: Path) -> None:
        """Remove the passphrase remembered at `path`; never raises for a missing one.

        While the keyring cannot be used, `path` stays: nothing else knows the entry, and the next call may reach it.
        """
        with contextlib.suppress(IdentityMissing, IdentityUnreadable, NoKeyring, OSError):
            place = _read_place(path)
            if place.protection == "keyring":
                try:
                    self._within_deadline(partial(_delete_entry, place.service))
                except NoKeyring:
                    raise
                except KeyringUnusable as error:
                    _log.info("The keyring's entry %s is not deleted yet: %s", place.service, error)
                    return
        path.unlink(missing_ok=True)

    def _store(self, service: str, value: str) -> bool:
        def store_and_check(keyring: KeyringBackend) -> bool:
            keyring.set_password(service, _USER, value)
            return keyring.get_password(service, _USER) == value

        try:
            if self._within_deadline(store_and_check):
                return True
            reason = "it returned another value than it was given"
        except KeyringUnusable as error:
            reason = str(error)
        _log.info("The key's passphrase goes to a file, because the keyring cannot be used: %s", reason)
        return False

    def _within_deadline(self, call: Callable[[KeyringBackend], _T]) -> _T:
        return within_deadline(call, self._find_backend, self._deadline_s)


def _delete_entry(service: str, keyring: KeyringBackend) -> None:
    if keyring.get_password(service, _USER) is not None:
        keyring.delete_password(service, _USER)


def _read_place(path: Path) -> _Place:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise IdentityUnreadable(f"{path} is damaged; enrol this PC again with a new invite.")
        return msgspec.json.decode(path.read_bytes(), type=_Place)
    except FileNotFoundError:
        raise IdentityMissing(f"{path} does not exist; enrol this PC with an invite.") from None
    except UNREADABLE as error:
        raise IdentityUnreadable(
            f"{path} cannot be read ({type(error).__name__}); enrol this PC again with a new invite."
        ) from None
