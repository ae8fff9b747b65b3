"""Waiting for an administrator's approval, over restarts of console and PC, and what ends it. Event loop.

request at the console ─► asked again and again ─► granted: the identity is saved
                                  │                denied, expired, unknown: forgotten, with the reason
                                  └─ withdrawn by the owner: the console is told, forgotten
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from websockets.exceptions import ConnectionClosed

from agent.link.binding import this_pc
from agent.link.enrol_messages import EnrolHello, FromEnroller, Granted, Pending, Poll, Refused
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
    KeyLocked,
    LinkError,
    ProtocolMismatch,
)
from agent.link.identity import DeviceId, Identity, save_identity
from agent.link.keys import DeviceKey, load_key
from agent.link.keystore import Keystore
from agent.link.leftovers import clear_leftovers
from agent.link.pinning import FoundConsole, ask, find_console, verified_connection
from agent.link.waiting import Waiting, forget_waiting, read_waiting, signed_request
from agent.threads import finish_in_thread

_log = logging.getLogger(__name__)

_MAX_POLL_S = 30.0
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
WITHDRAW_S = 10.0
"""How long somebody who stops waiting waits for the console to hear of it."""
CHANGING = threading.Lock()
"""Of two attempts at once (a double click) the second must find the key of the first, and clear nothing it writes."""
FINAL_CODES = frozenset({"evicted", "banned", "retired", "expired", "unknown"})
"""Answers after which the key is of no more use with its invite."""


@dataclass(frozen=True)
class EnrolState:
    """How far enrolling is. Show `device_code` while pending: the administrator sees the same one.

    `said`: why the console cannot be asked just now; empty while it can.
    """

    phase: Literal["connecting", "pending", "enrolled"]
    device_code: str
    url: str = ""
    said: str = ""


def awaited(folder: Path) -> Waiting | None:
    """Return what this PC waits for an administrator to approve; None: nothing. Raises OSError. Blocks."""
    waiting = read_waiting(folder)
    return waiting if waiting is not None and waiting.waits else None


async def await_approval(
    folder: Path,
    waiting: Waiting,
    *,
    keystore: Keystore,
    on_state: Callable[[EnrolState], None] = lambda _: None,
    now: Callable[[], float] = time.time,
) -> Identity:
    """Wait until an administrator has approved what the console knows already; no invite is needed.

    A console that cannot be reached, or a keyring that is locked, is tried again as long as it takes. Ends with the
    identity, or raises EnrolmentDenied, IdentityCopied or IdentityUnreadable, with what was kept forgotten.
    """
    code, retry_s, logged = waiting.device_code, FIRST_RETRY_S, ""
    on_state(EnrolState("pending", code))

    def on_pending(url: str) -> None:
        nonlocal retry_s, logged
        retry_s, logged = FIRST_RETRY_S, ""
        on_state(EnrolState("pending", code, url))

    while True:
        try:
            key = await finish_in_thread(partial(_key_waiting, folder, waiting, keystore))
            console = await find_console(waiting, now)
            granted, hello = await _answer(console, key, on_pending)
            urls = [console.url, *(url for url in waiting.urls if url != console.url)]
            identity = await adopted(partial(adopt, key, keystore, hello, granted, urls))
        except (EnrolmentError, KeyLocked, OSError, ConnectionClosed) as error:
            if isinstance(error, EnrolmentDenied) and error.code in FINAL_CODES:
                await finish_in_thread(partial(forget_waiting, folder, waiting.stem, keystore))
                raise
            said = _said(error)
            if said != logged:
                _log.info("Waiting for approval goes on, though the console cannot be asked now: %s", said)
                logged = said
            on_state(EnrolState("pending", code, said=said))
        else:
            on_state(EnrolState("enrolled", code, console.url))
            return identity
        await asyncio.sleep(retry_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        retry_s = min(2 * retry_s, LONGEST_RETRY_S)


async def withdraw(folder: Path, *, keystore: Keystore, now: Callable[[], float] = time.time) -> bool:
    """Stop wanting to join: forget the request and its key; returns whether the console heard of it.

    Nothing may be waiting for the answer any more. Raises OSError if it cannot be forgotten.
    """
    waiting = await finish_in_thread(partial(read_waiting, folder))
    if waiting is None:
        return True
    heard = not waiting.urls
    try:
        if waiting.urls:
            async with asyncio.timeout(WITHDRAW_S):
                key = await finish_in_thread(partial(load_key, folder, waiting.stem, keystore))
                console = await find_console(waiting, now)
                async with verified_connection(console.url, console.fleet_id, console.authority_pem) as verified:
                    heard = isinstance(await ask(verified, signed_request(key, verified, withdraw=True)), Refused)
    except (LinkError, OSError, ConnectionClosed) as error:
        _log.info("The console was not told that this PC no longer wants to join: %s", _said(error))
    finally:
        await finish_in_thread(partial(forget_waiting, folder, waiting.stem, keystore))
    return heard


async def _answer(
    console: FoundConsole, key: DeviceKey, on_pending: Callable[[str], None]
) -> tuple[Granted, EnrolHello]:
    """Ask on one connection until there is an answer. Raises ConnectionClosed, EnrolmentError kinds."""
    slowed = 1.0
    async with verified_connection(console.url, console.fleet_id, console.authority_pem) as verified:
        answer = answer_of(await ask(verified, signed_request(key, verified)))
        while isinstance(answer, Pending):
            on_pending(console.url)
            wait_s = min(max(answer.poll_s, 0.01) * slowed, _MAX_POLL_S)
            await asyncio.sleep(wait_s * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
            slowed *= 1.1
            answer = answer_of(await ask(verified, Poll()))
        return answer, verified.hello


def answer_of(reply: FromEnroller) -> Granted | Pending:
    """Return what a console answered to a request. Raises InviteError and EnrolmentError kinds for a no."""
    match reply:
        case Granted() | Pending():
            return reply
        case Refused(code="invite_expired"):
            raise InviteExpired(reply.message)
        case Refused(code="invite_used_up"):
            raise InviteUsedUp(reply.message)
        case Refused(code="invite_unknown" | "invite_revoked"):
            raise InviteRefused(reply.message)
        case Refused(code="protocol" | "request"):
            raise ProtocolMismatch(reply.message)
        case Refused(code="busy"):
            raise ConsoleUnreachable(reply.message)
        case Refused():
            raise EnrolmentDenied(reply.message, reply.code)
    raise ProtocolMismatch("The console's answer makes no sense here; update Fallow on this PC.")


async def adopted(adopting: Callable[[], Identity]) -> Identity:
    """Run `adopt` to its end, whatever is cancelled meanwhile: a PC must not be let in and not know it."""
    made: list[Identity] = []
    try:
        return await finish_in_thread(adopting, made.append)
    except asyncio.CancelledError:
        if not made:
            raise
        return made[0]


def adopt(key: DeviceKey, keystore: Keystore, hello: EnrolHello, granted: Granted, urls: list[str]) -> Identity:
    """Make a granted key this PC's identity; every other key is forgotten. Raises ProtocolMismatch, OSError. Blocks."""
    with CHANGING:
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


def _key_waiting(folder: Path, waiting: Waiting, keystore: Keystore) -> DeviceKey:
    """Open the key the console was shown. Raises KeyLocked, OSError; what is of no more use is forgotten."""
    if waiting.binding.is_elsewhere(this_pc(waiting.fleet_id)):
        forget_waiting(folder, waiting.stem, keystore)
        raise IdentityCopied(
            f"The data folder {folder.parent} was copied from another PC or user while that waited for approval; join "
            "with a new invite."
        )
    try:
        return load_key(folder, waiting.stem, keystore)
    except (IdentityMissing, IdentityUnreadable):
        forget_waiting(folder, waiting.stem, keystore)
        raise IdentityUnreadable(
            "The key with which this PC asked to join is lost or damaged; join with a new invite."
        ) from None


def _said(error: Exception) -> str:
    if isinstance(error, LinkError):
        return str(error)
    if isinstance(error, TimeoutError | ConnectionClosed):
        return "The connection to the console was lost; it is dialled again by itself."
    reason = getattr(error, "strerror", None) or type(error).__name__
    where = f" ({error.filename})" if getattr(error, "filename", None) else ""  # type: ignore[attr-defined]
    return f"A file of this PC's request cannot be used: {reason}{where}; check disk and rights."
