"""Plain bookkeeping of running generations: one Stream each, and the fair queue they wait in. No clock, no I/O."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.stage.types import Sampling, StreamId


@dataclass(slots=True)
class Stream:
    """One generation: what was asked, what came so far, and where the stages are with it.

    `prefilled` counts prompt tokens that are in a step already. `limit` is the answer length at which it ends, the
    context counted in. `out` is the token history that a replay on other PCs starts from. `step` is the step in
    flight that carries the stream, -1 if none. `sends_ids` says that its rows carry their token ids to the tail.
    """

    id: StreamId
    prompt: list[int]
    limit: int
    sampling: Sampling
    eos: frozenset[int]
    key: str
    kv_tokens: int
    prefilled: int = 0
    step: int = -1
    sends_ids: bool = False
    out: list[int] = field(default_factory=list)

    @property
    def prefilling(self) -> bool:
        return self.prefilled < len(self.prompt)


class FairQueue:
    """First in, first out within a key; one stream of each key after the other between keys."""

    def __init__(self) -> None:
        self._keys: OrderedDict[str, deque[Stream]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Stream]:
        for waiting in self._keys.values():
            yield from waiting

    def push(self, stream: Stream) -> None:
        """Append to the stream's key; a new key goes behind all others."""
        self._keys.setdefault(stream.key, deque()).append(stream)
        self._size += 1

    def head(self) -> Stream | None:
        """Return whose turn it is, without taking it."""
        for waiting in self._keys.values():
            return waiting[0]
        return None

    def pop(self) -> Stream:
        """Take the head; its key goes behind all others. Raises IndexError when empty."""
        if not self._keys:
            raise IndexError("The queue is empty.")
        key, waiting = self._keys.popitem(last=False)
        stream = waiting.popleft()
        if waiting:
            self._keys[key] = waiting
        self._size -= 1
        return stream

    def remove(self, stream: Stream) -> None:
        """Take a stream out of turn. Raises ValueError if it does not wait."""
        waiting = self._keys.get(stream.key, deque())
        waiting.remove(stream)
        if not waiting:
            del self._keys[stream.key]
        self._size -= 1

    def position(self, stream: Stream) -> int:
        """Say how many streams will be admitted before this one. Raises ValueError if it does not wait."""
        depth = self._keys.get(stream.key, deque()).index(stream)
        ahead, before = depth, True
        for key, waiting in self._keys.items():
            if key == stream.key:
                before = False
                continue
            ahead += min(len(waiting), depth + before)
        return ahead
