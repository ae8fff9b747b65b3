"""Small releases that are really signed, and folders of versions whose programs really run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent.update.archives import Packed, pack
from agent.update.layout import Installation
from agent.update.releases import Description, Here, SignedRelease, own_platform, parse_version
from installer.release_signing import make_root, new_key, sign_release

ROOT_KEY, RELEASE_KEY = new_key(), new_key()
FUTURE = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(days=30)
PAST = FUTURE - dt.timedelta(days=60)
HERE = Here("agent", "1.0.0", own_platform())

PROGRAM = """#!/bin/sh
case "$1" in
self-test)
    echo '{{"version": "{reports}", "problems": [{problems}]}}'
    exit ;;
version)
    echo {version}
    exit ;;
esac
[ {fault} = crash ] && exit 3
if [ -n "$FALLOW_UPDATE_PROOF" ] && [ {fault} != silent ]; then
    printf %s {reports} > "$FALLOW_UPDATE_PROOF.new"
    mv "$FALLOW_UPDATE_PROOF.new" "$FALLOW_UPDATE_PROOF"
    [ {fault} = again ] && exit 75
fi
[ {fault} = quits -o {fault} = again ] && exit 0
exec cat > /dev/null
"""
"""Answers as the agent does, and ends when whoever started it does."""


def make_tree(folder: Path, version: str, *, fault: str = "", reports: str = "") -> Path:
    """Write a program's folder as a build leaves it: an executable, a folder of files, a link."""
    inside = folder / "_internal"
    inside.mkdir(parents=True)
    program = folder / "fallow-agent"
    problems = '"It has no legs."' if fault == "unfit" else ""
    text = PROGRAM.format(version=version, reports=reports or version, fault=fault or "none", problems=problems)
    program.write_text(text, "utf-8")
    program.chmod(0o755)
    (inside / "data.bin").write_bytes(version.encode() * 20_000)
    (inside / "link.bin").symlink_to("data.bin")
    return folder


def make_installation(root: Path, version: str = "1.0.0", *, fault: str = "") -> Installation:
    """Lay one version out as a first installation does."""
    installation = Installation(root, "fallow-agent")
    installation.versions.mkdir(parents=True)
    make_tree(installation.folder(version), version, fault=fault)
    installation.switch(version)
    return installation


def versions_in(installation: Installation) -> list[str]:
    """List the versions that are here whole, the oldest first."""
    found = [path.name for path in installation.versions.iterdir() if not path.name.startswith(".")]
    return sorted((name for name in found if installation.has(name)), key=parse_version)


def describe(version: str = "1.1.0", packed: Packed | None = None, **changes: object) -> Description:
    """Describe a release for this PC."""
    packed = packed or Packed(1000, "ab" * 32, 2000, 3)
    plain = Description("agent", version, "stable", own_platform(), "1.0.0", packed.unpacked_bytes, packed.entries)
    return msgspec.structs.replace(plain, **changes)


def make_roots(
    root_key: Ed25519PrivateKey = ROOT_KEY, release_key: Ed25519PrivateKey = RELEASE_KEY, expires: dt.datetime = FUTURE
) -> bytes:
    """Make the first root document."""
    return make_root(1, [root_key], [release_key.public_key()], expires)


ROOT = make_roots()


def make_release(
    version: str = "1.1.0",
    packed: Packed | None = None,
    *,
    key: Ed25519PrivateKey = RELEASE_KEY,
    sequence: int = 10,
    expires: dt.datetime = FUTURE,
    roots: Mapping[int, bytes] | None = None,
    **changes: object,
) -> SignedRelease:
    """Sign a release for this PC."""
    packed = packed or Packed(1000, "ab" * 32, 2000, 3)
    description = describe(version, packed, **changes)
    return sign_release(description, packed, key, roots=roots or {}, sequence=sequence, expires=expires)


def make_archive(folder: Path, version: str, *, fault: str = "", reports: str = "") -> tuple[Path, Packed]:
    """Build and pack a version."""
    tree = make_tree(folder / f"tree-{version}", version, fault=fault, reports=reports)
    archive = folder / f"{version}.tar.gz"
    return archive, pack(tree, archive)
