"""Enrolling this PC: from an invite to an identity.

The key is made and saved before it is shown to the console, with the token it is for. So whatever is lost on the way
(an answer, the power, the process), enrolling with the same invite asks again with the same key, and the console
counts it as the same use. Once the console has the request, not even the invite is needed: see `approval`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
import secrets
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
from websockets.exceptions import ConnectionClosed

from agent.link.approval import CHANGING, FINAL_CODES, EnrolState, adopt, adopted, answer_of, await_approval, withdraw
from agent.link.binding import this_pc
from agent.link.enrol_messages import PROTOCOL, EnrolHello, Facts, Granted, Pending, Submit, submission_mac
from agent.link.errors import (
    ConsoleUnreachable,
    EnrolmentDenied,
    IdentityCopied,
    IdentityMissing,
    IdentityUnreadable,
)
from agent.link.identity import RECORD_FILE, Identity, ensure_made_here, load_identity
from agent.link.invite import Invite, ensure_current
from agent.link.keys import DeviceKey, certificate_request, create_key, device_code, forget_key, load_key
from agent.link.keystore import Keystore, ensure_private_folder
from agent.link.leftovers import ASIDE_FILE, clear_leftovers
from agent.link.pinning import FoundConsole, VerifiedConsole, ask, find_console, verified_connection
from agent.link.waiting import Waiting, forget_waiting, keep_waiting, read_waiting, waiting_for
from agent.threads import finish_in_thread

_log = logging.getLogger(__name__)

_LOST_REPLIES = 5


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

    While an administrator must approve, this waits (cancel it to stop; `await_approval` continues later). A usable
    identity of the same fleet is returned as it is unless `force`; it stays in force until the new one is saved.
    Raises LinkError kinds, each with a sentence for the user; OSError if `folder` cannot be read or written.
    """
    former = await finish_in_thread(partial(read_waiting, folder))
    if former is not None and former.waits and not former.is_of(invite):
        await withdraw(folder, keystore=keystore, now=now)
    ready = await finish_in_thread(partial(_prepare, folder, keystore, invite, force))
    if isinstance(ready, Identity):
        return ready
    key, resumed = ready
    machine = (await asyncio.to_thread(this_pc, invite.fleet_id)).machine_sha256
    facts = msgspec.structs.replace(facts, key_protection=key.passphrase.protection, machine_sha256=machine)
    code = device_code(key.spki_sha256)
    on_state(EnrolState("connecting", code))
    try:
        console = await find_console(invite, now)
        answer, hello = await _submit(invite, key, facts, console, check_time=not resumed)
        if isinstance(answer, Pending):
            waiting = await finish_in_thread(partial(_waiting, invite, key))
            return await await_approval(folder, waiting, keystore=keystore, on_state=on_state, now=now)
    except ConsoleUnreachable:
        if not resumed:
            ensure_current(invite, now())
        raise
    except EnrolmentDenied as error:
        if error.code in FINAL_CODES:
            await finish_in_thread(partial(forget_waiting, folder, key.stem, keystore))
        raise
    urls = [console.url, *(url for url in invite.urls if url != console.url)]
    identity = await adopted(partial(adopt, key, keystore, hello, answer, urls))
    on_state(EnrolState("enrolled", code, console.url))
    return identity


async def _submit(
    invite: Invite, key: DeviceKey, facts: Facts, console: FoundConsole, *, check_time: bool
) -> tuple[Granted | Pending, EnrolHello]:
    """Hand in the request and return the first answer, over as many connections as that takes.

    Raises InviteError kinds, EnrolmentDenied, ConsoleUnreachable.
    """
    lost = 0
    while True:
        try:
            async with verified_connection(console.url, console.fleet_id, console.authority_pem) as verified:
                if check_time:
                    ensure_current(invite, verified.hello.now_s)
                return answer_of(await ask(verified, _submission(invite, key, facts, verified))), verified.hello
        except (ConnectionClosed, ConsoleUnreachable) as error:
            lost += 1
            if lost >= _LOST_REPLIES:
                raise ConsoleUnreachable(
                    f"The console at {console.url} breaks off before it answers; try again later with the same invite."
                ) from None
            _log.info("The connection to the console was lost while enrolling (%s); asking again", error)
            await asyncio.sleep(random.uniform(0, 0.1 * 2.0**lost))  # noqa: S311 - jitter


def _submission(invite: Invite, key: DeviceKey, facts: Facts, console: VerifiedConsole) -> Submit:
    csr, nonce = certificate_request(key), secrets.token_bytes(32)
    secret_sha256 = hashlib.sha256(invite.token_secret).digest()
    mac = submission_mac(secret_sha256, console.nonce, nonce, csr, console.server_certificate)
    return Submit(PROTOCOL, invite.token_id, csr, nonce, facts, mac)


def _prepare(folder: Path, keystore: Keystore, invite: Invite, force: bool) -> Identity | tuple[DeviceKey, bool]:
    with CHANGING:
        done = _already_done(folder, keystore, invite)
        clear_leftovers(folder, keystore)
        existing = _existing_identity(folder, keystore, invite) if done is None and not force else done
        return existing or _key_for(folder, keystore, invite)


def _already_done(folder: Path, keystore: Keystore, invite: Invite) -> Identity | None:
    """Return the identity if it was made with this invite, and only what comes after that was cut off."""
    waiting = read_waiting(folder)
    if waiting is None or waiting.token_id != invite.token_id.hex():
        return None
    with contextlib.suppress(IdentityMissing, IdentityCopied, IdentityUnreadable):
        identity = load_identity(folder, keystore)
        ensure_made_here(identity)
        if identity.record.stem == waiting.stem:
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
    """Return the key to ask with, and whether it was used with this invite before.

    A PC that waits already asks with the same key again, also with another invite of its fleet: it stays one request.
    """
    waiting = read_waiting(folder)
    if waiting is not None:
        same = waiting.token_id == invite.token_id.hex()
        elsewhere = waiting.binding.is_elsewhere(this_pc(invite.fleet_id))
        if (same or (waiting.waits and waiting.is_of(invite))) and not elsewhere:
            with contextlib.suppress(IdentityMissing, IdentityUnreadable):
                return load_key(folder, waiting.stem, keystore), same
        forget_key(folder, waiting.stem, keystore)
    ensure_private_folder(folder)
    key = create_key(folder, keystore)
    keep_waiting(folder, waiting_for(invite, key, waits=False))
    return key, False


def _waiting(invite: Invite, key: DeviceKey) -> Waiting:
    """Keep that the console has the request, and return what is kept."""
    waiting = waiting_for(invite, key, waits=True)
    try:
        keep_waiting(key.folder, waiting)
    except OSError as error:
        # It waits all the same; only a restart has no use for it without the invite.
        _log.warning("%s cannot be written (%s); free some space.", key.folder, error.strerror)
    return waiting
