"""Enrolling this PC: what the command line and the running agent both do. Raises LinkError kinds and OSError."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import psutil

from agent.link.enrol_messages import Facts
from agent.link.enrolment import EnrolState, enrol
from agent.link.identity import Identity
from agent.link.invite import Invite
from agent.link.keystore import Keystore


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
