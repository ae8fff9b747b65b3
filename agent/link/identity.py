"""Who this PC is: its key, its certificate, the authorities it trusts, and the names derived from them.

An identity is a folder. `identity.json` is written last and names all other files, so it is the switch from one
identity to the next, also to that of another fleet: until then the next one lies beside the one in force, and shares
nothing with it. What is left over after a switch, or an attempt at one, is cleared by `leftovers`.

    identity.json             fleet, device id, addresses, the names of the other files
    <stem>.pem                private key, PKCS#8, encrypted
    <stem>.passphrase.json    where its passphrase is (see keystore)
    <stem>.crt.pem            certificate
    <stem>.authorities.pem    the fleet's certificate authorities (a set: roots are rotated)
    <first stem>.mark.txt     the mark (see mark): of the device, so it stays when the key is renewed

The device id is random and bound to the key by the console; the certificate is replaced without changing it.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NewType

import msgspec
from cryptography import x509

from agent.link.authorities import read_authorities
from agent.link.binding import Binding, this_pc
from agent.link.credentials import peer_tls, show, trusting_context
from agent.link.errors import IdentityCopied, IdentityMissing, IdentityUnreadable
from agent.link.keys import DeviceKey, load_key
from agent.link.keystore import Keystore, Passphrase, Protection, write_private
from agent.link.parsing import UNREADABLE
from agent.stage.types import Credentials

DeviceId = NewType("DeviceId", str)

RECORD_FILE = "identity.json"
_AUTHORITIES = re.compile(r"(key-[0-9a-f]{8}\.)?authorities\.pem")
_MARK = re.compile(r"(key-[0-9a-f]{8}\.)?mark\.txt")
FLEET_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{1,30}[a-z0-9])?")
_AGAIN = "enrol this PC again with a new invite"


def server_hostname(fleet_id: str) -> str:
    """The name in every console certificate of a fleet: fixed, so that addresses may change."""
    return f"console.{fleet_id}.invalid"


def device_uri(fleet_id: str, device_id: DeviceId) -> str:
    """The URI in a device's certificate."""
    return f"spiffe://{fleet_id}/device/{device_id}"


def device_hostname(fleet_id: str, device_id: DeviceId) -> str:
    """The host name in a device's certificate: whom a peer that dials it expects, whatever its address."""
    return f"{device_id}.dev.{fleet_id}.invalid"


class IdentityRecord(msgspec.Struct, frozen=True):
    """Content of identity.json."""

    fleet_id: str
    fleet_name: str
    device_id: DeviceId
    urls: list[str]
    stem: str
    key_protection: Protection
    version: int = 1
    generation: int = 1
    """The number of the certificate."""
    binding: Binding = Binding()
    authorities: str = "authorities.pem"
    """The names of files; these are those of identities from before each had its own."""
    mark: str = "mark.txt"


@dataclass(frozen=True)
class Identity:
    """A usable identity: key and certificate fit each other. `not_after_s` is the certificate's end (Unix time)."""

    folder: Path
    record: IdentityRecord
    certificate: x509.Certificate
    authorities_pem: bytes
    passphrase: Passphrase = field(repr=False)

    @property
    def device_id(self) -> DeviceId:
        return self.record.device_id

    @property
    def fleet_id(self) -> str:
        return self.record.fleet_id

    @property
    def urls(self) -> list[str]:
        return self.record.urls

    @property
    def key_protection(self) -> Protection:
        return self.record.key_protection

    @property
    def mark_path(self) -> Path:
        return self.folder / self.record.mark

    @property
    def not_after_s(self) -> float:
        return self.certificate.not_valid_after_utc.timestamp()

    @property
    def renew_after_s(self) -> float:
        """When a new certificate is due (Unix time): after two thirds of its life, give or take a tenth by serial."""
        began_s = self.certificate.not_valid_before_utc.timestamp()
        share = (0.9 + 0.2 * (self.certificate.serial_number % 1009) / 1009) * 2 / 3
        return began_s + (self.not_after_s - began_s) * share

    @property
    def server_hostname(self) -> str:
        return server_hostname(self.record.fleet_id)


def save_identity(
    key: DeviceKey,
    *,
    fleet_id: str,
    fleet_name: str,
    device_id: DeviceId,
    urls: list[str],
    certificate_pem: bytes,
    authorities_pem: bytes,
    generation: int = 1,
) -> Identity:
    """Make `key` with its certificate this folder's identity; the former one stays in force until the last write.

    Raises IdentityUnreadable if certificate, key and names do not fit, OSError if the folder cannot be written.
    """
    prepared = prepare_identity(
        key,
        fleet_id=fleet_id,
        fleet_name=fleet_name,
        device_id=device_id,
        urls=urls,
        certificate_pem=certificate_pem,
        authorities_pem=authorities_pem,
        generation=generation,
    )
    prepared.write_pair()
    prepared.make_current()
    return prepared.identity


@dataclass(frozen=True)
class PreparedIdentity:
    """A checked identity that is not the folder's yet: write its pair, try it, make it current."""

    identity: Identity
    certificate_pem: bytes

    def write_pair(self) -> None:
        """Put certificate and authorities beside their key. Raises OSError."""
        folder, record = self.identity.folder, self.identity.record
        write_private(folder / f"{record.stem}.crt.pem", self.certificate_pem)
        write_private(folder / record.authorities, self.identity.authorities_pem)

    def make_current(self) -> None:
        """Switch the folder to this identity, and nothing else: other keys stay. Raises OSError."""
        folder, record = self.identity.folder, self.identity.record
        write_private(folder / RECORD_FILE, msgspec.json.format(msgspec.json.encode(record)))


