"""What every engine offers, and what all of them share: checked steps, stream lengths, the loaded model's facts.

An engine belongs to one thread. `step` is atomic as far as the caller can see: a step that is refused has changed
nothing, and one whose inference failed has made no row's stream longer.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from agent.stage.checks import check_step, lengths_after
from agent.stage.engines.library import Library
from agent.stage.errors import EngineFailed, KvFull, Yielded
from agent.stage.gate import Gate
from agent.stage.types import Row, Share, StageSpec, StreamId
from shard_export.library.counts import counted

T = TypeVar("T")
Floats = npt.NDArray[np.float32]


class Engine(abc.ABC):
    """One stage's computation and its cache of keys and values.

    `fused` says whether the runtime runs attention as one operation with its cache in every layer; `remark` is what
    else loading found out, for people.
    """

    def __init__(self, spec: StageSpec, library: Library) -> None:
        """Assemble, compile and allocate. Takes seconds; raises StageLoadError or RuntimeError."""
        self.spec = spec
        self.library_digest = library.digest
        self.manifest = library.manifest
        self.shape = library.shape(spec)
        self.fused = False
        self.remark = ""
        self.gate = Gate.private()
        """What each inference passes; the worker replaces it once the stage is loaded."""
        self._lengths: dict[StreamId, int] = {}

    @property
    @abc.abstractmethod
    def kv_tokens(self) -> int:
        """How many tokens the cache holds, over all streams."""

    @property
    @abc.abstractmethod
    def kv_bytes(self) -> int:
        """What the cache takes when it is full."""

    @property
    @abc.abstractmethod
    def cache(self) -> str:
        """The element type of the cache, as OpenVINO names it."""

    def length(self, stream: StreamId) -> int:
        """Count a stream's cached tokens; 0 for a stream this stage has never seen."""
        return self._lengths.get(stream, 0)

    def step(
        self,
        rows: Sequence[Row],
        tensor: npt.NDArray[Any] | None,
        *,
        shares: Sequence[Share] = (),
        release: Sequence[StreamId] = (),
    ) -> Floats:
        """Do the shares, then the releases, then run the rows.

        The rows' tokens lie in order on the first axis of `tensor` (ids i64 [T] or hidden f32 [T,H]). Returns hidden
        states [T,H], or at the tail logits [W,V] of the last `wants` positions of each row, in order. The
        array is a view that the next call overwrites. Raises BadStep or KvFull with nothing changed, or EngineFailed or
        Yielded, when only the shares and releases are done.
        """
        lengths = lengths_after(shares, release, self._lengths)
        if rows:
            check_step(rows, tensor, self.shape, lengths)
        for row in rows:
            if row.first + row.count > self.spec.context_tokens:
                raise KvFull(
                    f"Stream {row.stream} would hold {counted(row.first + row.count, 'token')}, more than the "
                    f"{self.spec.context_tokens} this stage was loaded for; end it or load a longer context."
                )
        try:
            self._reserve(shares, release, rows)
        except RuntimeError as error:
            # How far the copies got is unknown: what the step names must begin anew.
            for stream in {*release, *(share.stream for share in shares), *(row.stream for row in rows)}:
                self._lengths.pop(stream, None)
            raise EngineFailed(
                f"Copying the cache failed: {last_line(error)}; replay the streams of this step."
            ) from error
        self._lengths = lengths
        if not rows or tensor is None:
            return np.zeros((0, self.shape.vocab_size if self.shape.is_tail else self.shape.hidden_size), np.float32)
        try:
            output = self._run(rows, tensor)
        except Yielded:
            self._failed(rows)
            raise
        except RuntimeError as error:
            self._failed(rows)
            raise EngineFailed(f"Inference failed: {last_line(error)}; replay the streams of this step.") from error
        for row in rows:
            self._lengths[row.stream] = row.first + row.count
        return output

    def release(self, stream: StreamId) -> None:
        """Forget a stream and free its cache; unknown streams are fine."""
        self.step([], None, release=[stream])

    def forget_all(self) -> None:
        """Forget every stream, as if none had ever been here."""
        self.step([], None, release=[*self._lengths, *self._holders()])

    @abc.abstractmethod
    def close(self) -> None:
        """Free everything; the engine cannot be used afterwards."""

    @abc.abstractmethod
    def _reserve(self, shares: Sequence[Share], release: Sequence[StreamId], rows: Sequence[Row]) -> None:
        """Do the checked shares and releases and make room for the rows, or raise KvFull with nothing changed."""

    @abc.abstractmethod
    def _holders(self) -> Iterable[StreamId]:
        """List the streams that take room, also those whose first step failed."""

    @abc.abstractmethod
    def _run(self, rows: Sequence[Row], tensor: npt.NDArray[Any]) -> Floats:
        """Compute a checked and reserved step; RuntimeError when the device fails, Yielded when the gate is shut."""

    def _pass(self, infer: Callable[[], T], tokens: int) -> T:
        """Run one inference of so many positions, if the gate is open right before it. Raises Yielded."""
        self.gate.enter()
        try:
            return infer()
        finally:
            self.gate.leave(tokens)

    @abc.abstractmethod
    def _failed(self, rows: Sequence[Row]) -> None:
        """Put the cache back into a known state after `_run` raised."""


def last_line(error: BaseException) -> str:
    """Return the informative end of a native error, without its source locations."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:200].rstrip(".")
