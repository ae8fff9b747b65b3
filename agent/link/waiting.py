"""What a PC keeps while an administrator has yet to approve it, and how it proves later that it is the same PC.

`enrolment.json` lies beside the key that was shown to the console (see identity). Nothing in it is secret, and the
invite is not kept: the key, encrypted like that of every identity, is the proof, so a file that is found opens nothing.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Protocol

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from agent.link.binding import Binding, this_pc
from agent.link.enrol_messages import PROTOCOL, Await, await_content
from agent.link.invite import Invite
from agent.link.keys import DeviceKey, certificate_request, device_code, forget_key
from agent.link.keystore import Keystore, write_private
from agent.link.leftovers import ENROLMENT_FILE, PendingEnrolment, read_pending


class Greeted(Protocol):
    """The part of a verified console that a signature is bound to."""

    @property
    def nonce(self) -> bytes:
        """What this console said in this conversation alone."""
        ...

    @property
    def server_certificate(self) -> bytes:
        """DER."""
        ...


class Waiting(PendingEnrolment, frozen=True):
    """Which key asked to join which fleet. `waits`: the console has the request, and an administrator must approve."""

    fleet_id: str = ""
    fleet_name: str = ""
    urls: tuple[str, ...] = ()
    ca_spki_sha256: bytes = b""
    device_code: str = ""
    binding: Binding = Binding()
    waits: bool = False

    def is_of(self, invite: Invite) -> bool:
        """Whether the invite is of the same fleet: then the console knows the key already."""
        return (self.fleet_id, self.ca_spki_sha256) == (invite.fleet_id, invite.ca_spki_sha256)


def read_waiting(folder: Path) -> Waiting | None:
    """Return what an identity's folder keeps of an enrolment that has not ended; None if there is none, or damaged.

    Raises OSError for a file that is there and cannot be read now.
    """
    return read_pending(folder / ENROLMENT_FILE, Waiting)


def waiting_for(invite: Invite, key: DeviceKey, *, waits: bool) -> Waiting:
    """Describe a request to join with this key. Blocks (files)."""
    return Waiting(
        invite.token_id.hex(), key.stem, invite.fleet_id, invite.fleet_name, tuple(invite.urls), invite.ca_spki_sha256,
        device_code(key.spki_sha256), this_pc(invite.fleet_id), waits,
    )  # fmt: skip


def keep_waiting(folder: Path, waiting: Waiting) -> None:
    """Remember a request; its key is in the same folder. Raises OSError. Blocks."""
    write_private(folder / ENROLMENT_FILE, msgspec.json.encode(waiting))


def forget_waiting(folder: Path, stem: str, keystore: Keystore) -> None:
    """Forget an enrolment with its key. Raises OSError. Blocks (keyring, disk)."""
    (folder / ENROLMENT_FILE).unlink(missing_ok=True)
    forget_key(folder, stem, keystore)


def signed_request(key: DeviceKey, console: Greeted, *, withdraw: bool = False) -> Await:
    """Ask for the answer to what `key` asked earlier, or take that back."""
    unsigned = Await(PROTOCOL, certificate_request(key), secrets.token_bytes(32), b"", withdraw)
    content = await_content(console.nonce, console.server_certificate, unsigned)
    return msgspec.structs.replace(unsigned, signature=key.key.sign(content, ec.ECDSA(hashes.SHA256())))
