"""Signing releases: root documents with root keys, releases with a release key. The other side is `agent.update.trust`.

The documents are those of The Update Framework. A root document says which keys are root keys and which one signs
releases, until when. It is signed with the root keys it names and, if it replaces another, with that one's as well.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.signer import CryptoSigner, SSlibKey
from tuf.api.dsse import SimpleEnvelope
from tuf.api.metadata import MetaFile, Root, Snapshot, TargetFile, Targets, Timestamp

from agent.update.archives import Packed
from agent.update.releases import Description, SignedRelease, archive_name

T = TypeVar("T", Root, Targets, Snapshot, Timestamp)
RELEASE_ROLES = ("timestamp", "snapshot", "targets")
MIN_PASSPHRASE_LETTERS = 12


class SigningError(Exception):
    """Nothing was signed: one sentence, what happened and what to do."""


def new_key() -> Ed25519PrivateKey:
    """Make a private key."""
    return Ed25519PrivateKey.generate()


def private_pem(key: Ed25519PrivateKey, passphrase: str) -> bytes:
    """Write a private key, encrypted. Raises SigningError for a passphrase that is too short."""
    if len(passphrase) < MIN_PASSPHRASE_LETTERS:
        raise SigningError(f"The passphrase has fewer than {MIN_PASSPHRASE_LETTERS} letters; take a longer one.")
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(passphrase.encode()))


def public_pem(key: Ed25519PrivateKey) -> bytes:
    """Write a key's public half."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_private(pem: bytes, passphrase: str) -> Ed25519PrivateKey:
    """Read an encrypted private key. Raises SigningError."""
    try:
        key = load_pem_private_key(pem, passphrase.encode())
    except (ValueError, TypeError):
        raise SigningError("The key file or its passphrase is wrong, or the key is not encrypted; try again.") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningError("The key file holds a key of another kind; make one with `release.py keys`.")
    return key


def read_public(pem: bytes) -> Ed25519PublicKey:
    """Read a public key. Raises SigningError."""
    try:
        key = load_pem_public_key(pem)
    except ValueError:
        raise SigningError("The file holds no public key; give a .pub file made by `release.py keys`.") from None
    if not isinstance(key, Ed25519PublicKey):
        raise SigningError("The file holds a public key of another kind; make one with `release.py keys`.")
    return key


def make_root(
    version: int,
    root_keys: Sequence[Ed25519PrivateKey],
    release_keys: Sequence[Ed25519PublicKey],
    expires: dt.datetime,
    *,
    former: Sequence[Ed25519PrivateKey] = (),
    threshold: int = 1,
) -> bytes:
    """Return a root document: any of `release_keys` signs releases, `threshold` of `root_keys` the next root.

    `former` are root keys of the document before, if they are others. Leaving a release key out revokes it for
    everybody who gets this document.
    """
    root = Root(version=version, expires=expires, consistent_snapshot=False)
    for key in root_keys:
        root.add_key(SSlibKey.from_crypto(key.public_key()), Root.type)
    root.roles[Root.type].threshold = threshold
    for public in release_keys:
        for role in RELEASE_ROLES:
            root.add_key(SSlibKey.from_crypto(public), role)
    return _signed(root, [*root_keys, *former])


def root_version(document: bytes) -> int:
    """Return the version of a root document, unchecked. Raises SigningError."""
    return _read_root(document).version


def root_keys_of(document: bytes) -> set[str]:
    """Return the ids of the root keys that a root document names. Raises SigningError."""
    return set(_read_root(document).roles[Root.type].keyids)


def key_id(key: Ed25519PublicKey) -> str:
    """Return what documents call a key."""
    return str(SSlibKey.from_crypto(key).keyid)


def sign_release(
    description: Description,
    packed: Packed,
    key: Ed25519PrivateKey,
    *,
    roots: Mapping[int, bytes],
    sequence: int,
    expires: dt.datetime,
) -> SignedRelease:
    """Sign one release. `roots` are the root documents that PCs may lack, by version."""
    name = archive_name(description)
    target = TargetFile(
        packed.size_bytes, {"sha256": packed.sha256}, name, {"custom": msgspec.to_builtins(description)}
    )
    targets = _signed(Targets(version=sequence, expires=expires, targets={name: target}), [key])
    snapshot = _signed(
        Snapshot(version=sequence, expires=expires, meta={"targets.json": _meta(sequence, targets)}), [key]
    )
    timestamp = _signed(Timestamp(version=sequence, expires=expires, snapshot_meta=_meta(sequence, snapshot)), [key])
    return SignedRelease(dict(roots), timestamp, snapshot, targets)


def read_file(path: Path, limit: int) -> bytes:
    """Read a small file. Raises SigningError."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise SigningError(f"{path} cannot be read ({error.strerror}); check its name.") from None
    if len(data) > limit:
        raise SigningError(f"{path} is too large for what it should be; check its name.")
    return data


def _read_root(document: bytes) -> Root:
    try:
        root = SimpleEnvelope[Root].from_bytes(document).get_signed()
    except Exception as error:  # noqa: BLE001 - the library raises whatever parsing raises
        raise SigningError(f"The root document cannot be read ({type(error).__name__}); check its name.") from None
    if not isinstance(root, Root):
        raise SigningError("The document is no root document; check its name.")
    return root


def _meta(version: int, document: bytes) -> MetaFile:
    return MetaFile.from_data(version, document, ["sha256"])


def _signed(document: T, keys: Sequence[Ed25519PrivateKey]) -> bytes:
    envelope = SimpleEnvelope.from_signed(document)
    for key in keys:
        envelope.sign(CryptoSigner(key))
    return envelope.to_bytes()
