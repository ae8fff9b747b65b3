"""Where the server is and with which key: the address beside the chats, the key in the system's keyring only.

What cannot be kept is known for as long as the program runs, and that is said.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx2
import msgspec
from cryptography.hazmat.primitives.serialization import Encoding
from keyring.backend import KeyringBackend

from agent.link.authorities import MAX_AUTHORITIES_BYTES, pinned, read_authorities
from agent.link.credentials import trusting_context, unverified_context
from agent.link.keystore import KeyringUnusable, NoKeyring, awaited_within_deadline, system_keyring
from agent.link.parsing import UNREADABLE
from agent.threads import finish_in_thread
from console.access import Access
from console.chat.errors import LinkRefused, SecretsUnusable
from console.chat_link import AUTHORITY_PATH, NOT_PRIVATE, ChatLink, is_private
from console.data import write_whole
from console.errors import ClientError, DataFolderUnusable

log = logging.getLogger(__name__)

SERVICE = "fallow-chat"
CONNECT_S = 10.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChatAccess(Access):
    """An access that trusts one root only, if it has one: in memory, so that nothing has to be kept for it."""

    root_pem: str = ""

    def trust(self) -> ssl.SSLContext | bool:
        """Return whom to trust, as httpx wants it. Raises ClientError for what is no certificate."""
        if not self.root_pem:
            return True
        try:
            return trusting_context(self.root_pem.encode())
        except (ssl.SSLError, ValueError):
            raise ClientError(f"The certificate kept for {self.url} is damaged; sign in with a chat link.") from None


class _Kept(msgspec.Struct, frozen=True):
    """`account.json`. It is there as long as the keyring has the key for its address."""

    url: str
    root_pem: str = ""


class Account:
    """The account of one folder. One event loop."""

    def __init__(
        self,
        folder: Path,
        find_keyring: Callable[[], KeyringBackend | None] = system_keyring,
        *,
        keeps: bool = True,
    ) -> None:
        """`keeps` is false for who signs in for this once: nothing of it is kept, and what was kept stays."""
        self._folder = folder
        self._find_keyring = find_keyring
        self._keeps = keeps

    @property
    def _file(self) -> Path:
        return self._folder / "account.json"

    async def load(self) -> ChatAccess | None:
        """Return the account that was kept, or None.

        Raises SecretsUnusable when it or its key cannot be had now, LinkRefused when it must not be used.
        """
        kept = self._read()
        if kept is None:
            return None
        _refuse_public(kept.url)
        try:
            key = await self._with_keyring(lambda keyring: keyring.get_password(SERVICE, kept.url))
        except NoKeyring:
            raise SecretsUnusable("The keyring that has your key is not there; sign in again.") from None
        except KeyringUnusable as error:
            raise SecretsUnusable(
                f"The keyring of this PC cannot be used ({error}); unlock it and start again, or sign in."
            ) from None
        return None if key is None else ChatAccess(kept.url, key, root_pem=kept.root_pem)

    async def verify(self, link: ChatLink) -> ChatAccess:
        """Find the authority that a link pins, and return the way to the server; keeps nothing. Raises LinkRefused."""
        _refuse_public(link.url)
        if not link.pin or not link.url.startswith("https"):
            return ChatAccess(link.url, link.key)
        return ChatAccess(link.url, link.key, root_pem=_pinned(await _authorities(link.url), link.pin))

    async def keep(self, access: ChatAccess) -> str:
        """Keep an account for the next start in place of the former one; returns why it could not, as a clause.

        What cannot be kept whole changes nothing of what was kept before.
        """
        if not self._keeps:
            return "the link was given for this once"
        former = None
        with contextlib.suppress(SecretsUnusable):
            former = self._read()
        try:
            await self._with_keyring(lambda keyring: keyring.set_password(SERVICE, access.url, access.token))
        except NoKeyring:
            return "this PC has no keyring that could keep the key"
        except KeyringUnusable as error:
            return f"the keyring of this PC cannot be used ({error})"
        no_more = former.url if former is not None and former.url != access.url else ""
        try:
            await finish_in_thread(lambda: self._write(_Kept(access.url, access.root_pem)))
        except SecretsUnusable as error:
            if former is None or no_more:
                await self._drop_key(access.url)
            return str(error)
        if no_more:
            await self._drop_key(no_more)
        return ""

    async def forget(self) -> str:
        """Sign out: nothing of the account stays. Returns a clause about what does, and what to do about it."""
        if not self._keeps:
            return ""
        stays = ""
        try:
            if (kept := self._read()) is not None:
                await self._with_keyring(lambda keyring: _remove(keyring, kept.url))
        except SecretsUnusable:
            stays = f"{self._file} is damaged, so that a key of it may still be in the keyring"
        except KeyringUnusable as error:
            stays = f"the key is still in the keyring of this PC ({error})"
        if stays:
            stays += f"; remove the entry {SERVICE} there"
        try:
            self._file.unlink(missing_ok=True)
        except OSError as error:
            stays = f"{self._file} cannot be removed ({error.strerror}); remove it yourself"
        return stays

    def _read(self) -> _Kept | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_Kept)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SecretsUnusable(f"{self._file} cannot be read ({error.strerror}); sign in again.") from None
        except UNREADABLE:
            raise SecretsUnusable(f"{self._file} is damaged; sign in again.") from None

    def _write(self, kept: _Kept) -> None:
        """Write the file. Raises SecretsUnusable, whose text is a clause."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._file, msgspec.json.encode(kept), mode=0o600)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise SecretsUnusable(f"{self._folder} cannot be made ({reason}); free space or fix its rights") from None
        except DataFolderUnusable as error:
            raise SecretsUnusable(str(error).rstrip(".")) from None

    async def _drop_key(self, url: str) -> None:
        """Remove a key nobody needs any more from the keyring, which was just there."""
        try:
            await self._with_keyring(lambda keyring: _remove(keyring, url))
        except KeyringUnusable as error:
            log.warning("The key for %s is still in the keyring (%s); remove the entry %s there.", url, error, SERVICE)

    async def _with_keyring(self, call: Callable[[KeyringBackend], T]) -> T:
        """Do something with the keyring. Raises KeyringUnusable."""
        return await awaited_within_deadline(call, self._find_keyring)


