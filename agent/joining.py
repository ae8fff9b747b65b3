"""Enrolling this PC: what the command line and the running agent both do. Raises LinkError kinds and OSError.

An invite is a secret: it comes from a file or standard input, never from the command line, which everybody can read.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import psutil

from agent.link.approval import EnrolState
from agent.link.enrol_messages import Facts
from agent.link.enrolment import enrol
from agent.link.errors import InviteDamaged
from agent.link.identity import Identity
from agent.link.invite import Invite
from agent.link.keystore import Keystore

log = logging.getLogger(__name__)

MAX_INVITE_BYTES = 64 * 1024
WAITS_NO_MORE = "This PC no longer waits for approval; to join later it needs a new invite."
UNHEARD = (
    "This PC no longer waits for approval, but the console cannot be told now and lists it for up to seven days; to "
    "join later it needs a new invite."
)


def own_name() -> str:
    """Return what the console calls this PC if nobody says otherwise."""
    return platform.node() or "unnamed"


async def join(
    folder: Path,
    invite: Invite,
    keystore: Keystore,
    *,
    name: str = "",
    force: bool = False,
    on_state: Callable[[EnrolState], None] = lambda state: None,
) -> Identity:
    """Join the invite's fleet; may wait for an administrator. `folder` is the data folder, `name` this PC's."""
    facts = Facts(
        host=name or own_name(),
        os=f"{platform.system()} {platform.release()}",
        arch=platform.machine(),
        version=version("fallow"),
        cores=psutil.cpu_count(logical=False) or os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
    )
    return await enrol(invite, folder / "identity", facts, keystore=keystore, on_state=on_state, force=force)


def read_invite(path: Path) -> str:
    """Read an invite from a file. Raises InviteDamaged."""
    try:
        with path.open("rb") as file:
            return invite_text(file.read(MAX_INVITE_BYTES + 1))
    except PermissionError:
        raise InviteDamaged(f"You may not read {path}; ask whoever put it there for the right to.") from None
    except OSError as error:
        raise InviteDamaged(f"{path} cannot be read ({error.strerror}); check the file's name.") from None


def invite_text(data: bytes) -> str:
    """Return what may be an invite as text. Raises InviteDamaged if it is far too long for one."""
    if len(data) > MAX_INVITE_BYTES:
        raise InviteDamaged("This is too long to be an invite; copy the one line again.")
    return data.decode("utf-8-sig", errors="replace")


def delete_invite(path: Path) -> None:
    """Remove a used invite; one that cannot be removed is worth a warning, not a failure."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("The used invite %s cannot be deleted (%s); delete it by hand.", path, error.strerror)
