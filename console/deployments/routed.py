"""A model as the API sees it: all its pipelines, and each answer sent to one of them. Event loop only."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from console.deployments.entry import Entry
from console.deployments.live import LivePipeline
from console.deployments.performance import Performance
from console.deployments.totals import ModelTotals
from console.errors import ModelUnavailable
from console.pipeline.dialects import Dialect
from console.pipeline.errors import PromptError
from console.pipeline.plans import QUEUE_LIMIT
from console.pipeline.types import Event, Failed, Finished, GenerationRequest, Text
from console.routing import PipelineLoad, choose
from shard_export.library.counts import counted

FULL_RETRY_S = 2


class RoutedModel:
    """Implements `Generator` over the pipelines of a model that are up when an answer begins."""

    def __init__(
        self, model_id: str, entries: Callable[[], Sequence[Entry]], performance: Performance, totals: ModelTotals
    ) -> None:
        """`entries` returns the model's pipelines; `performance` and `totals` take note of the answers.

        Raises ModelUnavailable when none is up, or all are full.
        """
        self.model_id = model_id
        self._performance, self._totals = performance, totals
        self._entries = entries
        up = self._up()
        if not up:
            states = entries()
            why = next((entry.message for entry in states if entry.message), "it is being deployed.")
            raise ModelUnavailable(f"The model {model_id!r} cannot answer now ({states[0].state}): {why}")
        if all(load.is_full for _, load in up):
            raise ModelUnavailable(_full(model_id, len(up)), retry_after_s=FULL_RETRY_S, code="overloaded")
        self._first = up[0][0]

    @property
    def context_tokens(self) -> int:
        """The longest prompt and answer together, wherever it goes."""
        return min((live.coordinator.context_tokens for live, _ in self._up()), default=self._first_context)

    @property
    def _first_context(self) -> int:
        return self._first.coordinator.context_tokens

    @property
    def dialect(self) -> Dialect:
        """How the model writes what is not plain text."""
        return self._first.coordinator.dialect

    def encode_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        """Apply the chat template and tokenize. Raises PromptError."""
        return self._first.coordinator.encode_chat(messages, tools)

    @property
    def vocab_size(self) -> int:
        """How many token ids there are."""
        return self._first.coordinator.vocab_size

    def encode_text(self, text: str) -> list[int]:
        """Tokenize plain text, with BOS where the model wants one."""
        return self._first.coordinator.encode_text(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        return self._first.coordinator.decode(ids)

    def token_bytes(self, token: int) -> bytes:
        """Return the text of one token, perhaps a part of a code point; special tokens by their names."""
        return self._first.coordinator.token_bytes(token)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Event, None]:
        """Pass on the events of the pipeline that the answer goes to. Closing it cancels the stream."""
        up = self._up()
        chosen = choose([load for _, load in up], request.key_id, request.prompt_ids)
        if chosen is None:
            code = "overloaded" if up else "not_ready"
            message = _full(self.model_id, len(up)) if up else f"{self.model_id} went down just now; try again."
            failed = Failed(code, message)
            self._totals.ended(failed)
            yield failed
            return
        live = next(live for live, load in up if load is chosen)
        events = live.coordinator.generate(request)
        last_s, answering = time.monotonic(), False
        last: Finished | Failed | None = None
        try:
            async for event in events:
                if isinstance(event, Text) and event.token_ids:
                    now_s = time.monotonic()
                    self._note(now_s, len(event.token_ids), now_s - last_s, answering=answering)
                    last_s, answering = now_s, True
                elif isinstance(event, Finished | Failed):
                    last = event
                yield event
        except PromptError as error:
            last = Failed("refused", str(error), retryable=False)
            raise
        finally:
            await events.aclose()
            self._totals.ended(last)

    def _note(self, now_s: float, tokens: int, waited_s: float, *, answering: bool) -> None:
        if answering:
            self._performance.note_more(now_s, tokens, waited_s)
            self._totals.note_more(tokens, waited_s)
        else:
            self._performance.note_first(now_s, tokens, waited_s)
            self._totals.note_first(waited_s)

    def _up(self) -> list[tuple[LivePipeline, PipelineLoad]]:
        return [(entry.live, load_of(entry, entry.live)) for entry in self._entries() if entry.live is not None]


def load_of(entry: Entry, live: LivePipeline) -> PipelineLoad:
    """Say how busy a pipeline is."""
    coordinator = live.coordinator
    running, waiting = coordinator.load
    return PipelineLoad(
        number=entry.number,
        ready=entry.state == "ready" and not coordinator.suspended,
        running=running,
        waiting=waiting,
        places=entry.request.streams,
        room=QUEUE_LIMIT - waiting,
    )


def _full(model_id: str, pipelines: int) -> str:
    where = "its pipeline" if pipelines == 1 else f"all {counted(pipelines, 'pipeline')}"
    return f"{model_id} is full: {where} and the queue before it are taken; try again in a moment."
