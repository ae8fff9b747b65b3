"""What the scheduler gives and takes: plain data, no behaviour beyond what can be read off the fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agent.stage.types import Logprobs, Row, Share, StreamId
from console.pipeline.ledger import BLOCK_TOKENS
from console.pipeline.types import FinishReason

PREFILL_TOKENS = 256
"""Prompt tokens in one step, over all its rows: a long prompt must not stall the answers that run beside it."""
QUEUE_LIMIT, KEY_QUEUE_LIMIT = 256, 64
"""How many answers wait at most, in all and of one API key: nobody may take everybody's place in the queue."""


class Step(NamedTuple):
    """One traversal of the pipeline: `tokens` lie on one flat axis in the order of `rows`; `rows` may be empty.

    Stages do the `shares` first, then the releases, then the rows.
    """

    id: int
    rows: list[Row]
    tokens: list[int]
    release: list[StreamId]
    shares: Sequence[Share] = ()

    @property
    def wants(self) -> int:
        return sum(row.wants for row in self.rows)

    @property
    def decodes_only(self) -> bool:
        """Whether every token of the step is sampled from: decode and verify rows, no part of a prompt."""
        return bool(self.rows) and all(row.wants == row.count and row.first > 0 for row in self.rows)


class Outcome(NamedTuple):
    """New tokens of one stream, in order; with `finish` they are the last. `logprobs` are theirs, or empty.

    `drafted` is how many tokens were guessed for them; all of `ids` but the last were guessed right then.
    """

    stream: StreamId
    ids: list[int]
    finish: FinishReason | None
    logprobs: Sequence[Logprobs | None] = ()
    drafted: int = 0


@dataclass(frozen=True)
class Limits:
    """What the pipeline can hold: `kv_tokens` over all streams, `context_tokens` for one of them.

    At most `streams` run at once. `shares_blocks` says that every stage holds a shared beginning once; where one copies
    instead, `places` bounds the streams that are cached, kept ones included (0: no bound but the tokens). `infer_ms`
    says of each stage how long a part of a prompt may compute there (0, or none said: as long as it likes).
    """

    stages: int
    kv_tokens: int
    context_tokens: int
    streams: int
    prefill_tokens: int = PREFILL_TOKENS
    queue: int = QUEUE_LIMIT
    key_queue: int = KEY_QUEUE_LIMIT
    shares_blocks: bool = True
    places: int = 0
    infer_ms: tuple[int, ...] = ()

    @property
    def stream_tokens(self) -> int:
        """The longest stream that can ever run."""
        return min(self.context_tokens, self.kv_tokens // BLOCK_TOKENS * BLOCK_TOKENS)
