"""The streams that have a place in the caches, and which of them get rows in the next step. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

from agent.stage.types import Row, StreamId
from console.pipeline.caches import Caches
from console.pipeline.drafts import DraftSource
from console.pipeline.pacing import Pace, Pacer
from console.pipeline.plans import Limits, Step
from console.pipeline.rows import decode_row, draft_room, prefill_row
from console.pipeline.streams import Stream

MAX_GRAMMARS = 16
"""How many streams with a grammar begin in one step: it travels with their first rows, and a frame has its bounds."""


class Running:
    """Running streams in the order of their admission. Each that may have a row now is in one of two queues.

    When the caches are full, the youngest streams lose their place to older ones: they are `preempted`, and whoever
    queues them again clears that list. The oldest stream always goes on, so every stream gets its turn.
    """

    def __init__(self, limits: Limits, caches: Caches, drafts: DraftSource) -> None:
        self.pacer = Pacer(limits.stages, limits.prefill_tokens, limits.infer_ms)
        self.preempted: list[Stream] = []
        self._stages = limits.stages
        self._caches = caches
        self._drafts = drafts
        self._streams: dict[StreamId, Stream] = {}
        self._decoding: deque[Stream] = deque()
        self._prefilling: deque[Stream] = deque()
        self._filled = False

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[Stream]:
        return iter(self._streams.values())

    def __contains__(self, stream: StreamId) -> bool:
        return stream in self._streams

    def get(self, stream: StreamId) -> Stream | None:
        """Return a running stream, or None."""
        return self._streams.get(stream)

    @property
    def decoders(self) -> int:
        """How many streams are past their prompts."""
        return sum(not stream.prefilling for stream in self)

    @property
    def pace(self) -> Pace:
        """How many steps are in flight now, how much of a prompt goes into one, and why."""
        return self.pacer.pace(self.decoders)

    def admit(self, stream: Stream) -> None:
        """Give a stream a place."""
        self._streams[stream.id] = stream
        self._prefilling.append(stream)
        self._drafts.begin(stream.id, stream.ids, stream.sampling)

    def again(self, stream: Stream) -> None:
        """A stream's token came back: it may have its next row."""
        self._decoding.append(stream)

    def leave(self, stream: Stream, *, keep: bool) -> None:
        """Take a stream's place away; with `keep` its beginning stays cached if there is room."""
        del self._streams[stream.id]
        for ready in (self._decoding, self._prefilling):
            # Absent while a step carries it.
            if stream in ready:
                ready.remove(stream)
        self._caches.end(stream, keep=keep)

    def returned(self) -> None:
        """A step came back: one more step that answers nobody may leave."""
        self._filled = False

    def fill(self, in_flight: Collection[Step]) -> tuple[list[Row], list[int]]:
        """Make the rows of the next step: the streams that waited longest, as many as make all steps equally large.

        Steps that only read prompts do not keep answers from their places: when the last of a prompt is on its way,
        the answers beside it go on at once.
        """
        rows: list[Row] = []
        tokens: list[int] = []
        decoders, pace = self.decoders, self.pace
        places = pace.filling if decoders < len(self) else pace.steps
        free = self._stages - len(in_flight)
        answering = sum(step.wants > 0 for step in in_flight)
        if (free_for_answers := min(free, places - answering)) > 0:
            # The second bound keeps a step from growing past its share of all answers: uneven ones become even again.
            size = min(-(-len(self._decoding) // free_for_answers), -(-decoders // places))
            self._take(self._decoding, size, 0, rows, tokens)
        free_for_prompts = min(free, pace.filling - len(in_flight))
        # Steps that answer nobody leave one by one: a burst of them would lie in front of the next answers.
        filler = not rows and any(stream.answered for stream in self)
        if free_for_prompts > 0 and not (filler and self._filled):
            size = -(-len(self._prefilling) // free_for_prompts)
            self._take(self._prefilling, size, pace.chunk, rows, tokens)
            self._filled = self._filled or (filler and bool(rows))
        return rows, tokens

    def _take(self, ready: deque[Stream], size: int, budget: int, rows: list[Row], tokens: list[int]) -> None:
        """Give up to `size` streams of a queue a row, with at most `budget` prompt tokens for all of them."""
        left_out, again = [], []
        grammars = MAX_GRAMMARS
        while ready and size:
            stream = ready.popleft()
            prefilling, begins = stream.prefilling, bool(stream.sampling.grammar) and not stream.told
            made = self._row(stream, budget) if grammars or not begins else None
            if made is None:
                left_out.append(stream)
                continue
            row, new = made
            grammars -= begins
            budget -= row.count if prefilling else 0
            size -= 1
            stream.flying += 1
            rows.append(row)
            tokens += new
            if not row.wants:
                again.append(stream)
        ready.extendleft(stream for stream in reversed(left_out) if stream.id in self)
        for stream in again:
            (self._prefilling if stream.prefilling else self._decoding).append(stream)

    def _row(self, stream: Stream, budget: int) -> tuple[Row, list[int]] | None:
        """Make a stream's next row, or None while it waits: for prompt tokens left in the step, drafts or room."""
        if stream.prefilling:
            return self._prefill(stream, budget) if budget else None
        room = draft_room(stream)
        drafts = self._drafts.drafts_for(stream.id, stream.ids, room) if room > 0 else ()
        if drafts is None:
            return None
        drafts = tuple(drafts[:room])
        if drafts and not self._caches.make_room(stream, len(stream.ids) + len(drafts)):
            drafts = ()
        if not self._room(stream, len(stream.ids) + len(drafts)):
            return None
        return decode_row(stream, drafts)

    def _prefill(self, stream: Stream, budget: int) -> tuple[Row, list[int]] | None:
        if not stream.told and not stream.cached:
            stream.cached = self._caches.begin(stream, self)
            if stream.reused < 0:
                stream.reused = stream.cached
        if not self._room(stream, min(stream.cached + budget, len(stream.ids))):
            return None
        return prefill_row(stream, budget)

    def _room(self, stream: Stream, tokens: int) -> bool:
        """Let a stream hold `tokens` positions, if need be at the cost of kept and of younger streams."""
        while not self._caches.make_room(stream, tokens):
            younger = reversed(self._streams.values())
            victim = next((other for other in younger if other is stream or not other.flying), stream)
            if victim is stream:
                return False
            self._preempt(victim)
        self._caches.hold(stream, tokens)
        return True

    def _preempt(self, stream: Stream) -> None:
        """Give up a stream's cache. It is computed anew from the token ids, so its answer stays the same."""
        self.leave(stream, keep=False)
        stream.begin_anew()
        self.preempted.append(stream)
