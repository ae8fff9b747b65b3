"""Many streams in one infer call: the stage through OpenVINO's PagedAttention, with block tables of our own.

The cache is a pool of blocks of 32 tokens (`blocks.py`). A stream has a list of blocks that grows on demand; going
back after rejected drafts only sets its length, and streams that begin alike share blocks until one of them writes.
The tokens of all rows lie on one flat axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
import openvino._offline_transformations as transformations

from agent.stage.engines.base import Engine, Floats, last_line
from agent.stage.engines.blocks import BlockPool
from agent.stage.engines.library import Library
from agent.stage.engines.options import cached_tokens, check_free_memory, compile_options
from agent.stage.errors import StageLoadError
from agent.stage.types import Row, Share, StageSpec, StreamId
from shard_export.library.counts import counted
from shard_export.library.graph import WANTED, fused_layers
from shard_export.library.manifest import Manifest

SLIDING_WINDOW_PORT = 10
"""Input of a PagedAttention node: how many tokens stay visible, itself included; 0 shows all."""


class _Input:
    """One small input that changes its values at every step and its length seldom: written in place when it can."""

    def __init__(self, request: Any, index: int, dtype: type[np.generic]) -> None:
        self._request, self._index = request, index
        # No input has rank 3, so the first `put` always binds.
        self._array: npt.NDArray[Any] = np.zeros((0, 0, 0), dtype)

    def put(self, values: Any) -> None:
        shape = np.shape(values)
        if shape != self._array.shape:
            self._array = np.empty(shape, self._array.dtype)
            self._request.set_input_tensor(self._index, ov.Tensor(self._array, shared_memory=True))
        self._array[...] = values


class PagedEngine(Engine):
    """Continuous batching: any mix of prefill, decode and verify rows in one call."""

    def __init__(self, spec: StageSpec, library: Library) -> None:
        """Assemble, transform, compile and allocate the cache. Raises StageLoadError; takes seconds."""
        super().__init__(spec, library)
        model = _paged_graph(library.graph(spec), library.manifest, spec)
        core = ov.Core()
        try:
            compiled = core.compile_model(model, spec.device, compile_options(spec, core))
        finally:
            del model
        self.fused = fused_layers(compiled) == spec.last - spec.first
        self._request = compiled.create_infer_request()
        self._caches = self._allocate(compiled, spec)
        names = {name: index for index, port in enumerate(compiled.inputs) for name in port.get_names()}
        i32, i64 = np.int32, np.int64
        self._past = _Input(self._request, names["past_lens"], i32)
        self._begins = _Input(self._request, names["subsequence_begins"], i32)
        self._blocks_of_rows = _Input(self._request, names["block_indices"], i32)
        self._block_begins = _Input(self._request, names["block_indices_begins"], i32)
        self._longest = _Input(self._request, names["max_context_len"], i32)
        # Layers without rotary embedding leave no use for positions, and the port is optimised away.
        self._positions = _Input(self._request, names["position_ids"], i64) if "position_ids" in names else None
        self._wanted = _Input(self._request, names[WANTED], i64) if self.shape.is_tail else None
        if self.shape.takes_ids:
            self._source = _Input(self._request, names["input_ids"], i64)
        else:
            self._source = _Input(self._request, names["inputs_embeds"], np.float32)

    @property
    def kv_tokens(self) -> int:
        return int(self._blocks * self._pool.block_tokens)

    @property
    def kv_bytes(self) -> int:
        return sum(int(cache.byte_size) for cache in self._caches)

    @property
    def cache(self) -> str:
        return str(self._caches[0].element_type.get_type_name())

    def close(self) -> None:
        self._lengths.clear()
        self._caches.clear()
        del self._request

    def _allocate(self, compiled: ov.CompiledModel, spec: StageSpec) -> list[ov.Tensor]:
        """Make the cache tensors; the kernel backs them with memory as blocks are first written."""
        ports = [port for port in compiled.inputs if "_cache." in port.get_any_name()]
        shapes = [[dim.get_length() for dim in list(port.get_partial_shape())[1:]] for port in ports]
        # A quantized key block also holds scales on this axis; the value cache keeps them inside its width.
        block_tokens = min(shape[1] for shape in shapes)
        element_bytes = [port.get_element_type().size for port in ports]
        block_bytes = sum(int(np.prod(shape)) * size for shape, size in zip(shapes, element_bytes, strict=True))
        if spec.kv_bytes:
            self._blocks = cached_tokens(spec, block_bytes / block_tokens) // block_tokens
        else:
            self._blocks = spec.streams * -(-spec.context_tokens // block_tokens)
        check_free_memory(self._blocks * block_bytes)
        self._pool = BlockPool(self._blocks, block_tokens)
        caches = []
        for port, shape in zip(ports, shapes, strict=True):
            caches.append(ov.Tensor(port.get_element_type(), ov.Shape([self._blocks, *shape])))
            self._request.set_tensor(port.get_any_name(), caches[-1])
        return caches

    def _reserve(self, shares: Sequence[Share], release: Sequence[StreamId], rows: Sequence[Row]) -> None:
        copies = self._pool.apply(
            shares, release, {row.stream: range(row.first, row.first + row.count) for row in rows}
        )
        for source, target in copies:
            for cache in self._caches:
                _block_of(cache, source).copy_to(_block_of(cache, target))

    def _holders(self) -> Iterable[StreamId]:
        return self._pool.holders

    def _run(self, rows: Sequence[Row], tensor: npt.NDArray[Any]) -> Floats:
        ends = list(itertools.accumulate(row.count for row in rows))
        tables = [self._pool.blocks(row.stream) for row in rows]
        self._source.put(tensor)
        if self._positions is not None:
            self._positions.put([at for row in rows for at in range(row.first, row.first + row.count)])
        self._past.put([row.first for row in rows])
        self._begins.put([0, *ends])
        self._blocks_of_rows.put([block for table in tables for block in table])
        self._block_begins.put([0, *itertools.accumulate(map(len, tables))])
        self._longest.put(max(row.first + row.count for row in rows))
        if self._wanted is None:
            return self._infer(len(tensor)).reshape(len(tensor), -1)
        wanted = [at for end, row in zip(ends, rows, strict=True) for at in range(end - row.wants, end)]
        # A prefill chunk wants no logits at all; the head still needs one row to run on.
        self._wanted.put(wanted or [0])
        return self._infer(len(tensor)).reshape(-1, self.shape.vocab_size)[: len(wanted)]

    def _infer(self, tokens: int) -> Floats:
        self._pass(lambda: self._request.infer({}, share_outputs=True), tokens)
        output: Floats = self._request.get_output_tensor(0).data
        return output

    def _failed(self, rows: Sequence[Row]) -> None:
        """Nothing to undo: what the step wrote lies beyond the lengths and is overwritten by the next try."""


def _block_of(cache: ov.Tensor, block: int) -> ov.Tensor:
    """A view of one block: whatever the cache's element type, scales included."""
    shape = list(cache.shape)
    begin = ov.Coordinate([block, *[0] * (len(shape) - 1)])
    return ov.Tensor(cache, begin, ov.Coordinate([block + 1, *shape[1:]]))


