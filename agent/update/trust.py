"""Whether anybody vouches for a release: The Update Framework's client (python-tuf) does the work. Blocking.

root (offline, packaged with the program) → release key → timestamp, snapshot, targets of one release. The client
checks signatures over the bytes as they came, follows newer roots one by one, and refuses what expired or is older
than what was taken before. What it remembers lies in `trusted/<sequence>/`, a folder that appears whole or not at all,
and only after the release was found to be for this PC: else a valid release of another platform could be used to make
this PC refuse its own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from tuf.api import exceptions as tuf_errors
from tuf.api.dsse import SimpleEnvelope
from tuf.api.metadata import Targets, Timestamp
from tuf.ngclient import FetcherInterface, Updater, UpdaterConfig
from tuf.ngclient.config import EnvelopeType

from agent.update.errors import ReleaseRefused
from agent.update.files import sync_folder, sync_tree
from agent.update.releases import MAX_DOCUMENT_BYTES, MAX_ROOTS, Description, Release, SignedRelease, check_contents

_URL = "release:///"
_MALFORMED = (
    tuf_errors.RepositoryError, tuf_errors.DownloadError,
    ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError,
)  # fmt: skip
"""The client parses some of a document before it knows who signed it, and raises what parsing raises."""


class _Documents(FetcherInterface):
    """Hands the documents of one signed release to the client, and remembers which it asked for last."""

    def __init__(self, signed: SignedRelease) -> None:
        self._files = {f"{version}.root.json": data for version, data in signed.roots.items()}
        self._files |= {
            "timestamp.json": signed.timestamp,
            "snapshot.json": signed.snapshot,
            "targets.json": signed.targets,
        }
        self.asked = "root"

    def _fetch(self, url: str) -> Iterator[bytes]:
        name = url.removeprefix(_URL)
        if name not in self._files:
            raise tuf_errors.DownloadHTTPError("There is no such document.", 404)
        self.asked = name.removesuffix(".json").rpartition(".")[2]
        return iter([self._files[name]])


def verify(
    signed: SignedRelease, root: bytes, folder: Path, judge: Callable[[Release], None] = lambda release: None
) -> Release:
    """Return what the release says once it is vouched for and `judge` has nothing against it; remember it then.

    `root` is the packaged root document, `folder` what this PC remembers of earlier releases. Raises ReleaseRefused
    or OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(".*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as scratch_name:
        scratch = Path(scratch_name) / "documents"
        newest = _newest(folder)
        if newest is None:
            scratch.mkdir()
        else:
            shutil.copytree(newest, scratch, symlinks=True)
        release = _refreshed(signed, root, scratch)
        judge(release)
        _remember(folder, scratch, release.sequence)
    return release


def read_unverified(signed: SignedRelease) -> Release:
    """Return what a release says of itself, whoever made it: for lists, never to act on. Raises ReleaseRefused."""
    try:
        timestamp: Timestamp = SimpleEnvelope[Timestamp].from_bytes(signed.timestamp).get_signed()
        targets: Targets = SimpleEnvelope[Targets].from_bytes(signed.targets).get_signed()
        return check_contents(_release(timestamp, targets))
    except _MALFORMED as error:
        raise _refusal(error, "targets") from error


def forget_all_but(folder: Path, sequence: int) -> None:
    """Delete what was remembered before `sequence`."""
    for old in _remembered(folder):
        if int(old.name) < sequence:
            shutil.rmtree(old, ignore_errors=True)


def _remembered(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("[0-9]*") if path.name.isdecimal()), key=lambda path: int(path.name))


def _newest(folder: Path) -> Path | None:
    return max(_remembered(folder), key=lambda path: int(path.name), default=None)


def _remember(folder: Path, scratch: Path, sequence: int) -> None:
    final = folder / str(sequence)
    if not final.exists():
        sync_tree(scratch)
        scratch.rename(final)
        sync_folder(folder)
    forget_all_but(folder, sequence)


def _refreshed(signed: SignedRelease, root: bytes, scratch: Path) -> Release:
    documents = _Documents(signed)
    config = UpdaterConfig(
        max_root_rotations=MAX_ROOTS,
        max_delegations=1,
        root_max_length=MAX_DOCUMENT_BYTES,
        timestamp_max_length=MAX_DOCUMENT_BYTES,
        snapshot_max_length=MAX_DOCUMENT_BYTES,
        targets_max_length=MAX_DOCUMENT_BYTES,
        envelope_type=EnvelopeType.SIMPLE,
    )
    try:
        client = Updater(os.fspath(scratch), _URL, fetcher=documents, config=config, bootstrap=root)
    except _MALFORMED as error:
        raise ReleaseRefused(
            f"The root document of this PC for updates cannot be used ({_cause(error)}); install the program again.",
            "root",
        ) from error
    try:
        client.refresh()
        # An equal sequence number keeps what is remembered; what counts has to be what was sent.
        if any((scratch / f"{name}.json").read_bytes() != getattr(signed, name) for name in ("timestamp", "targets")):
            raise ReleaseRefused(
                "The release has the number of another one that this PC knows already, and is not used; ask its "
                "publisher for one with a number of its own.",
                "replay",
            )
    except _MALFORMED as error:
        raise _refusal(error, documents.asked) from error
    return read_unverified(signed)


def _refusal(error: Exception, asked: str) -> ReleaseRefused:
    """Say in one sentence why the client refused a document."""
    level = {"root": "new root document", "timestamp": "release's timestamp", "snapshot": "release's snapshot"}
    what = level.get(asked, "release's list of files")
    if isinstance(error, tuf_errors.UnsignedMetadataError):
        by = "root key that this PC trusts" if asked == "root" else "release key that this PC's root vouches for"
        return ReleaseRefused(f"The {what} is not signed by a {by}; nothing of it is used.", "signature")
    if isinstance(error, tuf_errors.ExpiredMetadataError):
        return ReleaseRefused(
            "The release, or what vouches for it, has expired; check this PC's clock, then ask for a fresh one.",
            "expired",
        )
    if isinstance(error, tuf_errors.BadVersionNumberError):
        if asked == "root":
            return ReleaseRefused("The new root document is out of order; nothing of it is used.", "root")
        return ReleaseRefused(
            "The release is older than one that this PC knows already, and is not used; offer the newest one.", "replay"
        )
    if isinstance(error, tuf_errors.DownloadLengthMismatchError | tuf_errors.LengthOrHashMismatchError):
        return ReleaseRefused(f"The {what} is not the one that was signed; copy the release again.", "signature")
    return ReleaseRefused(f"The {what} cannot be read ({_cause(error)}); sign the release again.", "damaged")


def _cause(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}" if str(error) else type(error).__name__


def _release(timestamp: Timestamp, targets: Targets) -> Release:
    if len(targets.targets) != 1:
        raise ReleaseRefused("A release has exactly one archive; sign it again.", "contents")
    ((name, file),) = targets.targets.items()
    try:
        description = msgspec.convert(file.custom, Description)
    except msgspec.ValidationError as error:
        raise ReleaseRefused(f"The release does not describe itself ({error}); sign it again.", "contents") from None
    return Release(
        description,
        archive=name,
        size_bytes=file.length,
        sha256=str(file.hashes.get("sha256", "")),
        sequence=timestamp.version,
        expires_s=min(timestamp.expires, targets.expires).timestamp(),
    )
