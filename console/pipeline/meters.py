"""Rolling measures of a live pipeline. Pure: times come in as numbers, in seconds of one monotonic clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from agent.stage.types import StageTiming
from console.pipeline.types import StageInfo, StageStatus

RECENT_STEPS = 64
RATE_WINDOW_S = 5.0


class StepMeter:
    """Stage times and hop overhead, as medians over the recent steps that only decoded."""

    def __init__(self, stages: int) -> None:
        self._step_ms: list[deque[float]] = [deque(maxlen=RECENT_STEPS) for _ in range(stages)]
        self._token_ms: list[deque[float]] = [deque(maxlen=RECENT_STEPS) for _ in range(stages)]
        self._overhead_ms: deque[float] = deque(maxlen=RECENT_STEPS)

    def add(self, timings: Sequence[StageTiming], tokens: int, round_trip_s: float, *, alone: bool) -> None:
        """Record a decode step of `tokens` tokens, drafts included. `alone`: no other step was in flight meanwhile.

        A step that was alone waits for nobody, so all of its time outside inference is overhead; of others the time
        spent waiting for a turn is taken off.
        """
        other_us = 0
        for timing, step_ms, token_ms in zip(timings, self._step_ms, self._token_ms, strict=True):
            step_ms.append(timing.compute_us / 1000)
            token_ms.append(timing.compute_us / 1000 / tokens)
            other_us += timing.compute_us + (0 if alone else timing.queue_us)
        self._overhead_ms.append(max(0.0, round_trip_s * 1000 - other_us / 1000) / len(self._step_ms))

    @property
    def overhead_ms_per_hop(self) -> float:
        """(Round trip - sum of compute) / number of stages; 0 before any step."""
        return median(self._overhead_ms) if self._overhead_ms else 0.0

    def stages(self, infos: Sequence[StageInfo]) -> list[StageStatus]:
        """Join what is known of the stages with what was measured."""
        return [
            StageStatus(
                device_id=info.device_id,
                device_name=info.device_name,
                first=info.first,
                last=info.last,
                engine=info.engine,
                fused=info.fused,
                ms_per_step=median(step_ms) if step_ms else 0.0,
                ms_per_token=median(token_ms) if token_ms else 0.0,
                note=info.note,
            )
            for info, step_ms, token_ms in zip(infos, self._step_ms, self._token_ms, strict=True)
        ]


class RateMeter:
    """Tokens per second over the last `RATE_WINDOW_S` seconds."""

    def __init__(self) -> None:
        self._events: deque[tuple[float, int]] = deque()
        self._tokens = 0

    def add(self, now_s: float, tokens: int) -> None:
        """Count tokens that came just now."""
        self._events.append((now_s, tokens))
        self._tokens += tokens
        self._forget(now_s)

    def rate(self, now_s: float) -> float:
        """Return tokens per second; a pipeline that only just started is measured from its first token."""
        self._forget(now_s)
        if len(self._events) < 2:
            return 0.0
        first_s, first_tokens = self._events[0]
        return (self._tokens - first_tokens) / max(now_s - first_s, 1e-6)

    def _forget(self, now_s: float) -> None:
        while self._events and self._events[0][0] < now_s - RATE_WINDOW_S:
            self._tokens -= self._events.popleft()[1]
