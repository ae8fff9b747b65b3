"""Turning samples into a condition that does not flutter: on after k of the last n, off after a calm time. Pure."""

from __future__ import annotations

import msgspec

SAMPLES = 5
FORGET_S = 300.0
"""So long a signal stays on while nobody knows: a source that went away for good would hold the PC for ever."""


class Watch(msgspec.Struct, frozen=True):
    """How a signal is judged: at least `sample_s` between samples, on with `needed` of the last `SAMPLES` busy.

    Off after `calm_s` without a sample that is not calm; a sample between busy and calm keeps the signal as it is. What
    is unknown is not calm either, but is believed for `FORGET_S` only.
    """

    needed: int = 1
    sample_s: float = 0.0
    calm_s: float = 0.0


class Signal(msgspec.Struct, frozen=True):
    """One signal's memory. `on_since_s` is None while off."""

    on_since_s: float | None = None
    recent: tuple[bool, ...] = ()
    sampled_s: float | None = None
    stirred_s: float = 0.0
    """When it was last not calm."""
    known_s: float = 0.0
    """When it was last known at all."""
    source: str = ""
    detail: str = ""
    """Of the last look that was busy."""

    def clears_s(self, watch: Watch) -> float | None:
        """Return when the signal goes off if it stays calm, or unknown; None while it is neither."""
        if self.on_since_s is None:
            return None
        if self.known_s != self.sampled_s:
            return self.known_s + FORGET_S
        return self.stirred_s + watch.calm_s if self.stirred_s != self.sampled_s else None


def judge(
    signal: Signal,
    watch: Watch,
    now_s: float,
    *,
    busy: bool,
    calm: bool,
    known: bool = True,
    source: str = "",
    detail: str = "",
) -> Signal:
    """Take one look into account. A look sooner than `sample_s` after the last one counts for nothing.

    A look that is not `known` is neither busy nor calm.
    """
    if signal.sampled_s is not None and now_s - signal.sampled_s < watch.sample_s:
        return signal
    recent = (*signal.recent, busy)[-SAMPLES:]
    since_s = signal.on_since_s
    stirred_s = signal.stirred_s if calm else now_s
    known_s = now_s if known else signal.known_s
    if busy:
        on = since_s is not None or sum(recent) >= watch.needed
        since_s = (now_s if since_s is None else since_s) if on else None
        return Signal(since_s, recent, now_s, stirred_s, known_s, source, detail)
    if since_s is not None and (now_s - stirred_s >= watch.calm_s or now_s - known_s >= FORGET_S):
        since_s = None
    return Signal(since_s, recent, now_s, stirred_s, known_s, signal.source, signal.detail)
