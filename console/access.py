"""Where a service is and who asks it: what every client of a console begins with."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import msgspec

from console.data import ServiceFile, admin_key_path, service_file_path
from console.errors import ClientError, ServiceUnreachable

MOST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Access:
    """A service and who asks it.

    `token` is an API key or a session's; `authority` the PEM of the fleet's CA for https (None: the system's roots).
    """

    url: str
    token: str = field(repr=False)
    authority: Path | None = None

    def address(self) -> httpx2.URL:
        """Return the service's address, as httpx wants it. Raises ClientError for a text that is none."""
        try:
            address = httpx2.URL(self.url)
        except httpx2.InvalidURL as error:
            raise ClientError(f"{self.url} is no address of a service ({error}); correct it.") from None
        if address.port is not None and address.port > MOST_PORT:
            raise ClientError(f"{self.url} is no address of a service: ports end at {MOST_PORT}; correct it.")
        return address

    def headers(self) -> dict[str, str]:
        """Return the headers of every request. Raises ClientError for a token that no header can carry."""
        if not (self.token.isascii() and self.token.isprintable()):
            raise ClientError("The key has letters that no key has; copy all of it once more, and nothing else.")
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def trust(self) -> ssl.SSLContext | bool:
        """Return whom to trust, as httpx wants it. Raises ClientError for a file that cannot be read."""
        if self.authority is None:
            return True
        try:
            return ssl.create_default_context(cafile=self.authority)
        except OSError as error:
            reason = error.strerror or "it is no certificate"
            raise ClientError(f"The certificate file {self.authority} cannot be used: {reason}.") from None

    def authority_as_of(self) -> tuple[int, int] | None:
        """Return what is another value once the certificate file is another: a new root comes into the same file."""
        if self.authority is None:
            return None
        try:
            seen = self.authority.stat()
        except OSError:
            return None
        return seen.st_mtime_ns, seen.st_size


def access_of(folder: Path) -> Access:
    """Find the service of a data folder on this PC and its admin key.

    Raises ServiceUnreachable when none runs, ClientError when its files cannot be read.
    """
    try:
        service = msgspec.json.decode(service_file_path(folder).read_bytes(), type=ServiceFile)
        key = admin_key_path(folder).read_text("utf-8").strip()
    except FileNotFoundError:
        message = f"No console runs on {folder}; start it with: fallow-console serve"
        raise ServiceUnreachable(message) from None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise ClientError(f"The console's files in {folder} cannot be read: {error}.") from None
    return Access(service.api_url, key, Path(service.authority_file) if service.api_url.startswith("https") else None)
