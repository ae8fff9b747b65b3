"""Is a pipeline ready? The truth is a token that went through all stages: a recent one, or a probe sent now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable

from console.pipeline.answers import Clock
from console.pipeline.types import Event, Failed, GenerationRequest, Readiness

log = logging.getLogger(__name__)

PROBE_KEY = "readiness probe"


class Prober:
    """Remembers when the last token came and asks for one when that is too long ago. Event loop only.

    `generate` runs a request through the pipeline; `lost` says why the pipeline is lost, or nothing.
    """

    def __init__(
        self,
        generate: Callable[[GenerationRequest], AsyncGenerator[Event, None]],
        lost: Callable[[], str],
        *,
        token: int,
        clock: Clock,
    ) -> None:
        self._generate = generate
        self._lost = lost
        self._token = token
        self._clock = clock
        self._last_token_s: float | None = None
        self._probing = asyncio.Lock()

    def token_came(self, now_s: float) -> None:
        """Note that a token went through all stages."""
        self._last_token_s = now_s

    def forget(self) -> None:
        """The stages are others now: what went through the former ones proves nothing."""
        self._last_token_s = None

    @property
    def age_s(self) -> float:
        """Seconds since the last token, -1 if none ever came."""
        return -1.0 if self._last_token_s is None else self._clock() - self._last_token_s

    async def ready(self, max_age_s: float) -> Readiness:
        """Tell whether a token goes through all stages: one that did so lately, else a probe that is sent now."""
        async with self._probing:
            if not self._lost() and not 0 <= self.age_s <= max_age_s:
                await self._probe()
        age_s = self.age_s
        ready = not self._lost() and 0 <= age_s <= max_age_s
        return Readiness(ready, age_s, "" if ready else self._lost() or "A probe token got no answer.")

    async def _probe(self) -> None:
        events = self._generate(GenerationRequest([self._token], 1, ignore_eos=True, key_id=PROBE_KEY))
        try:
            async for event in events:
                if isinstance(event, Failed):
                    log.info("A readiness probe failed: %s", event.message)
        finally:
            await events.aclose()
