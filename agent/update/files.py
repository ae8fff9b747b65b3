"""Files that appear whole or not at all, also when the power goes. Blocking; everything raises OSError."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Give `path` new contents at once."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    fresh = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk; on Windows that is the file system's own business."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_tree(folder: Path) -> None:
    """Have everything below a folder on the disk."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_symlink():
            continue
        if path.is_dir():
            sync_folder(path)
        else:
            # Windows flushes only what is open for writing.
            handle = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
