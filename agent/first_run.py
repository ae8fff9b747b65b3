"""Joining by itself with an invite that an installer put on this PC: what a silent installation ends with. Event loop.

The file is a secret that works once, so it goes as soon as it did, or was denied. Until then it is tried again: at the
first login after an installation there may be no network yet, or a console that is not up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from agent.control.errors import OrderRefused
from agent.joining import delete_invite, own_name, read_invite
from agent.link import invite as invites
from agent.link.errors import InviteDamaged, LinkError
from agent.threads import finish_in_thread

log = logging.getLogger(__name__)

FIRST_WAIT_S, LONGEST_WAIT_S = 30.0, 900.0

Enrol = Callable[[str, str, Callable[[str, str], None]], Awaitable[str]]
"""`Program.enrol`: the invite, this PC's name, and who hears how far it is. Raises OrderRefused."""


async def _at_once() -> None:
    """Nothing has to be over before the file is used."""


async def join_with_file(
    path: Path | None,
    enrol: Enrol,
    ready: Callable[[], Awaitable[object]] = _at_once,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Join with the invite in a file and delete it; returns at once where there is no such file.

    `ready` returns when the file may be used: a PC that waits for approval already needs no invite.
    """
    wait_s = FIRST_WAIT_S
    while path is not None:
        await ready()
        if not await finish_in_thread(lambda: _may_exist(path)):
            return
        try:
            said = await enrol(await finish_in_thread(lambda: read_invite(path)), own_name(), _tell)
        except (OrderRefused, InviteDamaged, OSError) as error:
            if isinstance(error, OrderRefused) and error.code == "denied":
                # Asked again, it would be another request for the administrator who has just said no.
                log.warning("Joining with %s is over: %s", path, error)
                await finish_in_thread(lambda: delete_invite(path))
                return
            log.warning("Joining with %s failed, and is tried again in %.0f s: %s", path, wait_s, error)
        else:
            log.info("%s", said)
            await finish_in_thread(lambda: delete_invite(path))
            return
        await sleep(wait_s)
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)


def delete_if_of(path: Path, token_id: str) -> None:
    """Delete a file with an invite of this token, if it is one. Blocks."""
    with contextlib.suppress(LinkError):
        if invites.decode(read_invite(path)).token_id.hex() == token_id:
            delete_invite(path)


def _may_exist(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # what is wrong with it is said by whoever reads it


def _tell(phase: str, device_code: str) -> None:
    if phase == "pending":
        log.info("Waiting for an administrator to approve this PC. Its code is %s.", device_code)