def _paged_graph(model: ov.Model, manifest: Manifest, spec: StageSpec) -> ov.Model:
    for parameter in model.get_parameters():
        if parameter.get_friendly_name() == "hidden_states":
            # The transformation knows its second kind of entry only by this name.
            parameter.output(0).set_names({"inputs_embeds"})
            parameter.set_friendly_name("inputs_embeds")
    try:
        transformations.paged_attention_transformation(model)
    except RuntimeError as error:
        raise StageLoadError(
            "load",
            f"PagedAttention does not fit the attention of {manifest.family} models ({last_line(error)}); load this "
            "range with the stateful engine.",
        ) from error
    attention = [node for node in model.get_ordered_ops() if node.get_type_name() == "PagedAttentionExtension"]
    if len(attention) != spec.last - spec.first:
        raise StageLoadError(
            "load",
            f"PagedAttention took {len(attention)} of {counted(spec.last - spec.first, 'layer')}; load this "
            "range with the "
            "stateful engine.",
        )
    # Layers are a chain, so their topological order is their index. The graph's own masks are gone by now.
    for index, node in enumerate(attention, start=spec.first):
        unit = manifest.layer(index)
        if unit.attention is not None and unit.attention.kind == "sliding":
            window = ov.opset13.constant(np.int32(unit.attention.window_tokens))
            node.input(SLIDING_WINDOW_PORT).replace_source_output(window.output(0))
    model.validate_nodes_and_infer_types()
    return model
