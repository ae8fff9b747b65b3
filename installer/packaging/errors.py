"""What can go wrong while packages are made.

PackagingError
 ├─ BuildFailed       a step of a build ended with an error
 └─ LicenceMissing    a file in a bundle belongs to nothing known, or what it belongs to has no licence text
"""

from __future__ import annotations


class PackagingError(Exception):
    """No package could be made; `str(error)` is one sentence saying what happened and what to do."""


class BuildFailed(PackagingError):
    """A step of a build ended with an error."""


class LicenceMissing(PackagingError):
    """A file in a bundle belongs to nothing known, or what it belongs to has no licence text."""
