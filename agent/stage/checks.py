"""Does a step fit the stage that received it? Pure: rows, tensor and cached lengths in, BadStep out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from agent.stage.errors import BadStep
from agent.stage.types import Row, Share, StreamId
from shard_export.library.counts import counted


class StageShape(msgspec.Struct, frozen=True):
    """What a stage accepts: token ids when it is the head of the pipeline, else hidden states of `hidden_size`."""

    takes_ids: bool
    is_tail: bool
    hidden_size: int
    vocab_size: int
    context_tokens: int


def length_before(row: Row, lengths: Mapping[StreamId, int]) -> int:
    """Count the tokens a row finds in the cache: the stream's length after its truncation."""
    length = lengths.get(row.stream, 0)
    return min(length, row.truncate_to) if row.truncate_to >= 0 else length


def lengths_after(
    shares: Sequence[Share], release: Sequence[StreamId], lengths: Mapping[StreamId, int]
) -> dict[StreamId, int]:
    """Return the cached lengths once the shares and the releases are done. Raises BadStep for a share that cannot be.

    Releasing an unknown stream is fine.
    """
    after = dict(lengths)
    for share in shares:
        if share.stream in after:
            raise BadStep(f"Stream {share.stream} exists already and cannot begin with a shared cache; release it.")
        held = after.get(share.source, 0)
        if not 1 <= share.tokens <= held:
            raise BadStep(
                f"Stream {share.stream} would share {counted(share.tokens, 'token')} of stream "
                f"{share.source}, but this stage "
                f"holds {held} of them; run the stream from its beginning."
            )
        after[share.stream] = share.tokens
    for stream in release:
        after.pop(stream, None)
    return after


def check_step(
    rows: Sequence[Row], tensor: npt.NDArray[Any] | None, shape: StageShape, lengths: Mapping[StreamId, int]
) -> None:
    """Raise BadStep unless the rows continue their streams and the tensor holds exactly their tokens."""
    seen: set[StreamId] = set()
    total = 0
    for row in rows:
        if row.stream in seen:
            raise BadStep(f"Stream {row.stream} has two rows in one step; send one row per stream.")
        seen.add(row.stream)
        if row.count < 1 or row.first < 0 or row.truncate_to < -1 or not 0 <= row.wants <= row.count:
            raise BadStep(f"The row of stream {row.stream} has impossible counts; send first >= 0 and count >= 1.")
        cached = length_before(row, lengths)
        if row.first != cached:
            raise BadStep(
                f"Stream {row.stream} continues at position {row.first}, but this stage holds "
                f"{counted(cached, 'token')} of it; "
                "replay the stream from there."
            )
        total += row.count
    _check_tensor(total, tensor, shape)


def _check_tensor(total: int, tensor: npt.NDArray[Any] | None, shape: StageShape) -> None:
    if tensor is None:
        raise BadStep(f"The step has {counted(total, 'token')} in its rows, but carries no tensor.")
    expected, dtype = ((total,), np.int64) if shape.takes_ids else ((total, shape.hidden_size), np.float32)
    if tensor.dtype != dtype or tensor.shape != expected:
        raise BadStep(
            f"The step carries {tensor.dtype} {tensor.shape}, but its rows need {np.dtype(dtype)} {expected}."
        )
    if shape.takes_ids and (tensor.min() < 0 or tensor.max() >= shape.vocab_size):
        raise BadStep(f"A token id lies outside the vocabulary of {shape.vocab_size}; use the model's own tokenizer.")
