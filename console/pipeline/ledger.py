"""How many cache blocks the stages hold for whom: their own bookkeeping, kept once more on the console. Pure.

The console decides what is cached, so it must know beforehand what a step will take. Shares are of whole blocks, and
nobody writes into a shared one: streams write behind what they share, and only rejected drafts are ever truncated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from agent.stage.types import StreamId
from shard_export.library.counts import counted

BLOCK_TOKENS = 32
"""What paged caches hand out at once."""


def blocks_for(tokens: int) -> int:
    """Count the blocks that hold `tokens` positions."""
    return -(-tokens // BLOCK_TOKENS)


class Ledger:
    """`blocks` blocks. `shares_blocks` False is for stages that copy what is shared: each stream pays for all of it."""

    def __init__(self, blocks: int, *, shares_blocks: bool = True) -> None:
        self.blocks = blocks
        self.shares_blocks = shares_blocks
        self._held: dict[StreamId, list[int]] = {}
        self._holders: Counter[int] = Counter()
        self._next_block = 0

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return self.blocks - len(self._holders)

    @property
    def streams(self) -> int:
        """How many streams hold something."""
        return len(self._held)

    def held(self, stream: StreamId) -> int:
        """Count a stream's blocks."""
        return len(self._held.get(stream, ()))

    def lacks(self, stream: StreamId, tokens: int) -> int:
        """Say how many more blocks a stream needs to hold `tokens` positions."""
        return max(0, blocks_for(tokens) - self.held(stream))

    def hold(self, stream: StreamId, tokens: int) -> None:
        """Give a stream exactly the blocks for `tokens` positions. Raises ValueError when there are too few."""
        held = self._held.setdefault(stream, [])
        wanted = blocks_for(tokens)
        if wanted - len(held) > self.free:
            more = counted(wanted - len(held), "more block", "more blocks")
            raise ValueError(f"Stream {stream} needs {more}, and the pool has {self.free} free.")
        while len(held) > wanted:
            self._let_go(held.pop())
        while len(held) < wanted:
            held.append(self._next_block)
            self._holders[self._next_block] = 1
            self._next_block += 1

    def share(self, stream: StreamId, source: StreamId, tokens: int) -> None:
        """Begin a stream with the first `tokens` positions of another one, a multiple of the block size."""
        if not self.shares_blocks:
            self.hold(stream, tokens)
            return
        shared = self._held[source][: tokens // BLOCK_TOKENS]
        self._holders.update(shared)
        self._held[stream] = shared

    def release(self, stream: StreamId) -> None:
        """Take a stream's blocks back; unknown streams are fine."""
        for block in self._held.pop(stream, ()):
            self._let_go(block)

    def freed_by(self, streams: Iterable[StreamId]) -> int:
        """Count the blocks that would become free if all of these streams were released."""
        theirs: Counter[int] = Counter()
        for stream in streams:
            theirs.update(self._held.get(stream, ()))
        return sum(count == self._holders[block] for block, count in theirs.items())

    def _let_go(self, block: int) -> None:
        self._holders[block] -= 1
        if not self._holders[block]:
            del self._holders[block]
