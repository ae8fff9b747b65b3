"""The roots of one console: the one that signs, the one that will, and those that did; and what they vouch for.

    rotate ─► next root, endorsed by the present one ─30 days─► it signs, the old is a former one ─120 days─► gone

Everybody who was connected within the 30 days knows the new root before it is used (each renewal ships the set); who
was not learns it from the endorsement. A former root stays in the set as long as certificates it signed may be
renewed. The keys of former roots are deleted with them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from agent.link.authorities import Endorsement, endorsement_content, read_authorities
from agent.link.keys import DeviceKey, create_key, forget_key, load_key, spki_sha256
from agent.link.keystore import Keystore, write_private
from console.registry.certificates import Issuer, make_root
from console.registry.errors import WrongState

DAY_S = 86_400.0
ANNOUNCED_S = 30 * DAY_S
FORMER_S = 120 * DAY_S
"""The life of a device's certificate and the time it may be renewed after."""
ROTATE_BEFORE_S = 365 * DAY_S
ENDORSED_S = 365 * DAY_S


class Fleet(msgspec.Struct, frozen=True):
    """Content of fleet.json. Roots are the stems of their keys; `since_s` is when the last step of a rotation was."""

    fleet_id: str
    fleet_name: str
    root: str
    server: str
    version: int = 1
    next_root: str = ""
    former_root: str = ""
    since_s: float = 0.0


class Roots:
    """The root keys and certificates in an authority's folder."""

    def __init__(self, folder: Path, fleet: Fleet, keystore: Keystore, now: Callable[[], float]) -> None:
        """Read them. Raises ValueError, IdentityError kinds or OSError for files that are damaged."""
        self._folder = folder
        self._keystore = keystore
        self._now = now
        self.fleet = fleet
        self._made: dict[tuple[str, bytes], Endorsement] = {}
        self._keys = {stem: load_key(folder / "root", stem, keystore) for stem in self._stems()}
        self._certificates = {stem: self._read_certificate(stem) for stem in self._stems()}

    def _stems(self) -> list[str]:
        return [stem for stem in (self.fleet.root, self.fleet.next_root, self.fleet.former_root) if stem]

    def _read_certificate(self, stem: str) -> x509.Certificate:
        path = self._folder / "root" / f"{stem}.crt.pem"
        # A folder from before there were several roots has its only one in authorities.pem.
        pem = path.read_bytes() if path.exists() else (self._folder / "authorities.pem").read_bytes()
        certificate = read_authorities(pem)[0]
        if certificate.public_key() != self._keys[stem].key.public_key():
            raise ValueError("a root certificate belongs to another key")
        return certificate

    @property
    def issuer(self) -> Issuer:
        """The root that signs."""
        stem = self.fleet.root
        return Issuer(self._certificates[stem], self._keys[stem].key, self.fleet.fleet_id)

    @property
    def key(self) -> DeviceKey:
        """The key of the root that signs."""
        return self._keys[self.fleet.root]

    def certificates(self) -> list[x509.Certificate]:
        """List the roots to trust: the one that signs, the next, the former."""
        return [self._certificates[stem] for stem in self._stems()]

    def endorsements(self) -> list[Endorsement]:
        """Let every root of ours vouch for every other."""
        pairs = [(stem, other) for stem in self._stems() for other in self._stems() if other != stem]
        return [self.endorse(self._certificates[other], stem) for stem, other in pairs]

    def endorse(self, root: x509.Certificate, stem: str = "") -> Endorsement:
        """Vouch for a root for a year, with the root that signs unless another is named; the same again until then."""
        stem = stem or self.fleet.root
        made = self._made.get((stem, root.public_bytes(Encoding.PEM)))
        if made is None or made.until_s < self._now() + ENDORSED_S / 4:
            made = self._endorse(root, stem)
            self._made[stem, root.public_bytes(Encoding.PEM)] = made
        return made

    def _endorse(self, root: x509.Certificate, stem: str) -> Endorsement:
        key = self._keys[stem].key
        until_s = float(int(self._now() + ENDORSED_S))
        content = endorsement_content(self.fleet.fleet_id, root.public_bytes(Encoding.DER), until_s)
        signature = key.sign(content, ec.ECDSA(hashes.SHA256()))
        return Endorsement(root.public_bytes(Encoding.PEM), spki_sha256(key.public_key()), until_s, signature)

    @property
    def next_step_s(self) -> float:
        """When the next step of a rotation comes by itself (Unix time)."""
        if self.fleet.next_root:
            return self.fleet.since_s + ANNOUNCED_S
        if self.fleet.former_root:
            return self.fleet.since_s + FORMER_S
        return self._certificates[self.fleet.root].not_valid_after_utc.timestamp() - ROTATE_BEFORE_S

    def rotate(self) -> None:
        """Make the next root and announce it. Raises WrongState while a rotation is under way."""
        if self.fleet.next_root or self.fleet.former_root:
            raise WrongState("The fleet's root is being rotated already; see `fallow-console authority show`.")
        key = create_key(self._folder / "root", self._keystore)
        certificate = make_root(key.key, self.fleet.fleet_id, self.fleet.fleet_name, self._now())
        write_private(self._folder / "root" / f"{key.stem}.crt.pem", certificate.public_bytes(Encoding.PEM))
        self._keys[key.stem], self._certificates[key.stem] = key, certificate
        self._save(next_root=key.stem)

    def advance(self, *, at_once: bool = False) -> bool:
        """Take the step of a rotation that is due (`at_once`: before its time); returns whether there was one."""
        now_s, fleet = self._now(), self.fleet
        if fleet.next_root and (at_once or now_s >= fleet.since_s + ANNOUNCED_S):
            # The former root's certificate must be readable on its own from now on.
            pem = self._certificates[fleet.root].public_bytes(Encoding.PEM)
            write_private(self._folder / "root" / f"{fleet.root}.crt.pem", pem)
            self._save(root=fleet.next_root, next_root="", former_root=fleet.root)
            return True
        if fleet.former_root and now_s >= fleet.since_s + FORMER_S:
            self._save(former_root="")
            forget_key(self._folder / "root", fleet.former_root, self._keystore)
            del self._keys[fleet.former_root], self._certificates[fleet.former_root]
            return True
        ends_s = self._certificates[fleet.root].not_valid_after_utc.timestamp()
        if not fleet.next_root and not fleet.former_root and ends_s - now_s < ROTATE_BEFORE_S:
            self.rotate()
            return True
        return False

    def _save(self, **changes: str) -> None:
        self.fleet = msgspec.structs.replace(self.fleet, since_s=self._now(), **changes)
        write_private(self._folder / "fleet.json", msgspec.json.encode(self.fleet))
