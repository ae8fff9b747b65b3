"""Enrolling this PC: from an invite to an identity.

The key is made and saved before it is shown to the console, with the token it is for. So whatever is lost on the way
(an answer, the power, the process), enrolling with the same invite asks again with the same key, and the console
counts it as the same use.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
from websockets.exceptions import ConnectionClosed

from agent.link.binding import this_pc
from agent.link.enrol_messages import (
    PROTOCOL,
    EnrolHello,
    Facts,
    FromEnrollee,
    Granted,
    Pending,
    Poll,
    Refused,
    Submit,
    submission_mac,
)
from agent.link.errors import (
    ConsoleUnreachable,
    EnrolmentDenied,
    EnrolmentError,
    IdentityCopied,
    IdentityMissing,
    IdentityUnreadable,
    InviteExpired,
    InviteRefused,
    InviteUsedUp,
    ProtocolMismatch,
)
from agent.link.identity import RECORD_FILE, DeviceId, Identity, ensure_made_here, load_identity, save_identity
from agent.link.invite import Invite, ensure_current
from agent.link.keys import (
    DeviceKey,
    certificate_request,
    create_key,
    device_code,
    forget_key,
    load_key,
)
from agent.link.keystore import Keystore, ensure_private_folder, write_private
from agent.link.leftovers import ASIDE_FILE, ENROLMENT_FILE, PendingEnrolment, clear_leftovers, read_pending
from agent.link.pinning import FoundConsole, VerifiedConsole, ask, find_console, verified_connection
from agent.threads import finish_in_thread

_log = logging.getLogger(__name__)

_MAX_POLL_S = 30.0
_LOST_REPLIES = 5
_CHANGING = threading.Lock()
"""Of two attempts at once (a double click) the second must find the key of the first, and clear nothing it writes."""
_FINAL_STATES = frozenset({"evicted", "banned", "retired", "expired"})
"""Answers after which the key is of no more use with its invite."""


@dataclass(frozen=True)
class EnrolState:
    """How far enrolling is. Show `device_code` while pending: the administrator sees the same one."""

    phase: Literal["connecting", "pending", "enrolled"]
    device_code: str
    url: str = ""


async def enrol(
    invite: Invite,
    folder: Path,
    facts: Facts,
    *,
    keystore: Keystore,
    on_state: Callable[[EnrolState], None] = lambda _: None,
    force: bool = False,
    now: Callable[[], float] = time.time,
) -> Identity:
    """Make this PC a member of the invite's fleet and return its identity, saved in `folder`.

    While an administrator must approve, this waits (cancel it to stop; the same invite continues later). A usable
    identity of the same fleet is returned as it is unless `force`; it stays in force until the new one is saved.
    Raises LinkError kinds, each with a sentence for the user; OSError if `folder` cannot be read or written.
    """
    ready = await finish_in_thread(partial(_prepare, folder, keystore, invite, force))
    if isinstance(ready, Identity):
        return ready
    key, resumed = ready
    machine = (await asyncio.to_thread(this_pc, invite.fleet_id)).machine_sha256
    facts = msgspec.structs.replace(facts, key_protection=key.passphrase.protection, machine_sha256=machine)
    code = device_code(key.spki_sha256)
    on_state(EnrolState("connecting", code))
    conversation = _Conversation(invite, key, facts, on_state)
    try:
        console = await find_console(invite, now)
        granted, hello = await conversation.run(console, check_time=not resumed)
    except ConsoleUnreachable:
        if not resumed:
            ensure_current(invite, now())
        raise
    except EnrolmentDenied as error:
        if error.code in _FINAL_STATES:
            await finish_in_thread(partial(_forget_pending, folder, key, keystore))
        raise
    urls = [console.url, *(url for url in invite.urls if url != console.url)]
    identity = await finish_in_thread(partial(_adopt, key, keystore, hello, granted, urls))
    on_state(EnrolState("enrolled", code, console.url))
    return identity


class _Conversation:
    """Submits one key and waits for the answer, over as many connections as it takes."""

    def __init__(self, invite: Invite, key: DeviceKey, facts: Facts, on_state: Callable[[EnrolState], None]) -> None:
        self._invite = invite
        self._key = key
        self._facts = facts
        self._on_state = on_state
        self._csr = certificate_request(key)
        self._was_pending = False
        self._lost = 0

    async def run(self, console: FoundConsole, *, check_time: bool) -> tuple[Granted, EnrolHello]:
        """Return the console's yes. Raises InviteError kinds, EnrolmentDenied, ConsoleUnreachable."""
        while True:
            try:
                async with verified_connection(console.url, console.fleet_id, console.authority_pem) as verified:
                    if check_time and not self._was_pending:
                        ensure_current(self._invite, verified.hello.now_s)
                    return await self._submit(verified, console.url), verified.hello
            except (ConnectionClosed, ConsoleUnreachable) as error:
                self._lost += 1
                # Once the console has our request there is no hurry: it may restart while an administrator decides.
                if not self._was_pending and self._lost >= _LOST_REPLIES:
                    raise ConsoleUnreachable(
                        f"The console at {console.url} breaks off before it answers; try again later with the same "
                        "invite."
                    ) from None
                _log.info("The connection to the console was lost while enrolling (%s); asking again", error)
                longest_s = min(_MAX_POLL_S, 0.1 * 2.0 ** min(self._lost, 9))
                await asyncio.sleep(random.uniform(0, longest_s))  # noqa: S311 - jitter

    async def _submit(self, console: VerifiedConsole, url: str) -> Granted:
        nonce = secrets.token_bytes(32)
        secret_sha256 = hashlib.sha256(self._invite.token_secret).digest()
        mac = submission_mac(secret_sha256, console.hello.nonce, nonce, self._csr, console.server_certificate)
        question: FromEnrollee = Submit(PROTOCOL, self._invite.token_id, self._csr, nonce, self._facts, mac)
        slowed = 1.0
        while True:
            reply = await ask(console, question)
            match reply:
                case Granted():
                    return reply
                case Pending(poll_s=poll_s):
                    self._was_pending, self._lost = True, 0
                    self._on_state(EnrolState("pending", device_code(self._key.spki_sha256), url))
                    wait_s = min(max(poll_s, 0.01) * slowed, _MAX_POLL_S)
                    await asyncio.sleep(wait_s * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
                    slowed *= 1.1
                    question = Poll()
                case Refused():
                    raise _refusal(reply)
                case _:
                    raise ProtocolMismatch("The console's answer makes no sense here; update Fallow on this PC.")


def _refusal(reply: Refused) -> EnrolmentError | InviteExpired | InviteUsedUp | InviteRefused:
    match reply.code:
        case "invite_expired":
            return InviteExpired(reply.message)
        case "invite_used_up":
            return InviteUsedUp(reply.message)
        case "invite_unknown" | "invite_revoked":
            return InviteRefused(reply.message)
        case "protocol" | "request":
            return ProtocolMismatch(reply.message)
        case "busy":
            return ConsoleUnreachable(reply.message)
    return EnrolmentDenied(reply.message, reply.code)


def _prepare(folder: Path, keystore: Keystore, invite: Invite, force: bool) -> Identity | tuple[DeviceKey, bool]:
    with _CHANGING:
        done = _already_done(folder, keystore, invite)
        clear_leftovers(folder, keystore)
        existing = _existing_identity(folder, keystore, invite) if done is None and not force else done
        return existing or _key_for(folder, keystore, invite)


def _already_done(folder: Path, keystore: Keystore, invite: Invite) -> Identity | None:
    """Return the identity if it was made with this invite, and only what comes after that was cut off."""
    pending = read_pending(folder / ENROLMENT_FILE, PendingEnrolment)
    if pending is None or pending.token_id != invite.token_id.hex():
        return None
    with contextlib.suppress(IdentityMissing, IdentityCopied, IdentityUnreadable):
        identity = load_identity(folder, keystore)
        ensure_made_here(identity)
        if identity.record.stem == pending.stem:
            return identity
    return None


def _existing_identity(folder: Path, keystore: Keystore, invite: Invite) -> Identity | None:
    try:
        identity = load_identity(folder, keystore)
        ensure_made_here(identity)
    except IdentityMissing:
        return None
    except IdentityCopied as error:
        _log.info("The identity in %s is not this PC's: %s", folder, error)
        return None
    except IdentityUnreadable as error:
        _log.info("The former identity is put aside: %s", error)
        with contextlib.suppress(FileNotFoundError):
            (folder / RECORD_FILE).replace(folder / ASIDE_FILE)
        return None
    if identity.fleet_id != invite.fleet_id:
        raise EnrolmentDenied(
            f"This PC already belongs to the fleet {identity.record.fleet_name!r}; leave it first, or enrol with "
            "--force to change over.",
            "other_fleet",
        )
    return identity


def _key_for(folder: Path, keystore: Keystore, invite: Invite) -> tuple[DeviceKey, bool]:
    """Return the key this invite was used with before (True), or a new one (False)."""
    token_id = invite.token_id.hex()
    path = folder / ENROLMENT_FILE
    pending = read_pending(path, PendingEnrolment)
    if pending is not None:
        with contextlib.suppress(IdentityMissing, IdentityUnreadable):
            if pending.token_id == token_id:
                return load_key(folder, pending.stem, keystore), True
        forget_key(folder, pending.stem, keystore)
    ensure_private_folder(folder)
    key = create_key(folder, keystore)
    write_private(path, msgspec.json.encode(PendingEnrolment(token_id, key.stem)))
    return key, False


def _forget_pending(folder: Path, key: DeviceKey, keystore: Keystore) -> None:
    (folder / ENROLMENT_FILE).unlink(missing_ok=True)
    forget_key(folder, key.stem, keystore)


def _adopt(key: DeviceKey, keystore: Keystore, hello: EnrolHello, granted: Granted, urls: list[str]) -> Identity:
    with _CHANGING:
        try:
            identity = save_identity(
                key,
                fleet_id=hello.fleet_id,
                fleet_name=hello.fleet_name,
                device_id=DeviceId(granted.device_id),
                urls=urls,
                certificate_pem=granted.certificate_pem,
                authorities_pem=granted.authorities_pem,
                generation=granted.generation,
            )
        except (IdentityUnreadable, ValueError) as error:
            raise ProtocolMismatch(f"The console sent a certificate that does not fit this PC ({error}).") from None
        clear_leftovers(key.folder, keystore)
        return identity
