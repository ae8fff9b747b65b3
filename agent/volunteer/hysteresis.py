"""Turning samples into a condition that does not flutter: on after k of the last n, off after a calm time. Pure."""

from __future__ import annotations

import msgspec

SAMPLES = 5


class Watch(msgspec.Struct, frozen=True):
    """How a signal is judged: at least `sample_s` between samples, on with `needed` of the last `SAMPLES` busy.

    Off after `calm_s` without a sample that is not calm; a sample between busy and calm keeps the signal as it is.
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

    def clears_s(self, watch: Watch) -> float | None:
        """Return when the signal goes off if it stays calm."""
        return None if self.on_since_s is None else self.stirred_s + watch.calm_s


def judge(signal: Signal, watch: Watch, now_s: float, *, busy: bool, calm: bool) -> Signal:
    """Take one look into account."""
    if signal.sampled_s is not None and now_s - signal.sampled_s < watch.sample_s:
        return signal
    recent = (*signal.recent, busy)[-SAMPLES:]
    on = signal.on_since_s is not None
    stirred_s = signal.stirred_s if calm else now_s
    if sum(recent) >= watch.needed and busy:
        since_s = signal.on_since_s if signal.on_since_s is not None else now_s
        return Signal(since_s, recent, now_s, now_s)
    still_on = on and (not calm or now_s - stirred_s < watch.calm_s)
    return Signal(signal.on_since_s if still_on else None, recent, now_s, stirred_s)
