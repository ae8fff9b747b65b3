"""What a key may use: models, answers at once, tokens a day. Everybody's tokens are counted, limited or not.

Answers at once are counted in this process: two consoles on one registry allow a key that many each. Tokens are counted
in the registry when an answer ends, for all consoles together; the answer that passes the limit is not cut.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Protocol

from agent.threads import InThread, finish_in_thread
from console.api.http import ApiError
from console.api.openai.several import Placed, close_events
from console.pipeline.types import Finished, Text
from console.registry.records import Principal
from shard_export.library.counts import counted

log = logging.getLogger(__name__)

STREAM_WAIT_S = 5
"""What Retry-After says when too many answers run: nobody knows when one of them ends."""


class TokenCounter(Protocol):
    """Where used tokens are remembered; the registry's `usage` is one."""

    def add(self, key_id: str, tokens: int) -> None:
        """Count tokens for today."""
        ...

    def today(self, key_id: str) -> int:
        """Return today's tokens."""
        ...

    def seconds_left(self) -> int:
        """Return the seconds until counting starts again."""
        ...


class Quotas:
    """Keeps keys within their limits. Event loop only; the counter is asked in threads, those of `ask`."""

    def __init__(self, counter: TokenCounter, *, ask: InThread = finish_in_thread) -> None:
        self._counter = counter
        self._ask = ask
        self._running: Counter[str] = Counter()

    def may_use(self, principal: Principal, model_id: str) -> bool:
        """Whether a key may use a model."""
        return not principal.quota.models or model_id in principal.quota.models

    async def metered(
        self, principal: Principal, prompt_tokens: int, events: AsyncIterator[Placed], answers: int = 1
    ) -> AsyncIterator[Placed]:
        """Pass the events of `answers` answers at once on and count them. Raises ApiError before the first event.

        Closing it closes `events`, and counts what was there by then: prompts once, and every token of the answers.
        """
        key_id = principal.key_id
        # Before anything is awaited: of two requests at once the second must see the first.
        self._check_streams(principal, answers)
        self._running[key_id] += answers
        came: Counter[int] = Counter()
        try:
            self._check_tokens(principal, await self.used_today(principal))
            async for place, event in events:
                if isinstance(event, Text):
                    came[place] += len(event.token_ids)
                elif isinstance(event, Finished):
                    came[place] = event.usage.completion_tokens
                yield place, event
        finally:
            self._running[key_id] -= answers
            if not self._running[key_id]:
                del self._running[key_id]
            await close_events(events)
            if came:
                await self._count(key_id, prompt_tokens + came.total())

    async def used_today(self, principal: Principal) -> int:
        """Return the tokens a key has used today; 0 for one without a limit, which nobody has to look up."""
        if principal.quota.tokens_per_day is None:
            return 0
        return await self._ask(partial(self._counter.today, principal.key_id))

    def check(self, principal: Principal, used_today: int, answers: int = 1) -> None:
        """Raise ApiError 429 for a key that may not ask for so many answers now, 400 where it never may."""
        self._check_streams(principal, answers)
        self._check_tokens(principal, used_today)

    def _check_streams(self, principal: Principal, answers: int) -> None:
        quota, key_id = principal.quota, principal.key_id
        if quota.streams is not None and answers > quota.streams:
            message = (
                f"This key may have {counted(quota.streams, 'answer')} at once; ask for {answers} in several requests."
            )
            raise ApiError(400, message, param="n", code="too_many_streams", should_retry=False)
        if quota.streams is not None and self._running[key_id] + answers > quota.streams:
            message = f"This key may have {counted(quota.streams, 'answer')} at once and has them; wait for one to end."
            raise ApiError(429, message, code="too_many_streams", retry_after_s=STREAM_WAIT_S, should_retry=True)

    def _check_tokens(self, principal: Principal, used_today: int) -> None:
        quota = principal.quota
        if quota.tokens_per_day is not None and used_today >= quota.tokens_per_day:
            message = (
                f"This key has used its {counted(quota.tokens_per_day, 'token')} for today; it can go on at 0:00 UTC."
            )
            wait_s = self._counter.seconds_left()
            raise ApiError(429, message, code="insufficient_quota", retry_after_s=wait_s, should_retry=False)

    def headers(self, principal: Principal, used_today: int, answers: int = 1) -> dict[str, str]:
        """Return what a key may still use once it has `answers` more, in OpenAI's headers; none for what is unlimited.

        Its "requests" are answers at once here, and its "tokens" those of a day.
        """
        quota, key_id = principal.quota, principal.key_id
        headers = {}
        if quota.streams is not None:
            left = max(0, quota.streams - self._running[key_id] - answers)
            headers["x-ratelimit-limit-requests"] = str(quota.streams)
            headers["x-ratelimit-remaining-requests"] = str(left)
            headers["x-ratelimit-reset-requests"] = "0s" if left else f"{STREAM_WAIT_S}s"
        if quota.tokens_per_day is not None:
            left = max(0, quota.tokens_per_day - used_today)
            headers["x-ratelimit-limit-tokens"] = str(quota.tokens_per_day)
            headers["x-ratelimit-remaining-tokens"] = str(left)
            headers["x-ratelimit-reset-tokens"] = f"{self._counter.seconds_left()}s"
        return headers

    async def _count(self, key_id: str, tokens: int) -> None:
        try:
            await self._ask(partial(self._counter.add, key_id, tokens))
        except Exception:  # the edge of a request whose answer is complete: the person keeps it, the log the cause
            log.exception("%s of %s could not be counted.", counted(tokens, "token"), key_id)
