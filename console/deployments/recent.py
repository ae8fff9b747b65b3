"""The last answers and where their time went: for whoever asks why something was slow. In memory; no text of anybody.

Pure: times come in as Unix seconds.
"""

from __future__ import annotations

from collections import deque

from console.api.admin.types.running import AnswerOrder, AnswerTime
from console.pipeline.ended import EndedAnswer

MOST = 1000
KEPT_S = 3600.0


class RecentAnswers:
    """The last `MOST` answers of all models. Those older than an hour are never told, and go with `forget`."""

    def __init__(self) -> None:
        self._answers: deque[AnswerTime] = deque(maxlen=MOST)

    def take(self, model: str, number: int, ended: EndedAnswer, now_s: float) -> None:
        """Remember an answer that a model's pipeline (`number` from 0) just ended."""
        self.forget(now_s)
        details = ended.details
        self._answers.append(
            AnswerTime(
                ended_s=now_s,
                request_id=ended.request_id,
                key_id=ended.key_id,
                model=model,
                pipeline=number,
                ending=ended.ending,
                code=ended.code,
                prompt_tokens=ended.usage.prompt_tokens,
                cached_tokens=ended.usage.cached_tokens,
                answer_tokens=ended.usage.completion_tokens,
                first_token_ms=ended.timings.first_token_ms,
                total_ms=ended.timings.total_ms,
                parts=ended.timings.parts,
                stages=details.stages,
                pcs=details.pcs,
                drafted=details.drafted,
                accepted=details.accepted,
                slowest=details.slowest,
            )
        )

    def forget(self, now_s: float) -> float | None:
        """Let go of what is too old; returns in how many seconds the next will be, None: nothing is left."""
        while self._answers and self._answers[0].ended_s < now_s - KEPT_S:
            self._answers.popleft()
        return self._answers[0].ended_s + KEPT_S - now_s if self._answers else None

    def view(self, order: AnswerOrder, limit: int, now_s: float) -> list[AnswerTime]:
        """Return the newest or the slowest, at most `limit` of them."""
        self.forget(now_s)
        newest = list(reversed(self._answers))
        if order == "slowest":
            newest.sort(key=lambda one: -one.total_ms)
        return newest[:limit]
