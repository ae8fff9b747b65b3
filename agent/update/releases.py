"""What a release says of itself, and whether it is for this PC. Pure: no I/O, no clock.

A signed release is small: the roots that lead from the one a PC has to the one that vouches for the release key, and
three documents of The Update Framework signed with that key (`timestamp`, `snapshot`, `targets`). Its archive is a file
of its own, named by SHA-256 and size in `targets`.
"""

from __future__ import annotations

import platform
import re
import sys

import msgspec

from agent.update.errors import ReleaseRefused

MAX_SIGNED_BYTES = 128 * 1024
"""Of a whole signed release, so that it fits into one control message beside everything else."""
MAX_DOCUMENT_BYTES = 32 * 1024
MAX_ROOTS = 64
MAX_ARCHIVE_BYTES = 1 << 30
MAX_UNPACKED_BYTES = 3 << 30
MAX_ENTRIES = 50_000
SHARE_OF_ALL = 100
CHANNELS = ("stable", "beta")

_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", re.ASCII)
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MACHINES = {"amd64": "x86_64", "aarch64": "arm64"}

Version = tuple[int, int, int]


class SignedRelease(msgspec.Struct, frozen=True):
    """The signed documents, byte for byte (DSSE envelopes). `roots` by their version."""

    roots: dict[int, bytes]
    timestamp: bytes
    snapshot: bytes
    targets: bytes


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `targets` says of the one archive beside its size and SHA-256."""

    product: str
    version: str
    channel: str
    platform: str
    minimum_version: str
    """The oldest version that may be replaced by this one."""
    unpacked_bytes: int
    entries: int
    """Files, folders and links in the archive."""
    rollout_percent: int = SHARE_OF_ALL
    """How many of all PCs the publisher wants to have it at most, for now."""


class Release(msgspec.Struct, frozen=True):
    """One release that is vouched for. `sequence` only grows, from release to release; times are Unix time."""

    description: Description
    archive: str
    size_bytes: int
    sha256: str
    sequence: int
    expires_s: float

    @property
    def version(self) -> str:
        """Such as 1.4.0."""
        return self.description.version


class Here(msgspec.Struct, frozen=True):
    """What would be replaced."""

    product: str
    version: str
    platform: str
    channel: str = "stable"


def encode_signed(signed: SignedRelease) -> bytes:
    """Write a signed release as JSON, as it lies in a `.release` file."""
    return msgspec.json.encode(signed)


def decode_signed(data: bytes) -> SignedRelease:
    """Read a signed release; nothing of it is believed yet. Raises ReleaseRefused."""
    if len(data) > MAX_SIGNED_BYTES:
        raise ReleaseRefused(
            f"The signed release is larger than {MAX_SIGNED_BYTES >> 10} KiB and is not read; sign it again.", "size"
        )
    try:
        signed = msgspec.json.decode(data, type=SignedRelease)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ReleaseRefused(f"The signed release cannot be read ({error}); copy its file again.", "damaged") from None
    documents = [*signed.roots.values(), signed.timestamp, signed.snapshot, signed.targets]
    if len(signed.roots) > MAX_ROOTS or any(len(document) > MAX_DOCUMENT_BYTES for document in documents):
        raise ReleaseRefused("A document of the signed release is too large and is not read; sign it again.", "size")
    return signed


def own_platform() -> str:
    """Name this PC as releases do: linux-x86_64, windows-x86_64, macos-arm64."""
    system = {"win32": "windows", "darwin": "macos"}.get(sys.platform, sys.platform)
    machine = platform.machine().lower()
    return f"{system}-{_MACHINES.get(machine, machine)}"


def parse_version(text: str) -> Version:
    """Read `1.4.0`. Raises ReleaseRefused."""
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ReleaseRefused(f"{text[:40]!r} is no version such as 1.4.0; sign the release again.", "version")
    major, minor, patch = (int(part) for part in found.groups())
    return major, minor, patch


def archive_name(description: Description) -> str:
    """Name a release's archive."""
    return f"fallow-{description.product}-{description.version}-{description.platform}.tar.gz"


def check_contents(release: Release) -> Release:
    """Refuse what no release may say, whoever signed it. Raises ReleaseRefused."""
    said = release.description
    parse_version(said.version)
    parse_version(said.minimum_version)
    named = all(_NAME.fullmatch(name) for name in (said.product, said.channel, said.platform))
    if not named or release.archive != archive_name(said) or not _SHA256.fullmatch(release.sha256):
        raise ReleaseRefused("The release names things that have no such names; sign it again.", "contents")
    if not (0 < release.size_bytes <= MAX_ARCHIVE_BYTES and 0 < said.unpacked_bytes <= MAX_UNPACKED_BYTES):
        raise ReleaseRefused(
            f"The release takes {release.size_bytes >> 20} MiB packed and {said.unpacked_bytes >> 20} MiB unpacked, "
            f"more than the {MAX_ARCHIVE_BYTES >> 20} and {MAX_UNPACKED_BYTES >> 20} that are taken; ask its "
            "publisher for a smaller one.",
            "size",
        )
    if not (0 < said.entries <= MAX_ENTRIES and 0 < said.rollout_percent <= SHARE_OF_ALL):
        raise ReleaseRefused("The release's figures make no sense; sign it again.", "contents")
    return release


def judge(release: Release, here: Here) -> None:
    """Raise ReleaseRefused unless the release may replace what is here."""
    judge_description(release.description, here)


def judge_description(said: Description, here: Here) -> None:
    """As `judge`, by what a release says of itself."""
    for code, theirs, ours in (
        ("product", said.product, here.product),
        ("platform", said.platform, here.platform),
        ("channel", said.channel, here.channel),
    ):
        if theirs != ours:
            raise ReleaseRefused(
                f"The release is for the {code} {theirs}, and this is {ours}; offer the right one.",
                code,  # type: ignore[arg-type]  # the three codes above
            )
    running = parse_version(here.version)
    if parse_version(said.version) <= running:
        raise ReleaseRefused(
            f"{said.version} is not newer than {here.version}, which is here; publish what has to come back under a "
            "newer version.",
            "downgrade",
        )
    if running < parse_version(said.minimum_version):
        raise ReleaseRefused(
            f"{said.version} replaces {said.minimum_version} and newer, and {here.version} is here; offer a version "
            "between them first.",
            "too_old",
        )