def prepare_identity(
    key: DeviceKey,
    *,
    fleet_id: str,
    fleet_name: str,
    device_id: DeviceId,
    urls: list[str],
    certificate_pem: bytes,
    authorities_pem: bytes,
    generation: int = 1,
    mark: str = "",
) -> PreparedIdentity:
    """Check what belongs together; writes nothing. Raises IdentityUnreadable, or ValueError for the authorities.

    `mark` names the file of the device's mark, if it has one already: a new device begins without.
    """
    record = IdentityRecord(
        fleet_id, fleet_name, device_id, urls, key.stem, key.passphrase.protection,
        generation=generation, binding=this_pc(fleet_id),
        authorities=f"{key.stem}.authorities.pem", mark=mark or f"{key.stem}.mark.txt",
    )  # fmt: skip
    certificate = _checked_certificate(certificate_pem, key, record)
    read_authorities(authorities_pem)
    return PreparedIdentity(Identity(key.folder, record, certificate, authorities_pem, key.passphrase), certificate_pem)


def load_identity(folder: Path, keystore: Keystore) -> Identity:
    """Read and check an identity.

    Raises IdentityMissing (not enrolled), IdentityUnreadable (damaged files), KeyLocked, or OSError for files that are
    there and cannot be read now: rights that are wrong are no reason to take another identity. Blocks (keyring, disk).
    """
    record = read_record(folder)
    try:
        key = load_key(folder, record.stem, keystore)
        certificate_pem = (folder / f"{record.stem}.crt.pem").read_bytes()
        authorities_pem = (folder / record.authorities).read_bytes()
        read_authorities(authorities_pem)
        certificate = _checked_certificate(certificate_pem, key, record)
    except (IdentityMissing, FileNotFoundError, ValueError) as error:
        raise IdentityUnreadable(f"The identity in {folder} is incomplete or damaged ({error}); {_AGAIN}.") from None
    return Identity(folder, record, certificate, authorities_pem, key.passphrase)


def read_record(folder: Path) -> IdentityRecord:
    """Read what names the identity in force. Raises IdentityMissing, IdentityUnreadable or OSError. Blocks."""
    path = folder / RECORD_FILE
    try:
        record = msgspec.json.decode(path.read_bytes(), type=IdentityRecord)
    except FileNotFoundError:
        raise IdentityMissing("This PC is not enrolled; ask your administrator for an invite.") from None
    except UNREADABLE as error:
        raise IdentityUnreadable(f"{path} cannot be read ({type(error).__name__}); {_AGAIN}.") from None
    if record.version != 1:
        raise IdentityUnreadable(f"{path} was written by a newer Fallow; update Fallow on this PC.")
    if not FLEET_ID.fullmatch(record.fleet_id):
        raise IdentityUnreadable(f"{path} names a fleet that cannot be one; {_AGAIN}.")
    if not _AUTHORITIES.fullmatch(record.authorities) or not _MARK.fullmatch(record.mark):
        raise IdentityUnreadable(f"{path} names files that cannot be its own; {_AGAIN}.")
    return record


def _checked_certificate(pem: bytes, key: DeviceKey, record: IdentityRecord) -> x509.Certificate:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (ValueError, x509.ExtensionNotFound):
        raise IdentityUnreadable(f"The certificate of this PC is damaged; {_AGAIN}.") from None
    if certificate.public_key() != key.key.public_key():
        raise IdentityUnreadable(f"The certificate of this PC belongs to another key; {_AGAIN}.")
    if uris != [device_uri(record.fleet_id, record.device_id)]:
        raise IdentityUnreadable(f"The certificate of this PC names another device or fleet; {_AGAIN}.")
    return certificate


def with_authorities(identity: Identity, authorities_pem: bytes) -> Identity:
    """Save another set of authorities for an identity. Raises OSError. Blocks."""
    write_private(identity.folder / identity.record.authorities, authorities_pem)
    return replace(identity, authorities_pem=authorities_pem)


def ensure_made_here(identity: Identity) -> None:
    """Raise IdentityCopied if the identity was surely made on another PC or by another user. Blocks."""
    if identity.record.binding.is_elsewhere(this_pc(identity.fleet_id)):
        raise IdentityCopied(
            f"The data folder {identity.folder.parent} was copied from another PC or user; enrol this PC with a new "
            "invite: fallow-agent enrol --force."
        )


def client_context(identity: Identity) -> ssl.SSLContext:
    """TLS for every link to the console: TLS 1.3, both sides verified, only the fleet's own authorities.

    Connect with `server_hostname=identity.server_hostname`. Raises IdentityUnreadable. Reads files: call it once per
    identity, not per connection.
    """
    context = server_verifying_context(identity.authorities_pem)
    _show(identity, context)
    return context


def credentials_of(identity: Identity) -> Credentials:
    """What another program of this PC needs to show itself as the same device."""
    stem = identity.folder / identity.record.stem
    return Credentials(f"{stem}.crt.pem", f"{stem}.pem", identity.passphrase.value, identity.authorities_pem)


def peer_server_context(identity: Identity) -> ssl.SSLContext:
    """TLS for PCs that dial this one: see `peer_tls`. Raises IdentityUnreadable. Reads files."""
    try:
        return peer_tls(credentials_of(identity))
    except OSError:
        raise IdentityUnreadable(f"Key and certificate in {identity.folder} do not open; {_AGAIN}.") from None


def _show(identity: Identity, context: ssl.SSLContext) -> None:
    try:
        show(credentials_of(identity), context)
    except OSError:
        raise IdentityUnreadable(f"Key and certificate in {identity.folder} do not open; {_AGAIN}.") from None


def server_verifying_context(authorities_pem: bytes) -> ssl.SSLContext:
    """TLS that trusts only a console of this fleet and shows no certificate of its own (enrolment, diagnosis)."""
    return trusting_context(authorities_pem)
