"""Many streams in one call of a static graph without state: what an NPU can run.

The cache is a set of columns in arrays of ours, which the graph takes and never keeps; `columns.py` says whose they
are and `places.py` what each token sees. A call has a fixed number of places, so a step is cut into calls: few places
for decoding, many for the chunks of a prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

from agent.stage.engines.base import Engine, Floats
from agent.stage.engines.columns import ColumnPool, ring_columns
from agent.stage.engines.library import Library
from agent.stage.engines.options import cached_tokens, check_free_memory, compile_options
from agent.stage.engines.places import Piece, fill_masks, split_rows
from agent.stage.errors import StageLoadError
from agent.stage.types import Row, Share, StageSpec, StreamId
from shard_export.library.graph import WANTED

CHUNK_PLACES = 32
"""Places of the graph that takes prompts."""

LARGEST = 1e4
"""No model has keys or values near this. Every stream's scores are computed against every column, and a mask hides only
what is far smaller than itself: one column of nonsense would show through to all."""

Cache = npt.NDArray[Any]


class _Graph:
    """A compiled graph with `places` places, its inputs bound to arrays that are filled in place."""

    def __init__(self, compiled: ov.CompiledModel, places: int, caches: dict[str, Cache], source: str) -> None:
        self.places = places
        self.request = compiled.create_infer_request()
        self.inputs: dict[str, npt.NDArray[Any]] = {}
        for index, port in enumerate(compiled.inputs):
            name = port.get_any_name()
            array = caches[name] if name in caches else np.zeros(list(port.shape), port.get_element_type().to_dtype())
            self.inputs[name] = array
            self.request.set_input_tensor(index, ov.Tensor(array, shared_memory=True))
        self.masks = {int(name[5:]): array[0, 0] for name, array in self.inputs.items() if name.startswith("mask.")}
        self.source = self.inputs[source]
        outputs = {name: port for port in compiled.outputs for name in port.get_names()}
        # Each new column with the cache it belongs to; the graph's first output is what the step asks for.
        self.new = [
            (self.request.get_tensor(outputs[name.replace("past", "new")]), cache) for name, cache in caches.items()
        ]

    def run(self, pieces: Sequence[Piece], tensor: npt.NDArray[Any], pool: ColumnPool) -> Floats:
        """Compute the pieces and keep their columns; returns hidden states [N,H] or logits [W,V]."""
        fill_masks(self.masks, pieces, pool)
        tokens = sum(piece.count for piece in pieces)
        self.source[0, :tokens] = tensor[pieces[0].at : pieces[0].at + tokens]
        positions = [at for piece in pieces for at in range(piece.first, piece.first + piece.count)]
        if "position_ids" in self.inputs:
            self.inputs["position_ids"][0, :tokens] = positions
        if WANTED in self.inputs:
            ends = np.cumsum([piece.count for piece in pieces])
            wanted = [at for end, piece in zip(ends, pieces, strict=True) for at in range(end - piece.wants, end)]
            self.inputs[WANTED][: len(wanted)] = wanted
        self.request.infer({}, share_outputs=True)
        columns = np.concatenate([pool.extend(piece.stream, piece.count) for piece in pieces])
        fresh = [(new.data[0, :, :tokens], cache) for new, cache in self.new]
        if not all(np.abs(values).max() <= LARGEST for values, _ in fresh):
            raise RuntimeError("keys or values are out of range")
        for values, cache in fresh:
            cache[0, :, columns] = values.transpose(1, 0, 2)
        output: Floats = self.request.get_output_tensor(0).data[0]
        return output


class PackedEngine(Engine):
    """Any mix of rows on the places of static graphs; the cache is bound to all of them."""

    def __init__(self, spec: StageSpec, library: Library) -> None:
        super().__init__(spec, library)
        core = ov.Core()
        options = compile_options(spec, core)
        kept = _kept_type(spec)
        self._cache_type = str(kept.get_type_name())
        widths = sorted({spec.streams, max(spec.streams, CHUNK_PLACES)})
        self._columns = _count_columns(spec, widths[-1], library.cached_token_bytes(spec, self._cache_type))
        self._pool = ColumnPool(
            self._columns, spec.context_tokens, window_tokens=_window(spec, widths[-1]), call_tokens=widths[-1]
        )
        self._caches: dict[str, Cache] = {}
        self._graphs: list[_Graph] = []
        for places in widths:
            model = library.packed_graph(spec, places=places, columns=self._columns, cache_type=kept)
            compiled = core.compile_model(model, spec.device, options)
            del model
            self._caches = self._caches or _allocate(compiled)
            source = "input_ids" if self.shape.takes_ids else "hidden_states"
            self._graphs.append(_Graph(compiled, places, self._caches, source))

    @property
    def kv_tokens(self) -> int:
        return self._columns

    @property
    def kv_bytes(self) -> int:
        return sum(cache.nbytes for cache in self._caches.values())

    @property
    def cache(self) -> str:
        return self._cache_type

    def close(self) -> None:
        self._lengths.clear()
        self._graphs.clear()
        self._caches.clear()

    def _reserve(self, shares: Sequence[Share], release: Sequence[StreamId], rows: Sequence[Row]) -> None:
        self._pool.apply(shares, release, {row.stream: range(row.first, row.first + row.count) for row in rows})

    def _holders(self) -> Iterable[StreamId]:
        return self._pool.holders

    def _run(self, rows: Sequence[Row], tensor: npt.NDArray[Any]) -> Floats:
        outputs = []
        for pieces in split_rows(rows, self._graphs[-1].places, self.spec.streams):
            tokens = sum(piece.count for piece in pieces)
            graph = next(graph for graph in self._graphs if graph.places >= tokens)
            output = self._pass(partial(graph.run, pieces, tensor, self._pool), tokens)
            outputs.append(output[: sum(piece.wants for piece in pieces) if self.shape.is_tail else tokens].copy())
        return outputs[0] if len(outputs) == 1 else np.concatenate(outputs)

    def _failed(self, rows: Sequence[Row]) -> None:
        """Nothing to undo: the pool holds more positions than the lengths say, and the next try takes it back."""


def _kept_type(spec: StageSpec) -> ov.Type:
    if spec.numerics == "exact":
        return ov.Type.f32
    kinds = {"auto": ov.Type.f16, "half": ov.Type.f16, "f32": ov.Type.f32}
    if spec.cache not in kinds:
        raise StageLoadError("mismatch", f"The packed engine keeps no {spec.cache} cache; load it with half or f32.")
    return kinds[spec.cache]


def _window(spec: StageSpec, call_tokens: int) -> int:
    """Return the window of the rings; 0 where no stream can grow beyond it. Raises StageLoadError."""
    if not spec.window_tokens or spec.window_tokens >= spec.context_tokens:
        return 0
    if spec.window_tokens < 2 * call_tokens:
        raise StageLoadError(
            "mismatch", f"A window of {spec.window_tokens} tokens is too short; give it at least {2 * call_tokens}."
        )
    return spec.window_tokens


def _count_columns(spec: StageSpec, call_tokens: int, column_bytes: float) -> int:
    """Size the cache by the memory given, or for all streams at full length or as rings. Raises StageLoadError."""
    columns = cached_tokens(spec, column_bytes)
    window = _window(spec, call_tokens)
    if window and not spec.kv_bytes:
        columns = min(columns, spec.streams * ring_columns(window, call_tokens))
    check_free_memory(int(columns * column_bytes))
    return columns


def _allocate(compiled: ov.CompiledModel) -> dict[str, Cache]:
    """Make the cache arrays by the name of their input; zeros, because a hidden column that is no number shows."""
    return {
        port.get_any_name(): np.zeros(list(port.shape), port.get_element_type().to_dtype())
        for port in compiled.inputs
        if port.get_any_name().startswith("past_")
    }
