"""One stream per infer request: the stateful graph, where the runtime keeps the cache.

A state can only grow. Rejected tokens stay in it as columns that the mask hides, so each stream tracks which column
holds which logical position; when hidden columns pile up, the state is copied without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

from agent.stage.checks import length_before, lengths_after
from agent.stage.engines.base import Engine, Floats
from agent.stage.engines.library import Library
from agent.stage.engines.options import cached_tokens, compile_options
from agent.stage.engines.requests import Requests
from agent.stage.errors import KvFull
from agent.stage.types import Row, Share, StageSpec, StreamId
from shard_export.library.counts import counted
from shard_export.library.graph import WANTED, fused_layers

MIN_HOLES = 128
"""Fewer hidden columns than this are never worth copying a state."""


class _Stream:
    """An infer request with the mask and the columns of one stream."""

    def __init__(self, request: Any, *, fused: bool) -> None:
        self.request = request
        self._fused = fused
        self.length = 0
        self.physical = 0
        self.mask = np.zeros((1, 256), np.int64)
        self.columns = np.zeros(256, np.int64)

    def reset(self) -> None:
        """Forget everything."""
        if self.physical and not self._fused:
            # After reset_state the CPU runtime goes on with the sizes of the last call where attention is in pieces
            # and keys and values differ in size: wrong results, then a crash. Empty states put in by hand are right.
            self.take_over(self, 0)
            return
        self.request.reset_state()
        self.mask[:] = 0
        self.length = self.physical = 0

    def truncate(self, length: int) -> None:
        """Hide every position from `length` on."""
        if length == 0 and self.physical:
            self.reset()
        elif length < self.length:
            self.mask[0, self.columns[length : self.length]] = 0
            self.length = length
            if self.physical - length > max(MIN_HOLES, length // 4):
                self.take_over(self, length)

    def append(self, count: int) -> npt.NDArray[np.int64]:
        """Show `count` new columns; returns the mask over all columns."""
        end = self.physical + count
        if end > self.mask.shape[1]:
            grown = max(end, 2 * self.mask.shape[1])
            self.mask = np.pad(self.mask, ((0, 0), (0, grown - self.mask.shape[1])))
            self.columns = np.pad(self.columns, (0, grown - len(self.columns)))
        self.mask[0, self.physical : end] = 1
        self.columns[self.length : self.length + count] = np.arange(self.physical, end)
        self.length += count
        self.physical = end
        return self.mask[:, :end]

    def take_over(self, source: _Stream, length: int) -> None:
        """Become a copy of the first `length` positions of `source`, without its hidden columns; it may be itself."""
        keep = source.columns[:length]
        for mine, its in zip(self.request.query_state(), source.request.query_state(), strict=True):
            mine.state = ov.Tensor(np.ascontiguousarray(its.state.data[:, :, keep]))
        self.length = self.physical = 0
        self.mask[:] = 0
        self.append(length)


def _cache_type(compiled: ov.CompiledModel) -> str:
    try:
        return str(compiled.get_property("KV_CACHE_PRECISION").get_type_name())
    except RuntimeError:
        # Not every plugin tells; f32 counts the most memory.
        return "f32"


class StatefulEngine(Engine):
    """Rows run one after the other, each in its stream's own request."""

    def __init__(self, spec: StageSpec, library: Library) -> None:
        """Assemble and compile. Raises StageLoadError; takes seconds."""
        super().__init__(spec, library)
        core = ov.Core()
        options = compile_options(spec, core)
        self._source = "input_ids" if self.shape.takes_ids else "hidden_states"
        self._beam = np.zeros(1, np.int32)
        self._requests = Requests(
            lambda: core.compile_model(library.graph(spec), spec.device, options), self._look_at, self._run_token
        )
        compiled = self._requests.compiled
        self.remark = f"streams share {'one compiled model' if self._requests.shared else 'no compiled model'}"
        self._cache = _cache_type(compiled)
        self._token_bytes = library.cached_token_bytes(spec, self._cache)
        self._kv_tokens = cached_tokens(spec, self._token_bytes)
        self._streams: dict[StreamId, _Stream] = {}
        self._idle: list[_Stream] = []

    @property
    def kv_tokens(self) -> int:
        return self._kv_tokens

    @property
    def kv_bytes(self) -> int:
        """An estimate: the runtime tells how it keeps keys and values, but not what it takes for them."""
        return int(self.kv_tokens * self._token_bytes)

    @property
    def cache(self) -> str:
        return self._cache

    def close(self) -> None:
        self._lengths.clear()
        self._streams.clear()
        self._idle.clear()
        del self._requests

    def _reserve(self, shares: Sequence[Share], release: Sequence[StreamId], rows: Sequence[Row]) -> None:
        lengths = lengths_after(shares, release, self._lengths)
        lengths.update({row.stream: row.first + row.count for row in rows})
        wanted = sum(lengths.values())
        if wanted > self.kv_tokens:
            raise KvFull(
                f"The step would make {counted(wanted, 'cached token')} and this stage was loaded for "
                f"{self.kv_tokens}; release a "
                "stream first."
            )
        for share in shares:
            self._begin(share.stream).take_over(self._streams[share.source], share.tokens)
        for stream in release:
            self._end(stream)
        for row in rows:
            if row.stream not in self._streams:
                self._begin(row.stream)

    def _look_at(self, compiled: ov.CompiledModel) -> bool:
        """Note whether attention is fused with its cache, and tell whether requests may share such a model."""
        self.fused = fused_layers(compiled) == self.spec.last - self.spec.first
        return self.fused or not self.spec.device.startswith("CPU")

    def _begin(self, stream: StreamId) -> _Stream:
        self._end(stream)
        begun = self._idle.pop() if self._idle else _Stream(self._requests.make(), fused=self.fused)
        self._streams[stream] = begun
        return begun

    def _end(self, stream: StreamId) -> None:
        held = self._streams.pop(stream, None)
        if held is not None:
            held.reset()
            self._idle.append(held)

    def _holders(self) -> Iterable[StreamId]:
        return list(self._streams)

    def _run(self, rows: Sequence[Row], tensor: npt.NDArray[Any]) -> Floats:
        outputs: list[Floats] = []
        start = 0
        for row in rows:
            outputs.append(self._run_row(row, tensor[start : start + row.count]))
            start += row.count
        return outputs[0] if len(outputs) == 1 else np.concatenate(outputs)

    def _run_row(self, row: Row, tokens: npt.NDArray[Any]) -> Floats:
        stream = self._streams[row.stream]
        stream.truncate(length_before(row, self._lengths))
        # The head needs one row to run on even when the chunk wants no logits.
        output = self._infer(stream.request, tokens, stream.append(row.count), row.first, max(row.wants, 1))
        return output[: row.wants] if self.shape.is_tail else output

    def _run_token(self, request: Any, token: int, position: int) -> Floats:
        shape = self.shape
        tokens = np.full(1, token) if shape.takes_ids else np.full((1, shape.hidden_size), 1 + token, np.float32)
        if not shape.takes_ids:
            tokens[0, token::2] = -1
        return self._infer(request, tokens, np.ones((1, position + 1), np.int64), position, 1)

    def _infer(
        self, request: Any, tokens: npt.NDArray[Any], mask: npt.NDArray[np.int64], first: int, wants: int
    ) -> Floats:
        """Run tokens [n] or [n,H] from position `first` on; returns hidden states [n,H] or the last `wants` logits."""
        count = len(tokens)
        feed = {
            self._source: np.ascontiguousarray(tokens)[None],
            "attention_mask": mask,
            "position_ids": np.arange(first, first + count)[None],
            "beam_idx": self._beam,
        }
        if self.shape.is_tail:
            feed[WANTED] = np.arange(count - wants, count)
        self._pass(lambda: request.infer(feed, share_inputs=True, share_outputs=True), count)
        output: Floats = request.get_output_tensor(0).data
        return output.reshape(-1, output.shape[-1])

    def _failed(self, rows: Sequence[Row]) -> None:
        """Nobody knows how far the states got: forget the streams, so that their next row is refused or starts anew."""
        for row in rows:
            self._lengths.pop(row.stream, None)
            self._streams.pop(row.stream, None)
