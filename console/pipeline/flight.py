"""The steps on their way: when each left, whether it had company, and until when it must be answered. Pure."""

from __future__ import annotations

from typing import NamedTuple

from console.pipeline.plans import Step


class Deadlines(NamedTuple):
    """A step must be answered within `step_s` of the last progress, and `token_s` more for each of its tokens.

    A long prefill is slow but not stuck, so its deadline grows with its size. Where missing one only
    means to go on elsewhere, the steps before say how long one takes: `usual` times that, and at least `least_s`.

    After `probe_s` without progress a step without rows follows, and others, each twice as long after the one before.
    A stage that is only slow answers it after the others; so its answer proves which ones are lost.
    """

    step_s: float = 30.0
    token_s: float = 0.1
    least_s: float = 3.0
    usual: float = 20.0
    probe_s: float = 0.5


DEFAULT_DEADLINES = Deadlines()
USUAL_KEPT = 0.98


class Sent(NamedTuple):
    """A step in flight; `alone` until another one left while it was on its way, or if one was before it."""

    step: Step
    at_s: float
    alone: bool
    passes: list[tuple[int, float]]
    """When it was seen to be sent on to which later stage; nothing for stages that are linked directly."""


class Flight:
    """Steps in the order they left, which is the order they are answered in."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._sent: dict[int, Sent] = {}
        self._progress_s = 0.0
        self._usual_s = 0.0
        """The longest pause between two answers, fading."""
        self._probes = 0
        self._least_s = deadlines.least_s
        self.hasty = False
        """Whether a missed deadline costs little."""

    def __len__(self) -> int:
        return len(self._sent)

    def __contains__(self, step_id: int) -> bool:
        return step_id in self._sent

    def add(self, step: Step, now_s: float) -> None:
        """Note that a step leaves now."""
        alone = not self._sent
        for step_id, other in self._sent.items():
            self._sent[step_id] = other._replace(alone=False)
        if alone:
            self._progress_s, self._probes = now_s, 0
        self._sent[step.id] = Sent(step, now_s, alone, [])

    def passed(self, step_id: int, stage: int, now_s: float) -> None:
        """Note that a step was sent on; unknown ones are fine."""
        if (sent := self._sent.get(step_id)) is not None:
            sent.passes.append((stage, now_s))

    def remove(self, step_id: int, now_s: float) -> Sent | None:
        """Note that a step was answered or given up: that is progress."""
        self._usual_s = max(now_s - self._progress_s, USUAL_KEPT * self._usual_s)
        self._progress_s, self._probes = now_s, 0
        return self._sent.pop(step_id, None)

    @property
    def oldest(self) -> int | None:
        """The step that is answered next."""
        return next(iter(self._sent), None)

    def probed(self) -> None:
        """Note that a step without rows was sent to find out what is lost."""
        self._probes += 1

    def probe_in_s(self, now_s: float) -> float:
        """How soon such a step is due."""
        waits = 2.0 ** (self._probes + 1) - 1
        return self._progress_s + self._deadlines.probe_s * waits - now_s

    def missed(self) -> None:
        """A deadline was missed: the next one is later, for the case that nothing was wrong."""
        self._least_s = min(2 * self._least_s, self._deadlines.step_s)

    def clear(self) -> None:
        """Forget everything: the stages are gone."""
        self._sent.clear()

    @property
    def allowed_s(self) -> float:
        """How long the oldest step may take without progress; 0 when nothing is on its way."""
        oldest = next(iter(self._sent.values()), None)
        if oldest is None:
            return 0.0
        limits, allowed_s = self._deadlines, self._deadlines.step_s
        if self.hasty and self._usual_s:
            allowed_s = min(allowed_s, max(self._least_s, limits.usual * self._usual_s))
        return allowed_s + limits.token_s * len(oldest.step.tokens)

    def left_s(self, now_s: float) -> float:
        """How much of that is left; one timer is enough, because steps are answered in order."""
        return self._progress_s + self.allowed_s - now_s
