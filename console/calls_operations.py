"""What can be asked of the admin routes about how the service runs, as in `calls.py`."""

from __future__ import annotations

import msgspec

from agent.logs.types import LoggerLevel
from console.api.admin.guard import PREFIX
from console.api.admin.log_levels import LogLevelChange, LogLevelsView
from console.call import Call


def log_levels(change: LogLevelChange | None = None) -> Call[list[LoggerLevel]]:
    """Ask for the levels that are set, or change one."""
    return Call(
        "GET" if change is None else "POST",
        f"{PREFIX}/log-levels",
        lambda raw: msgspec.json.decode(raw, type=LogLevelsView).levels,
        None if change is None else msgspec.json.encode(change),
    )


def metrics() -> Call[str]:
    """Ask for the numbers of this moment, as Prometheus reads them."""
    return Call("GET", "/metrics", bytes.decode)
