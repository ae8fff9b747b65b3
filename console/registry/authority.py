"""The fleet's private certificate authority: a folder with its key (encrypted), its certificates, the console's own.

    fleet.json                  fleet id and name, which key
    authorities.pem             the roots agents trust, newest first
    root/key-*.pem              root key, PKCS#8, encrypted; the passphrase is in the keyring or in a file
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
from dataclasses import dataclass
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from agent.link.errors import IdentityError, KeyLocked
from agent.link.identity import (
    FLEET_ID,
    DeviceId,
    DeviceKey,
    create_key,
    load_key,
    read_authorities,
    server_hostname,
    spki_sha256,
)
from agent.link.keystore import Keystore, Protection, ensure_private_folder, write_private
from agent.link.messages import STAGE_PROTOCOL
from console.registry.certificates import (
    SERVER_LIFE,
    Issuer,
    checked_request,
    make_api,
    make_device,
    make_root,
    make_server,
)
from console.registry.errors import RegistryUnreadable

_NOT_A_NAME = re.compile(r"[^\w .,&'()-]")


class _Fleet(msgspec.Struct, frozen=True):
    fleet_id: str
    fleet_name: str
    root: str
    server: str
    version: int = 1


@dataclass(frozen=True)
class _Keys:
    issuer: Issuer
    root: DeviceKey
    server: DeviceKey


class Authority:
    """Signs certificates for one fleet. Open it with `Authority.open`; methods may be called from any thread."""

    def __init__(self, folder: Path, fleet: _Fleet, keys: _Keys, now: Callable[[], float]) -> None:
        self._folder = folder
        self._fleet = fleet
        self._issuer = keys.issuer
        self._root_key = keys.root
        self._server_key = keys.server
        self._now = now

    @classmethod
    def open(
        cls,
        folder: Path,
        keystore: Keystore,
        *,
        fleet_name: str = "Fallow",
        now: Callable[[], float] = time.time,
    ) -> Authority:
        """Open the authority in `folder`, or found a new fleet called `fleet_name` if there is none.

        The console's own certificate is replaced when less than a third of its life is left. Blocks (keyring, disk,
        key generation). Raises RegistryUnreadable, agent.link.errors.KeyLocked, or OSError.
        """
        if not folder.exists() or not any(folder.iterdir()):
            _found_fleet(folder, keystore, fleet_name, now())
        try:
            fleet = _read_fleet(folder / "fleet.json")
            authority = cls(folder, fleet, _read_keys(folder, fleet, keystore), now)
            authority._renew_server_certificate()
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
        return authority

    @property
    def fleet_id(self) -> str:
        return self._fleet.fleet_id

    @property
    def fleet_name(self) -> str:
        return self._fleet.fleet_name

    @property
    def key_protection(self) -> Protection:
        """Where the root key's passphrase is kept."""
        return self._root_key.passphrase.protection

    @property
    def ca_spki_sha256(self) -> bytes:
        """The pin that goes into invites: SHA-256 of the root's public key."""
        return spki_sha256(self._root_key.key.public_key())

    @property
    def authorities_pem(self) -> bytes:
        """Every root an agent of this fleet should trust."""
        return (self._folder / "authorities.pem").read_bytes()

    @property
    def server_certificate_der(self) -> bytes:
        return self._server_certificate().public_bytes(Encoding.DER)

    @property
    def server_hostname(self) -> str:
        return server_hostname(self.fleet_id)

    def issue_device(self, request_der: bytes, device_id: DeviceId) -> x509.Certificate:
        """Sign a device certificate for the key of a certificate request. Raises RequestRefused."""
        return make_device(self._issuer, checked_request(request_der), device_id, self._now())

    def issue_api(self, public: ec.EllipticCurvePublicKey, names: Sequence[x509.GeneralName]) -> x509.Certificate:
        """Sign a certificate for the HTTP API under the names and addresses its clients dial."""
        return make_api(self._issuer, public, names, self._now())

    def server_context(self) -> ssl.SSLContext:
        """TLS for the agents' port: TLS 1.3 only, our own authorities only.

        A client certificate is optional here because enrolment has none; whoever accepts any other path must call
        `access.authorise`. No session tickets: a resumed session would outlive a revocation.
        """
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
        return self._folder / "server" / f"{self._fleet.server}{suffix}"

    def _server_certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self._server_file(".crt.pem").read_bytes())

    def _renew_server_certificate(self) -> None:
        path = self._server_file(".crt.pem")
        if path.exists():
            left_s = self._server_certificate().not_valid_after_utc.timestamp() - self._now()
            if left_s > SERVER_LIFE.total_seconds() / 3:
                return
        public = self._server_key.key.public_key()
        certificate = make_server(self._issuer, public, self._now())
        write_private(path, certificate.public_bytes(Encoding.PEM))


def _found_fleet(folder: Path, keystore: Keystore, fleet_name: str, now_s: float) -> None:
    """Make keys and root beside `folder` and move them there whole: an existing folder is never founded over."""
    name = _NOT_A_NAME.sub("", fleet_name).strip()[:64] or "Fallow"
    fleet_id = secrets.token_hex(6)
    draft = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    ensure_private_folder(draft)
    root_key = create_key(draft / "root", keystore)
    server_key = create_key(draft / "server", keystore)
    root = make_root(root_key.key, fleet_id, name, now_s)
    write_private(draft / "authorities.pem", root.public_bytes(Encoding.PEM))
    fleet = _Fleet(fleet_id, name, root_key.stem, server_key.stem)
    write_private(draft / "fleet.json", msgspec.json.encode(fleet))
    if folder.exists():
        folder.rmdir()
    draft.replace(folder)


def _read_fleet(path: Path) -> _Fleet:
    fleet = msgspec.json.decode(path.read_bytes(), type=_Fleet)
    if fleet.version != 1 or not FLEET_ID.fullmatch(fleet.fleet_id):
        raise ValueError("fleet.json is of another version")
    return fleet


def _read_keys(folder: Path, fleet: _Fleet, keystore: Keystore) -> _Keys:
    root_key = load_key(folder / "root", fleet.root, keystore)
    root = read_authorities((folder / "authorities.pem").read_bytes())[0]
    if root.public_key() != root_key.key.public_key():
        raise ValueError("the root certificate belongs to another key")
    server_key = load_key(folder / "server", fleet.server, keystore)
    return _Keys(Issuer(root, root_key.key, fleet.fleet_id), root_key, server_key)
