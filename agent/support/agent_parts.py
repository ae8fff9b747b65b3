"""What is in an agent's support bundle. Blocking."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from agent.control.status import Status
from agent.logs.handlers import log_files
from agent.settings import LOG_NAME, load_settings, read_state
from agent.support.bundle import Part
from agent.support.machine import common_parts, log_parts

MOST_FILE_BYTES = 4 << 20
_FILES = {
    "measured.json": "what layers take on this PC's devices",
    "memory.json": "what stages took, over what they were expected to",
}


def agent_parts(folder: Path, ask_status: Callable[[], Status | None], examine: Callable[[], Any] | None) -> list[Part]:
    """List the parts. `examine` returns a coroutine of the doctor's findings; None leaves them out."""
    parts = [
        *common_parts(folder),
        Part("settings.json", "agent.toml as it is understood", lambda: load_settings(folder)),
        Part("state.json", "what the agent last said of itself", lambda: read_state(folder)),
        Part("status.json", "how the running agent is: reasons, devices, stages, policy", ask_status),
        *(Part(name, purpose, partial(_json_of, folder / name)) for name, purpose in _FILES.items()),
        *log_parts(log_files(folder / LOG_NAME)),
    ]
    if examine is not None:
        parts.append(Part("doctor.json", "what the doctor found", lambda: asyncio.run(examine())))
    return parts


def agent_secrets(folder: Path) -> list[str]:
    """Return the secrets of an agent's data folder, to be hidden wherever they came by chance."""
    found = []
    for path in folder.rglob("*.passphrase.json"):
        with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
            found += [value for value in json.loads(path.read_bytes()).values() if isinstance(value, str)]
    return found


def _json_of(file: Path) -> Any:
    with file.open("rb") as opened:
        return msgspec.json.decode(opened.read(MOST_FILE_BYTES))
