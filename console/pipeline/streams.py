"""Plain bookkeeping of running generations: one Stream each, and the fair queue they wait in. No clock, no I/O."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from agent.stage.types import Sampling, StreamId


@dataclass(slots=True, eq=False)
class Stream:
    """One generation: what was asked, what came so far, and where the stages are with it.

    `ids` is the whole token history, the first `prompt_tokens` of them the prompt: a replay on other PCs starts from
    it. `limit` is the answer length at which it ends, the context counted in. `cached` counts the positions that the
    stages hold once all steps sent so far have run; rejected drafts make it larger than the history. `settled` counts
    those that came back and belong to the history for good. `reused` is how many prompt tokens were cached already when
    the stream began (-1: it did not yet). `told` says that the sampling was sent. `flying` counts the steps in flight
    that carry the stream: one, or several while its prompt is read; `drafts` is what its decode row guesses.
    """

    id: StreamId
    ids: list[int]
    prompt_tokens: int
    limit: int
    sampling: Sampling
    eos: frozenset[int]
    key: str
    cached: int = 0
    settled: int = 0
    reused: int = -1
    told: bool = False
    flying: int = 0
    drafts: Sequence[int] = ()

    def begin_anew(self) -> None:
        """No stage holds anything of it any more: it is computed from its token ids."""
        self.cached, self.settled, self.told, self.flying, self.drafts = 0, 0, False, 0, ()

    @property
    def answered(self) -> int:
        """How many tokens the answer has."""
        return len(self.ids) - self.prompt_tokens

    @property
    def most(self) -> int:
        """The longest it can become."""
        return self.prompt_tokens + self.limit

    @property
    def prefilling(self) -> bool:
        """Whether the stages lack more of the history than its newest token, or all of it."""
        return not self.told or self.cached < len(self.ids) - 1


class FairQueue:
    """First in, first out within a key; one stream of each key after the other between keys."""

    def __init__(self) -> None:
        self.changes = 0
        """Grows with every change."""
        self._keys: OrderedDict[str, deque[Stream]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Stream]:
        """Go through the streams in the order in which `pop` would return them."""
        turns = [list(waiting) for waiting in self._keys.values()]
        for turn in zip_longest(*turns):
            yield from (stream for stream in turn if stream is not None)

    def of_key(self, key: str) -> int:
        """Count the streams of one key."""
        return len(self._keys.get(key, ()))

    def push(self, stream: Stream) -> None:
        """Append to the stream's key; a new key goes behind all others."""
        self._keys.setdefault(stream.key, deque()).append(stream)
        self._changed(1)

    def push_front(self, stream: Stream) -> None:
        """Put a stream that lost its place before all others."""
        self._keys.setdefault(stream.key, deque()).appendleft(stream)
        self._keys.move_to_end(stream.key, last=False)
        self._changed(1)

    def head(self) -> Stream | None:
        """Return whose turn it is, without taking it."""
        return next((waiting[0] for waiting in self._keys.values()), None)

    def pop(self) -> Stream:
        """Take the head; its key goes behind all others. Raises IndexError when empty."""
        if not self._keys:
            raise IndexError("The queue is empty.")
        key, waiting = self._keys.popitem(last=False)
        stream = waiting.popleft()
        if waiting:
            self._keys[key] = waiting
        self._changed(-1)
        return stream

    def remove(self, stream: Stream) -> None:
        """Take a stream out of turn. Raises ValueError if it does not wait."""
        waiting = self._keys.get(stream.key, deque())
        waiting.remove(stream)
        if not waiting:
            del self._keys[stream.key]
        self._changed(-1)

    def _changed(self, size: int) -> None:
        self._size += size
        self.changes += 1
