"""Sign releases of the agent: `python installer/release.py keys|root|sign|verify|portable`. See installer/README.md.

A private key is a file encrypted with a passphrase, which is asked for (or is the first line of standard input where
there is no terminal) and never an argument.
"""

from __future__ import annotations

import argparse
import datetime as dt
import getpass
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file, modules are looked for beside it only

from agent.update.archives import Packed, pack, unpack
from agent.update.errors import UpdateError
from agent.update.permission import ROOT_NAME
from agent.update.releases import (
    CHANNELS,
    MAX_DOCUMENT_BYTES,
    MAX_SIGNED_BYTES,
    SHARE_OF_ALL,
    Description,
    archive_name,
    decode_signed,
    encode_signed,
    own_platform,
    parse_version,
)
from agent.update.trust import verify
from installer import release_signing as signing
from installer.release_signing import SigningError, read_file

KEY_VARIABLE = "FALLOW_RELEASE_KEY"
"""Names the file of the release key where --key does not."""
MAX_KEY_BYTES = 16 * 1024
RELEASE_DAYS, ROOT_DAYS = 30, 365
SUFFIX = ".release"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = build_parser().parse_args(argv)
    try:
        options.command(options)
    except (SigningError, UpdateError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"release: {error.filename} cannot be used ({error.strerror}); check its name.", file=sys.stderr)
        return 1
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return all that may be typed."""
    parser = argparse.ArgumentParser(prog="release.py", description="Sign releases of the agent.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    keys = commands.add_parser("keys", help="make a key: FILE, encrypted, and FILE.pub")
    keys.add_argument("file", type=Path, metavar="FILE")
    keys.set_defaults(command=_keys)

    root = commands.add_parser("root", help="make a root document: which keys vouch for releases")
    root.add_argument("--root-key", type=Path, action="append", required=True, metavar="FILE", help="a root key")
    root.add_argument("--release-key", type=Path, action="append", required=True, metavar="FILE.pub")
    root.add_argument("--threshold", type=int, default=1, metavar="N", help="root keys that the next root needs")
    root.add_argument("--days", type=int, default=ROOT_DAYS, metavar="N", help=f"how long it counts ({ROOT_DAYS})")
    root.add_argument("--roots", type=Path, required=True, metavar="DIR", help="where the root documents are kept")
    root.add_argument("--former-key", type=Path, action="append", default=[], metavar="FILE", help="one that goes")
    root.set_defaults(command=_root)

    sign = commands.add_parser("sign", help="pack a program's folder and sign it as a release")
    sign.add_argument("bundle", type=Path, metavar="FOLDER", help="what installer/build.py made")
    sign.add_argument("--release-version", required=True, metavar="X.Y.Z")
    sign.add_argument("--minimum", required=True, metavar="X.Y.Z", help="the oldest version it may replace")
    sign.add_argument("--product", default="agent")
    sign.add_argument("--platform", default=own_platform())
    sign.add_argument("--channel", choices=CHANNELS, default=CHANNELS[0])
    sign.add_argument("--rollout", type=int, default=SHARE_OF_ALL, metavar="PERCENT", help="of all PCs, at most")
    sign.add_argument(
        "--days", type=int, default=RELEASE_DAYS, metavar="N", help=f"how long it counts ({RELEASE_DAYS})"
    )
    sign.add_argument("--sequence", type=int, default=int(time.time()), metavar="N", help="its number (the time)")
    sign.add_argument("--key", type=Path, default=os.environ.get(KEY_VARIABLE), metavar="FILE", help="the release key")
    sign.add_argument("--roots", type=Path, required=True, metavar="DIR", help="where the root documents are kept")
    sign.add_argument("--out", type=Path, required=True, metavar="DIR")
    sign.set_defaults(command=_sign)

    check = commands.add_parser("verify", help="check a release as an agent does, down to its last file")
    check.add_argument("file", type=Path, metavar=f"FILE{SUFFIX}")
    check.add_argument("--root", type=Path, required=True, metavar="FILE", help="the root document that agents have")
    check.set_defaults(command=_verify)

    first = commands.add_parser("portable", help="pack a program's folder for a first installation by hand")
    first.add_argument("bundle", type=Path, metavar="FOLDER", help="what installer/build.py made")
    first.add_argument("--release-version", required=True, metavar="X.Y.Z")
    first.add_argument("--out", type=Path, required=True, metavar="FILE.tar.gz")
    first.set_defaults(command=_portable)
    return parser


def _keys(options: argparse.Namespace) -> None:
    file: Path = options.file
    public = file.with_name(f"{file.name}.pub")
    if file.exists() or public.exists():
        raise SigningError(
            f"{file} or {public.name} is there already; a key is never replaced, make one of another name."
        )
    key = signing.new_key()
    _write_private(file, signing.private_pem(key, _new_passphrase(file)))
    public.write_bytes(signing.public_pem(key))
    print(f"{file} is the private key, {public.name} its public half ({signing.key_id(key.public_key())[:16]}).")


def _root(options: argparse.Namespace) -> None:
    options.roots.mkdir(parents=True, exist_ok=True)
    known = _known_roots(options.roots)
    version = max(known, default=0) + 1
    keys = [_private(path) for path in options.root_key]
    former = [_private(path) for path in options.former_key]
    if known:
        needed = signing.root_keys_of(known[version - 1])
        if not needed & {signing.key_id(key.public_key()) for key in [*keys, *former]}:
            raise SigningError("None of the keys is a root key of the document before; add one with --former-key.")
    release_keys = [signing.read_public(read_file(path, MAX_KEY_BYTES)) for path in options.release_key]
    document = signing.make_root(
        version, keys, release_keys, _expiry(options.days), former=former, threshold=options.threshold
    )
    (options.roots / f"{version}.root.json").write_bytes(document)
    print(f"{options.roots / f'{version}.root.json'} is root document {version}; a bundle gets it as {ROOT_NAME}.")


def _sign(options: argparse.Namespace) -> None:
    if options.key is None:
        raise SigningError(f"No release key: name its file with --key, or in {KEY_VARIABLE}.")
    for version in (options.release_version, options.minimum):
        parse_version(version)
    _check_bundle(options.bundle)
    key = _private(Path(options.key))
    options.out.mkdir(parents=True, exist_ok=True)
    description = Description(
        options.product,
        options.release_version,
        options.channel,
        options.platform,
        options.minimum,
        0,
        0,
        options.rollout,
    )
    archive = options.out / archive_name(description)
    packed = pack(options.bundle, archive)
    description = Description(
        options.product, options.release_version, options.channel, options.platform, options.minimum,
        packed.unpacked_bytes, packed.entries, options.rollout,
    )  # fmt: skip
    roots = _known_roots(options.roots)
    if not roots:
        raise SigningError(f"There is no root document in {options.roots}; make one with `release.py root`.")
    signed = signing.sign_release(
        description, packed, key, roots=roots, sequence=options.sequence, expires=_expiry(options.days)
    )
    file = archive.with_name(archive.name.removesuffix(".tar.gz") + SUFFIX)
    # As an agent will: with the root that was there first, and with a key it does not know it is worth nothing.
    with tempfile.TemporaryDirectory() as folder:
        verify(signed, roots[min(roots)], Path(folder))
    file.write_bytes(encode_signed(signed))
    print(f"{file} and {archive.name} are release {options.sequence}, version {options.release_version}.")


def _verify(options: argparse.Namespace) -> None:
    signed = decode_signed(read_file(options.file, MAX_SIGNED_BYTES))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        release = verify(signed, read_file(options.root, MAX_DOCUMENT_BYTES), folder / "trusted")
        said = release.description
        (folder / "unpacked").mkdir()
        packed = Packed(release.size_bytes, release.sha256, said.unpacked_bytes, said.entries)
        unpack(options.file.with_name(release.archive), folder / "unpacked", packed)
    until = dt.datetime.fromtimestamp(release.expires_s, dt.UTC)
    print(
        f"{said.product} {said.version} for {said.platform}, release {release.sequence}, counts until {until:%Y-%m-%d}."
    )


def _portable(options: argparse.Namespace) -> None:
    parse_version(options.release_version)
    _check_bundle(options.bundle)
    inside = f"fallow-agent/versions/{options.release_version}"
    with tarfile.open(options.out, "w:gz") as tar:
        tar.add(options.bundle, inside)
        pointer = tarfile.TarInfo("fallow-agent/current")
        pointer.type, pointer.linkname = tarfile.SYMTYPE, f"versions/{options.release_version}"
        tar.addfile(pointer)
    print(f"{options.out} holds {inside}; its program is fallow-agent/current/fallow-agent, where its user may write.")


def _check_bundle(folder: Path) -> None:
    """Raise SigningError for a version after which no PC could be updated any more."""
    path = folder / ROOT_NAME
    if not path.is_file():
        raise SigningError(
            f"{folder} holds no {ROOT_NAME}, and would be the last update of a PC; copy the root document there."
        )
    signing.root_version(read_file(path, MAX_DOCUMENT_BYTES))


def _known_roots(folder: Path) -> dict[int, bytes]:
    documents = [read_file(path, MAX_DOCUMENT_BYTES) for path in sorted(folder.glob("*.root.json"))]
    return {signing.root_version(document): document for document in documents}


def _private(path: Path) -> Ed25519PrivateKey:
    return signing.read_private(read_file(path, MAX_KEY_BYTES), _passphrase(f"Passphrase of {path.name}: "))


def _passphrase(prompt: str) -> str:
    if sys.stdin.isatty():
        return getpass.getpass(prompt)
    return sys.stdin.readline().rstrip("\n")


def _new_passphrase(path: Path) -> str:
    passphrase = _passphrase(f"New passphrase of {path.name}: ")
    if sys.stdin.isatty() and getpass.getpass("Once more: ") != passphrase:
        raise SigningError("The two passphrases are not the same; try again.")
    return passphrase


def _write_private(path: Path, pem: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)


def _expiry(days: int) -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(days=days)


if __name__ == "__main__":
    sys.exit(main())
