"""What can go wrong with an update. `str(error)` is one sentence: what happened and what to do.

UpdateError
 ├─ ReleaseRefused      nobody vouches for the release, or it is not for this PC; `code` says which
 ├─ ArchiveRefused      the archive is not what was signed, or holds what it must not
 ├─ VersionUnfit        the new version did not pass an examination here
 └─ InstallationBroken  the folder of versions cannot be used
"""

from __future__ import annotations

from typing import Literal

RefusalCode = Literal[
    "damaged", "size", "root", "signature", "expired", "replay", "contents",
    "product", "platform", "channel", "version", "downgrade", "too_old", "bad",
]  # fmt: skip


class UpdateError(Exception):
    """Base of the tree."""


class ReleaseRefused(UpdateError):
    """Nothing of the release is used."""

    def __init__(self, sentence: str, code: RefusalCode) -> None:
        super().__init__(sentence)
        self.code = code


class ArchiveRefused(UpdateError):
    """Nothing of the archive is used."""


class VersionUnfit(UpdateError):
    """The new version is not started, or not kept."""


class InstallationBroken(UpdateError):
    """The folder of versions cannot be used."""
