"""What the stages' caches hold: the streams that run, and finished ones kept because others may begin alike. Pure.

A finished stream is kept by not releasing it. Whoever comes with the same first tokens gets them by a Share instead of
running them again; the next turn of a conversation is the usual case. Kept streams only ever use room that nobody else
needs: they are released, least recently used first, before a running stream has to wait.

Only streams of the same API key share. How fast the first token comes tells whether a beginning was cached, so sharing
between keys would let one person find out, prompt by prompt, what another one asked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from agent.stage.types import Share, StreamId
from console.pipeline.ledger import BLOCK_TOKENS, Ledger, blocks_for
from console.pipeline.plans import Limits
from console.pipeline.streams import Stream

SPARE_BLOCKS = 2
"""Left free for each running stream when another one is admitted: answers that just began must not be preempted."""


class Kept(NamedTuple):
    """A finished stream: its token ids, of which the stages hold the first `tokens`."""

    key: str
    ids: Sequence[int]
    tokens: int


class CacheBlocks(NamedTuple):
    """Blocks of `BLOCK_TOKENS` positions: those of running answers, those kept of finished ones, and free ones."""

    running: int
    kept: int
    free: int


class Caches:
    """Decides what is cached on all stages alike, and says it in the shares and releases of the next step."""

    def __init__(self, limits: Limits) -> None:
        self._ledger = Ledger(limits.kv_tokens // BLOCK_TOKENS, shares_blocks=limits.shares_blocks)
        self._places = limits.places
        self._kept: OrderedDict[StreamId, Kept] = OrderedDict()
        self._fresh: set[StreamId] = set()
        self._shares: list[Share] = []
        self._release: list[StreamId] = []

    @property
    def kept(self) -> int:
        """How many finished streams are kept."""
        return len(self._kept)

    @property
    def blocks(self) -> CacheBlocks:
        """How the blocks are used; one that a running answer shares with a kept one counts as the running one's."""
        free, kept = self._ledger.free, self._ledger.freed_by(self._kept)
        return CacheBlocks(self._ledger.blocks - free - kept, kept, free)

    @property
    def owes(self) -> bool:
        """Whether the stages have not been told everything yet."""
        return bool(self._release)

    def admits(self, stream: Stream, running: Collection[Stream]) -> bool:
        """Say whether a stream may join the running ones without pushing one of them out soon."""
        if blocks_for(stream.most) + sum(blocks_for(other.most) for other in running) <= self._ledger.blocks:
            return True
        wanted = blocks_for(len(stream.ids) + 1)
        if running:
            promised = sum(self._ledger.lacks(other.id, len(other.ids)) for other in running)
            wanted += promised + SPARE_BLOCKS * (len(running) + 1)
        return wanted <= self._ledger.free + self._ledger.freed_by(self._kept)

    def begin(self, stream: Stream, running: Iterable[Stream]) -> int:
        """Share the longest known beginning with a stream that holds nothing yet; returns its tokens, perhaps 0.

        One token is always left to run: without it nothing could be sampled.
        """
        most = (len(stream.ids) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
        best, tokens = None, 0
        candidates = [(other, kept.key, kept.ids, kept.tokens) for other, kept in self._kept.items()]
        candidates += [(other.id, other.key, other.ids, other.settled) for other in running if other is not stream]
        for other, key, ids, held in candidates:
            if key == stream.key and (found := _alike(stream.ids, ids, min(most, held))) > tokens:
                best, tokens = other, found
        if best is None or not self._copy_fits(best, tokens):
            return 0
        self._ledger.share(stream.id, best, tokens)
        self._shares.append(Share(stream.id, best, tokens))
        if best in self._kept:
            self._kept.move_to_end(best)
            self._fresh.add(best)
        self._clear_places()
        return tokens

    def make_room(self, stream: Stream, tokens: int) -> bool:
        """Release kept streams until this one can hold `tokens` positions; False if that is not enough."""
        while self._lacking(stream, tokens) > 0:
            if not self._kept:
                return False
            self._evict(next(iter(self._kept)))
        return True

    def hold(self, stream: Stream, tokens: int) -> None:
        """Note that the next step makes a stream hold exactly `tokens` positions."""
        self._ledger.hold(stream.id, tokens)

    def end(self, stream: Stream, *, keep: bool) -> None:
        """A stream does not run any more: keep its beginning if it may be of use, else release it."""
        if not self._ledger.held(stream.id):
            return
        if keep and stream.settled >= BLOCK_TOKENS:
            self._kept[stream.id] = Kept(stream.key, stream.ids, stream.settled)
            self._fresh.add(stream.id)
        else:
            self._let_go(stream.id)

    def distrust(self, streams: Iterable[StreamId], release: Iterable[StreamId]) -> None:
        """A step failed: kept streams that it carried may be damaged, and what it released may not be released.

        Releasing twice is harmless.
        """
        for stream in streams:
            if stream in self._kept:
                self._evict(stream)
        self._release += [stream for stream in release if stream not in self._release]

    def age(self) -> None:
        """Release the kept streams that nobody began with since the last call: memory does not hold old prompts."""
        for stream in [stream for stream in self._kept if stream not in self._fresh]:
            self._evict(stream)
        self._fresh.clear()

    def take(self) -> tuple[list[Share], list[StreamId]]:
        """Hand out what the next step must say."""
        said = self._shares, self._release
        self._shares, self._release = [], []
        return said

    def _lacking(self, stream: Stream, tokens: int) -> int:
        lacking = self._ledger.lacks(stream.id, tokens) - self._ledger.free
        if self._places and not self._ledger.held(stream.id):
            lacking = max(lacking, self._ledger.streams + 1 - self._places)
        return lacking

    def _copy_fits(self, source: StreamId, tokens: int) -> bool:
        """Make room for a copy of what is shared, where stages copy; False if there is none."""
        if self._ledger.shares_blocks:
            return True
        others = [stream for stream in self._kept if stream != source]
        while self._ledger.free < blocks_for(tokens) and others:
            self._evict(others.pop(0))
        return self._ledger.free >= blocks_for(tokens)

    def _clear_places(self) -> None:
        # Also the source may go: its release comes after the share in the same step.
        while self._places and self._ledger.streams > self._places and self._kept:
            self._evict(next(iter(self._kept)))

    def _evict(self, stream: StreamId) -> None:
        del self._kept[stream]
        self._fresh.discard(stream)
        self._let_go(stream)

    def _let_go(self, stream: StreamId) -> None:
        self._ledger.release(stream)
        told = [share for share in self._shares if share.stream != stream]
        if len(told) == len(self._shares):
            self._release.append(stream)
        # Else the stages never heard of the stream.
        self._shares = told


def _alike(ids: Sequence[int], others: Sequence[int], most: int) -> int:
    """Count the tokens that two streams begin with alike, in whole blocks and at most `most`."""
    tokens = 0
    while (
        tokens + BLOCK_TOKENS <= most and ids[tokens : tokens + BLOCK_TOKENS] == others[tokens : tokens + BLOCK_TOKENS]
    ):
        tokens += BLOCK_TOKENS
    return tokens
