"""Errors of the store: `str(error)` is one sentence saying what happened and what to do.

StoreError
 ├─ FileDamaged    the bytes that arrived are not the ones their name promises
 ├─ StoreFull      the disk has no room
 ├─ ManifestBad    a manifest cannot be used
 └─ StoreBroken    the folder cannot be read or written
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator


class StoreError(Exception):
    """Base of the tree."""


class FileDamaged(StoreError):
    """The bytes that arrived are not the ones their name promises."""


class StoreFull(StoreError):
    """The disk has no room."""


class ManifestBad(StoreError):
    """A manifest cannot be used."""


class StoreBroken(StoreError):
    """The folder cannot be read or written."""


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Turn what the operating system says into errors of this tree."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull("The disk is full; free some space and try again.") from error
        raise StoreBroken(
            f"The model store cannot be used ({error.strerror or error}); check the folder's permissions and disk."
        ) from error
