"""Which cache blocks are free and which streams hold which: pure bookkeeping of the paged engine.

A block may belong to several streams that begin alike; `references` counts them. Whoever writes into such a block gets
one of its own first (copy on write), because the others still read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agent.stage.errors import KvFull
from agent.stage.types import Share, StreamId

Copy = tuple[int, int]
"""Block `source` to block `target`, before anything is written."""


class BlockPool:
    """`blocks` blocks of `block_tokens` positions each."""

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._free = list(range(blocks - 1, -1, -1))
        self._held: dict[StreamId, list[int]] = {}
        self._references = [0] * blocks

    @property
    def free_tokens(self) -> int:
        """Room in blocks that no stream holds."""
        return len(self._free) * self.block_tokens

    @property
    def holders(self) -> list[StreamId]:
        """List the streams that hold a block."""
        return list(self._held)

    def blocks(self, stream: StreamId) -> list[int]:
        """List a stream's blocks in order of position."""
        return self._held.get(stream, [])

    def apply(
        self, shares: Sequence[Share], release: Iterable[StreamId], writes: Mapping[StreamId, range]
    ) -> list[Copy]:
        """Do a step's shares and releases, then give each writing stream blocks of its own for its positions.

        A stream of `writes` ends with exactly the blocks up to the end of its range; those the range touches are held
        by it alone. Returns what must be copied before the step runs: blocks that were shared and keep a part. No
        target is another's source. Shares must name held positions. Raises KvFull with nothing changed.
        """
        before = (
            self._free.copy(),
            {stream: held.copy() for stream, held in self._held.items()},
            self._references.copy(),
        )
        try:
            for share in shares:
                self._share(share)
            for stream in release:
                self._drop(self._held.pop(stream, []))
            for stream, positions in writes.items():
                self._shrink(stream, positions)
            return [copy for stream, positions in writes.items() for copy in self._own(stream, positions)]
        except KvFull:
            self._free, self._held, self._references = before
            raise

    def _share(self, share: Share) -> None:
        blocks = self._held[share.source][: self._count(share.tokens)]
        for block in blocks:
            self._references[block] += 1
        # A stream whose first step failed is unknown to the engine but still holds its blocks.
        self._drop(self._held.pop(share.stream, []))
        self._held[share.stream] = blocks

    def _shrink(self, stream: StreamId, positions: range) -> None:
        """Give back what lies beyond the range, and the shared blocks that it overwrites whole."""
        held = self._held.setdefault(stream, [])
        kept, count = self._count(positions.start), self._count(positions.stop)
        overwritten = held[kept:]
        del held[kept:]
        for block in overwritten:
            if self._references[block] > 1 or len(held) == count:
                self._drop([block])
            else:
                held.append(block)

    def _own(self, stream: StreamId, positions: range) -> Iterable[Copy]:
        held = self._held[stream]
        at = positions.start // self.block_tokens
        if at < len(held) and self._references[held[at]] > 1:
            source, target = held[at], self._take()
            self._drop([source])
            held[at] = target
            yield source, target
        while len(held) < self._count(positions.stop):
            held.append(self._take())

    def _take(self) -> int:
        if not self._free:
            raise KvFull(
                f"The step needs more room than the streams leave of the {self.block_tokens * len(self._references)} "
                "cached tokens this stage was loaded for; release a stream first."
            )
        block = self._free.pop()
        self._references[block] = 1
        return block

    def _drop(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self._references[block] -= 1
            if not self._references[block]:
                self._free.append(block)

    def _count(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)
