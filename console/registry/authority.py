"""The fleet's private certificate authority: a folder with its keys (encrypted), its certificates, the console's own.

    fleet.json                  fleet id and name, which keys
    authorities.pem             the roots agents trust, the one that signs first
    root/key-*.pem              root keys, PKCS#8, encrypted; the passphrases are in the keyring or in a file
    server/key-*.pem, .crt.pem  the console's own key and certificate

The authority signs; whom it signs for is the registry's and the enrolment handler's decision.
"""

from __future__ import annotations

import re
import secrets
import shutil
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from agent.link.authorities import Endorsement, write_authorities
from agent.link.errors import IdentityError, KeyLocked
from agent.link.identity import FLEET_ID, DeviceId, server_hostname
from agent.link.keys import DeviceKey, create_key, load_key, spki_sha256
from agent.link.keystore import Keystore, Protection, ensure_private_folder, write_private
from agent.link.messages import STAGE_PROTOCOL
from console.registry.certificates import (
    SERVER_LIFE,
    checked_request,
    make_api,
    make_device,
    make_root,
    make_server,
    make_signer,
)
from console.registry.errors import RegistryUnreadable
from console.registry.roots import Fleet, Roots

_NOT_A_NAME = re.compile(r"[^\w .,&'()-]")


class Authority:
    """Signs certificates for one fleet. Open it with `Authority.open`; methods may be called from any thread.

    What changes while the console runs (its own certificate, the set of roots) is in force for the next handshake.
    """

    def __init__(self, folder: Path, roots: Roots, server_key: DeviceKey, now: Callable[[], float]) -> None:
        self._folder = folder
        self._roots = roots
        self._server_key = server_key
        self._now = now
        self._others: list[x509.Certificate] = []
        self._others_endorsed: list[Endorsement] = []
        self._endorsements: list[Endorsement] = []
        self._authorities_pem = b""
        self._server_certificates: list[bytes] = []
        self._context: ssl.SSLContext | None = None

    @classmethod
    def open(
        cls,
        folder: Path,
        keystore: Keystore,
        *,
        fleet_name: str = "Fallow",
        fleet_id: str = "",
        now: Callable[[], float] = time.time,
    ) -> Authority:
        """Open the authority in `folder`, or found one if there is none: of a new fleet called `fleet_name`, or of the
        fleet `fleet_id` that other consoles serve already.

        What is due is done: see `refresh`. Blocks (keyring, disk, key generation). Raises RegistryUnreadable,
        agent.link.errors.KeyLocked, or OSError.
        """
        if not folder.exists() or not any(folder.iterdir()):
            _found(folder, keystore, fleet_name, fleet_id or secrets.token_hex(6), now())
        try:
            fleet = read_fleet(folder)
            server_key = load_key(folder / "server", fleet.server, keystore)
            authority = cls(folder, Roots(folder, fleet, keystore, now), server_key, now)
            authority.refresh()
        except (msgspec.MsgspecError, ValueError, FileNotFoundError) as error:
            raise RegistryUnreadable(
                f"The certificate authority in {folder} is damaged ({error}); restore the folder from a backup."
            ) from None
        except KeyLocked:
            raise
        except IdentityError:
            raise RegistryUnreadable(
                f"The key of the certificate authority in {folder} cannot be opened; restore the folder and its "
                "passphrase from a backup."
            ) from None
        if fleet_id and authority.fleet_id != fleet_id:
            raise RegistryUnreadable(
                f"The authority in {folder} is of the fleet {authority.fleet_id}, the registry of {fleet_id}; give "
                "this console another data folder or another database."
            )
        return authority

    def refresh(self, *, at_once: bool = False) -> bool:
        """Do what is due: the next step of a rotation (`at_once`: before its time), this console's own certificate in
        its last third. Returns whether anything changed. Blocks (disk, key generation).
        """
        changed = self._roots.advance(at_once=at_once)
        if self._renew_server_certificate(changed) or changed or not self._authorities_pem:
            self._publish()
            return True
        return False

    def rotate(self) -> None:
        """Announce the next root. Raises WrongState while a rotation is under way. Blocks."""
        self._roots.rotate()
        self._publish()

    def adopt(self, others: Sequence[x509.Certificate], endorsements: Sequence[Endorsement]) -> None:
        """Trust the roots of the other consoles of this fleet from now on, instead of those adopted before. Blocks."""
        if (list(others), list(endorsements)) != (self._others, self._others_endorsed):
            self._others, self._others_endorsed = list(others), list(endorsements)
            self._publish()

    def _publish(self) -> None:
        """Write the set of roots and let the next handshake use what has changed."""
        own = self._roots.certificates()
        self._authorities_pem = write_authorities([*own, *self._others])
        self._endorsements = [*self._roots.endorsements(), *self._others_endorsed]
        path = self._folder / "authorities.pem"
        if not path.exists() or path.read_bytes() != self._authorities_pem:
            write_private(path, self._authorities_pem)
        if self._context is not None:
            self._context = self._make_context()

    @property
    def console_id(self) -> str:
        """A name for this console among those that share a registry: it follows from its key."""
        return spki_sha256(self._server_key.key.public_key())[:8].hex()

    @property
    def root(self) -> x509.Certificate:
        """The root that signs."""
        return self._roots.issuer.certificate

    @property
    def own_roots(self) -> list[x509.Certificate]:
        """This console's roots: the one that signs, the next and the former one of a rotation."""
        return self._roots.certificates()

    @property
    def rotation(self) -> Fleet:
        """How far a rotation is."""
        return self._roots.fleet

    @property
    def next_step_s(self) -> float:
        """When the next step of a rotation comes by itself (Unix time)."""
        return self._roots.next_step_s

    @property
    def endorsements(self) -> list[Endorsement]:
        """Which roots vouch for which, this console's and the others'."""
        return self._endorsements

    def endorse(self, root: x509.Certificate) -> Endorsement:
        """Vouch for the root of another console of this fleet."""
        return self._roots.endorse(root)

    @property
    def fleet_id(self) -> str:
        return self._roots.fleet.fleet_id

    @property
    def fleet_name(self) -> str:
        return self._roots.fleet.fleet_name

    @property
    def key_protection(self) -> Protection:
        """Where the root key's passphrase is kept."""
        return self._roots.key.passphrase.protection

    @property
    def ca_spki_sha256(self) -> bytes:
        """The pin that goes into invites: SHA-256 of the root's public key."""
        return spki_sha256(self._roots.key.key.public_key())

    @property
    def authorities_pem(self) -> bytes:
        """Every root an agent of this fleet should trust."""
        return self._authorities_pem

    @property
    def server_certificate_der(self) -> bytes:
        return self._server_certificates[-1]

    @property
    def server_certificates_der(self) -> list[bytes]:
        """The console's certificates a peer may have seen in a handshake just now: this one, and the one before."""
        return self._server_certificates[-2:]

    @property
    def server_hostname(self) -> str:
        return server_hostname(self.fleet_id)

    def issue_device(self, request_der: bytes, device_id: DeviceId) -> x509.Certificate:
        """Sign a device certificate for the key of a certificate request. Raises RequestRefused."""
        return make_device(self._roots.issuer, checked_request(request_der), device_id, self._now())

    def issue_api(self, public: ec.EllipticCurvePublicKey, names: Sequence[x509.GeneralName]) -> x509.Certificate:
        """Sign a certificate for the HTTP API under the names and addresses its clients dial."""
        return make_api(self._roots.issuer, public, names, self._now())

    def issue_signer(self, public: Ed25519PublicKey) -> x509.Certificate:
        """Sign a certificate for a key that signs libraries."""
        return make_signer(self._roots.issuer, public, self._now())

    def server_context(self) -> ssl.SSLContext:
        """TLS for the agents' port: TLS 1.3 only, our own authorities only. Later changes are taken over by it.

        A client certificate is optional here because enrolment has none; whoever accepts any other path must call
        `access.authorise`. No session tickets: a resumed session would outlive a revocation.
        """
        self._context = self._make_context()
        context = self._make_context()
        context.sni_callback = self._use_newest
        return context

    def _use_newest(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        if self._context is not None:
            connection.context = self._context

    def _make_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
        context.num_tickets = 0
        context.load_verify_locations(cadata=self.authorities_pem.decode("ascii"))
        passphrase = self._server_key.passphrase
        context.load_cert_chain(
            self._server_file(".crt.pem"), self._server_file(".pem"), password=lambda: passphrase.value
        )
        context.set_alpn_protocols([STAGE_PROTOCOL])  # websockets ask for none
        return context

    def _server_file(self, suffix: str) -> Path:
        return self._folder / "server" / f"{self._roots.fleet.server}{suffix}"

    def _renew_server_certificate(self, by_another_root: bool) -> bool:
        """Replace the console's certificate if it is time; returns whether it was."""
        path = self._server_file(".crt.pem")
        if path.exists():
            present = x509.load_pem_x509_certificate(path.read_bytes())
            left_s = present.not_valid_after_utc.timestamp() - self._now()
            der = present.public_bytes(Encoding.DER)
            if not self._server_certificates:
                self._server_certificates.append(der)
            is_ours = present.issuer == self.root.subject and _is_issued_by(present, self.root)
            if is_ours and left_s > SERVER_LIFE.total_seconds() / 3 and not by_another_root:
                return False
        certificate = make_server(self._roots.issuer, self._server_key.key.public_key(), self._now())
        write_private(path, certificate.public_bytes(Encoding.PEM))
        self._server_certificates.append(certificate.public_bytes(Encoding.DER))
        return True


def _is_issued_by(certificate: x509.Certificate, root: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def read_fleet(folder: Path) -> Fleet:
    """Read which fleet an authority's folder is of. Raises ValueError (msgspec's kinds too) or FileNotFoundError."""
    fleet = msgspec.json.decode((folder / "fleet.json").read_bytes(), type=Fleet)
    if fleet.version != 1 or not FLEET_ID.fullmatch(fleet.fleet_id):
        raise ValueError("fleet.json is of another version")
    return fleet


def _found(folder: Path, keystore: Keystore, fleet_name: str, fleet_id: str, now_s: float) -> None:
    """Make keys and root beside `folder` and move them there whole: an existing folder is never founded over."""
    name = _NOT_A_NAME.sub("", fleet_name).strip()[:64] or "Fallow"
    draft = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    ensure_private_folder(draft)
    root_key = create_key(draft / "root", keystore)
    server_key = create_key(draft / "server", keystore)
    root = make_root(root_key.key, fleet_id, name, now_s)
    write_private(draft / "root" / f"{root_key.stem}.crt.pem", root.public_bytes(Encoding.PEM))
    write_private(draft / "authorities.pem", root.public_bytes(Encoding.PEM))
    write_private(draft / "fleet.json", msgspec.json.encode(Fleet(fleet_id, name, root_key.stem, server_key.stem)))
    if folder.exists():
        folder.rmdir()
    draft.replace(folder)
