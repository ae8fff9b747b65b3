"""What a process needs to hold the links of a thousand PCs: open files, and little memory for each."""

from __future__ import annotations

import logging
import sys
from asyncio import sslproto

log = logging.getLogger(__name__)

WANTED_FILES = 65_536
OLD_MACOS_FILES = 10_240
"""What older macOS allows at most, whatever limit it names."""
FILES_PER_PC = 2
"""One for each of its links."""
OTHER_FILES = 256
"""For clients of the API, model files on their way, stages' own links, the database."""
MANY_PCS = 1000
"""A process that cannot have so many connected says so."""
TLS_BUFFER_BYTES = 64 * 1024
"""asyncio's own are four times as large, filled with zeros and so resident: half a gigabyte for a thousand PCs that
say next to nothing. Longer frames are read in turns."""


def shrink_tls_buffers() -> None:
    """Let every TLS link made from now on in this process read through a small buffer."""
    sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES


def allow_many_files() -> int | None:
    """Raise the limit as far as the system lets this user; return it, None where there is none. Warns of a low one."""
    if sys.platform == "win32":
        return None  # sockets are not counted there
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (WANTED_FILES, OLD_MACOS_FILES):
        goal = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft == resource.RLIM_INFINITY or soft >= goal:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))
        except (OSError, ValueError):
            continue
        soft = goal
    if soft == resource.RLIM_INFINITY:
        return None
    if pcs_within(soft) < MANY_PCS:
        log.warning(
            "This program may have %d files open, enough for %d PCs; allow it more (`ulimit -n`, or LimitNOFILE= in "
            "its systemd unit).",
            soft,
            pcs_within(soft),
        )
    return soft


def pcs_within(files: int) -> int:
    """Return how many PCs can be connected with so many open files."""
    return max(0, files - OTHER_FILES) // FILES_PER_PC
