"""Where a service is and who asks it: what every client of a console begins with."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from console.data import ServiceFile, admin_key_path, service_file_path
from console.errors import ClientError, ServiceUnreachable


@dataclass(frozen=True, slots=True)
class Access:
    """A service and who asks it.

    `token` is an API key or a session's; `authority` the PEM of the fleet's CA for https (None: the system's roots).
    """

    url: str
    token: str = field(repr=False)
    authority: Path | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers of every request."""
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


def access_of(folder: Path) -> Access:
    """Find the service of a data folder on this PC and its admin key. Raises ServiceUnreachable."""
    try:
        service = msgspec.json.decode(service_file_path(folder).read_bytes(), type=ServiceFile)
        key = admin_key_path(folder).read_text("utf-8").strip()
    except FileNotFoundError:
        message = f"No console runs on {folder}; start it with: fallow-console serve"
        raise ServiceUnreachable(message) from None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise ClientError(f"The console's files in {folder} cannot be read: {error}.") from None
    return Access(service.api_url, key, Path(service.authority_file) if service.api_url.startswith("https") else None)
