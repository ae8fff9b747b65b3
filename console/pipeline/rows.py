"""From a stream to its next row, and from the sampled ids of that row back into the stream. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from agent.stage.types import Row
from console.pipeline.plans import Outcome
from console.pipeline.streams import Stream
from console.pipeline.types import FinishReason


def draft_room(stream: Stream) -> int:
    """Say how many drafts a decoding stream has use for: a round gives one token more than it accepts.

    The answer's limit counts the context in, so rows that keep to it never leave the context or the stream's share of
    the caches.
    """
    return stream.limit - stream.answered - 1


def prefill_row(stream: Stream, budget: int) -> tuple[Row, list[int]]:
    """Make the row of the next `budget` >= 1 tokens that the stages lack; the last of them wants a token.

    The sampling travels with the first row, and with it all ids the tail has not seen, where it needs them.
    """
    first = stream.cached
    end = min(first + budget, len(stream.ids))
    tokens = stream.ids[first:end]
    sampling, ids = None, None
    if not stream.told:
        sampling = stream.sampling
    if stream.sampling.needs_history:
        ids = tokens if stream.told else stream.ids[:end]
    stream.told, stream.cached, stream.drafts = True, end, ()
    wants = 1 if end == len(stream.ids) else 0
    return Row(stream.id, first, end - first, wants=wants, sampling=sampling, ids=ids), tokens


def decode_row(stream: Stream, drafts: Sequence[int]) -> tuple[Row, list[int]]:
    """Make the row of the newest token and the drafts behind it; what was rejected before is truncated."""
    first = len(stream.ids) - 1
    tokens = [stream.ids[-1], *drafts]
    truncate_to = first if stream.cached > first else -1
    stream.cached, stream.drafts = first + len(tokens), drafts
    ids = tokens if stream.sampling.needs_history else None
    return Row(stream.id, first, len(tokens), truncate_to, len(tokens), ids=ids), tokens


def agreed(drafts: Sequence[int], sampled: Sequence[int]) -> int:
    """Count the drafts in front that are what was sampled in their place."""
    for count, (draft, token) in enumerate(zip(drafts, sampled, strict=False)):
        if draft != token:
            return count
    return min(len(drafts), len(sampled))


def accept(stream: Stream, sampled: Sequence[int]) -> Outcome:
    """Append sampled tokens until one ends the answer; those behind it are dropped."""
    taken: list[int] = []
    finish: FinishReason | None = None
    for token in sampled:
        taken.append(token)
        stream.ids.append(token)
        if token in stream.eos:
            finish = "stop"
        elif stream.answered >= stream.limit:
            finish = "length"
        if finish:
            break
    return Outcome(stream.id, taken, finish)
