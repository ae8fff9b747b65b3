"""Levels of loggers, as they travel."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

Level = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
LEVELS: tuple[Level, ...] = get_args(Level)
ALL = "all"
"""Stands for all of our loggers."""


class LoggerLevel(msgspec.Struct, frozen=True):
    """The level of a logger and those below it. After `left_s` it is again as it was before; None: it stays."""

    logger: str
    level: str
    left_s: float | None = None
