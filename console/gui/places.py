"""Which service the windows were last connected to: a file without secrets in the settings folder. No Qt here."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec
import platformdirs

from console.addresses import is_loopback
from console.data import write_whole
from console.errors import ClientError, DataFolderUnusable

log = logging.getLogger(__name__)

LARGEST_FILE_BYTES = 1 << 16


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A service and how to sign in there. `url` empty: the one on this PC.

    `authority` is the path of the certificate to trust (empty: the system's). `user` is empty for an API key.
    """

    url: str = ""
    authority: str = ""
    user: str = ""
    sign_in: Literal["password", "key"] = "password"
    stay: bool = False
    """Whether the system's keyring holds the token."""


HERE = Place()


def default_settings_folder() -> Path:
    """Return the folder of what the windows remember."""
    return Path(platformdirs.user_config_dir("fallow-console", appauthor=False))


def address_of(text: str) -> str:
    """Return the address somebody typed as a URL without a path. Raises ClientError."""
    text = text.strip()
    if not text:
        raise ClientError("Type the address of the service, like https://console.example.org:8460.")
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme not in ("http", "https"):
        raise ClientError(f"{text[:100]!r} is no address; one looks like https://console.example.org:8460.")
    if parts.scheme == "http" and not is_loopback(host):
        raise ClientError("A service on another PC is asked over https only; write https:// instead of http://.")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + (f":{port}" if port else "")


class PlaceFile:
    """The file. Reading never fails: what cannot be read is the service on this PC."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "place.json"

    def read(self) -> Place:
        """Return the last place."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            if self._path.stat().st_size <= LARGEST_FILE_BYTES:
                return msgspec.json.decode(self._path.read_bytes(), type=Place)
        return HERE

    def write(self, place: Place) -> None:
        """Remember a place; a disk that refuses costs only the memory of it."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, msgspec.json.encode(place), mode=0o600)
        except (OSError, DataFolderUnusable) as error:
            log.info("The last connection is not remembered: %s", error)