def _refuse_public(url: str) -> None:
    """Raise LinkRefused where others could read the key on its way."""
    if not is_private(url):
        raise LinkRefused(NOT_PRIVATE)


async def _authorities(url: str) -> bytes:
    """Fetch the roots a server claims; nothing secret is sent, and nothing of it is trusted without the pin."""
    try:
        async with (
            httpx2.AsyncClient(verify=unverified_context(), trust_env=False, timeout=CONNECT_S) as http,
            http.stream("GET", url + AUTHORITY_PATH) as response,
        ):
            pem = b""
            async for data in response.aiter_bytes():
                pem += data
                if len(pem) > MAX_AUTHORITIES_BYTES:
                    break
    except httpx2.DecodingError:
        raise LinkRefused(_no_console(url)) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError):
        raise LinkRefused(f"The server at {url} cannot be reached; check your network and try again.") from None
    if response.is_error or len(pem) > MAX_AUTHORITIES_BYTES:
        raise LinkRefused(_no_console(url))
    return pem


def _no_console(url: str) -> str:
    return f"What answers at {url} is no Fallow console; ask for a new link."


def _pinned(pem: bytes, pin: str) -> str:
    """Return the one certificate that the pin means: whoever answers could have put others beside it."""
    try:
        root = pinned(read_authorities(pem), bytes.fromhex(pin))
    except ValueError:
        root = None
    if root is None:
        raise LinkRefused("The server is not the one this link means; ask your administrator for a new link.")
    return root.public_bytes(Encoding.PEM).decode()


def _remove(keyring: KeyringBackend, url: str) -> None:
    if keyring.get_password(SERVICE, url) is not None:
        keyring.delete_password(SERVICE, url)
