"""The console's data folder: where things are, one console per folder, files that appear whole.

registry.sqlite   the registry             authority/    the fleet's certificate authority
service.json      addresses while running  admin.key     the key of the command line on this PC (0600)
console.lock      held while running           builds/       how each build of a library is, and its log
bench/            load tests that are kept
releases/         archives of agents' releases
service.log       the log (and service.log.1 …) service.out   what a service that a window started said beside it
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import msgspec
import platformdirs

from agent.folder_lock import FolderBusy, FolderLock
from console.errors import DataFolderBusy, DataFolderUnusable


class ServiceFile(msgspec.Struct, frozen=True):
    """`service.json`: how to reach the running service. `authority_file` is the CA's PEM."""

    process_id: int
    version: str
    api_url: str
    agents_urls: list[str]
    agents_port: int
    authority_file: str
    started_s: float


def default_data_folder() -> Path:
    """Return the data folder used when none is given."""
    return Path(platformdirs.user_data_dir("fallow-console", appauthor=False))


def registry_path(folder: Path) -> Path:
    """Where the registry's database is."""
    return folder / "registry.sqlite"


def authority_path(folder: Path) -> Path:
    """Where the certificate authority's folder is."""
    return folder / "authority"


def builds_path(folder: Path) -> Path:
    """Where the builds of libraries are noted."""
    return folder / "builds"


def releases_path(folder: Path) -> Path:
    """Where the archives of releases are."""
    return folder / "releases"


def service_file_path(folder: Path) -> Path:
    """Where the running service says its addresses."""
    return folder / "service.json"


def log_path(folder: Path) -> Path:
    """Where the service logs, beside standard error."""
    return folder / "service.log"


def admin_key_path(folder: Path) -> Path:
    """Where the local command line finds its key."""
    return folder / "admin.key"


def prepare(folder: Path) -> None:
    """Make the folder, readable by its owner only. Raises DataFolderUnusable."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        message = f"The data folder {folder} cannot be made ({error.strerror}); choose another with --data."
        raise DataFolderUnusable(message) from None


def write_whole(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replace a file so that readers see the old one or the new one. Raises DataFolderUnusable."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(mode)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise DataFolderUnusable(
            f"{path} cannot be written ({error.strerror}); free space or fix its rights."
        ) from None


def lock_folder(folder: Path) -> FolderLock:
    """Keep other consoles out of a folder; release it at the end. Raises DataFolderBusy or DataFolderUnusable."""
    lock = FolderLock(folder / "console.lock")
    try:
        lock.acquire()
    except FolderBusy:
        raise DataFolderBusy(
            f"Another console already runs on {folder}; stop it or choose another folder with --data."
        ) from None
    except OSError as error:
        message = f"The data folder {folder} cannot be used ({error.strerror}); choose another with --data."
        raise DataFolderUnusable(message) from None
    return lock


def remove(path: Path) -> None:
    """Remove a file that may be gone already."""
    with contextlib.suppress(OSError):
        path.unlink()
