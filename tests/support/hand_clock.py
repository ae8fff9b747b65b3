"""A clock that goes on only when a test says so."""

from __future__ import annotations


class HandClock:
    """Seconds; `slept_s` is for those who also ask how long the PC slept."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s
        self.slept_s = 0.0

    def __call__(self) -> float:
        return self.now_s
