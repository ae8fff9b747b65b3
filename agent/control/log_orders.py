"""Messages of the local control socket about what the agent logs; see `protocol.py`."""

from __future__ import annotations

import msgspec

from agent.logs.types import LoggerLevel


class SetLogLevel(msgspec.Struct, frozen=True, tag=True):
    """Log more or less, from `logger` down, until the agent ends or for a time. Without `level`: only say how it is."""

    id: int
    logger: str = ""
    level: str = ""
    for_s: float | None = None


class LogLevels(msgspec.Struct, frozen=True, tag=True):
    """Answer to SetLogLevel: all levels that are set."""

    id: int
    levels: list[LoggerLevel]
