"""Where the server is and with which key: the address beside the chats, the key in the system's keyring only.

A PC without a keyring keeps the key for as long as the program runs, and says so.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import httpx2
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from keyring.backend import KeyringBackend

from agent.link.keys import spki_sha256
from agent.link.keystore import KeyringUnusable, NoKeyring, awaited_within_deadline, system_keyring
from console.access import Access
from console.chat.errors import LinkRefused, SecretsUnusable
from console.chat_link import AUTHORITY_PATH, ChatLink
from console.data import write_whole
from console.errors import DataFolderUnusable

SERVICE = "fallow-chat"
CONNECT_S = 10.0
MOST_PEM_BYTES = 1 << 17

T = TypeVar("T")


class _Address(msgspec.Struct, frozen=True):
    """`account.json`; the certificate of the server's authority is beside it."""

    url: str
    has_authority: bool = False


class Account:
    """The account of one folder. One event loop."""

    def __init__(self, folder: Path, find_keyring: Callable[[], KeyringBackend | None] = system_keyring) -> None:
        self._folder = folder
        self._find_keyring = find_keyring

    @property
    def _file(self) -> Path:
        return self._folder / "account.json"

    @property
    def _authority(self) -> Path:
        return self._folder / "authority.pem"

    async def load(self) -> Access | None:
        """Return the account that was kept, or None. Raises SecretsUnusable when its key cannot be had now."""
        try:
            address = msgspec.json.decode(self._file.read_bytes(), type=_Address)
        except (OSError, msgspec.MsgspecError):
            return None
        key = await self._with_keyring(lambda keyring: keyring.get_password(SERVICE, address.url))
        if key is None:
            return None
        return Access(address.url, key, self._authority if address.has_authority else None)

    async def verify(self, link: ChatLink) -> Access:
        """Find the authority that a link pins, and return the way to the server. Raises LinkRefused."""
        if not link.pin or not link.url.startswith("https"):
            return Access(link.url, link.key)
        root = _pinned(await _authorities(link.url), link.pin)
        self._write(self._authority, root)
        return Access(link.url, link.key, self._authority)

    async def keep(self, access: Access) -> bool:
        """Keep an account for the next start; returns whether the key could be kept. Raises SecretsUnusable."""
        address = _Address(access.url, access.authority is not None)
        self._write(self._file, msgspec.json.encode(address))
        try:
            await self._with_keyring(lambda keyring: keyring.set_password(SERVICE, access.url, access.token))
        except SecretsUnusable:
            return False
        return True

    async def forget(self) -> None:
        """Sign out: nothing of the account stays."""
        with contextlib.suppress(OSError, msgspec.MsgspecError, SecretsUnusable):
            address = msgspec.json.decode(self._file.read_bytes(), type=_Address)
            await self._with_keyring(lambda keyring: _remove(keyring, address.url))
        self._file.unlink(missing_ok=True)
        self._authority.unlink(missing_ok=True)

    def _write(self, path: Path, content: bytes) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, content, mode=0o600)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise SecretsUnusable(f"{self._folder} cannot be made ({reason}); free space or fix its rights.") from None
        except DataFolderUnusable as error:
            raise SecretsUnusable(str(error)) from None

    async def _with_keyring(self, call: Callable[[KeyringBackend], T]) -> T:
        """Do something with the keyring. Raises SecretsUnusable."""
        try:
            return await awaited_within_deadline(call, self._find_keyring)
        except NoKeyring:
            raise SecretsUnusable("This PC has no keyring, so the key is kept only until the program ends.") from None
        except KeyringUnusable as error:
            raise SecretsUnusable(
                f"The keyring of this PC cannot be used ({error}); unlock it and try again."
            ) from None


async def _authorities(url: str) -> bytes:
    """Fetch the roots a server claims; nothing secret is sent, and nothing of it is trusted without the pin."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with (
            httpx2.AsyncClient(verify=context, trust_env=False, timeout=CONNECT_S) as http,
            http.stream("GET", url + AUTHORITY_PATH) as response,
        ):
            pem = b""
            async for data in response.aiter_bytes():
                pem += data
                if len(pem) > MOST_PEM_BYTES:
                    break
    except httpx2.HTTPError:
        raise LinkRefused(f"The server at {url} cannot be reached; check your network and try again.") from None
    if response.is_error or len(pem) > MOST_PEM_BYTES:
        raise LinkRefused(f"What answers at {url} is no Fallow console; ask for a new link.")
    return pem


def _pinned(pem: bytes, pin: str) -> bytes:
    """Return the one certificate that the pin means: whoever answers could have put others beside it."""
    try:
        roots = x509.load_pem_x509_certificates(pem)
    except ValueError:
        roots = []
    for root in roots:
        public = root.public_key()
        if isinstance(public, ec.EllipticCurvePublicKey) and hmac.compare_digest(spki_sha256(public).hex(), pin):
            return root.public_bytes(Encoding.PEM)
    raise LinkRefused("The server is not the one this link means; ask your administrator for a new link.")


def _remove(keyring: KeyringBackend, url: str) -> None:
    if keyring.get_password(SERVICE, url) is not None:
        keyring.delete_password(SERVICE, url)
