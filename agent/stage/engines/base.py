"""What every engine offers, and what all of them share: checked steps, stream lengths, the loaded model's facts.

An engine belongs to one thread. `step` is atomic as far as the caller can see: a step that is refused has changed
nothing, and one whose inference failed has made no row's stream longer.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

from agent.stage.checks import StageShape, check_step, lengths_after
from agent.stage.engines.options import compile_options
from agent.stage.errors import EngineFailed, KvFull, StageLoadError
from agent.stage.types import Row, Share, StageSpec, StreamId
from shard_export.library.errors import LibraryError, LibraryTooNew
from shard_export.library.graph import assemble
from shard_export.library.manifest import MANIFEST_NAME
from shard_export.library.minima import has_minima, quantizes_activations
from shard_export.library.store import load_manifest, sha256_of

Floats = npt.NDArray[np.float32]

ELEMENT_BYTES = {"u4": 0.5, "u8": 1, "i8": 1, "bf16": 2, "f16": 2, "f32": 4}


class Engine(abc.ABC):
    """One stage's computation and its cache of keys and values."""

    def __init__(self, spec: StageSpec, library: Library) -> None:
        """Assemble, compile and allocate. Takes seconds; raises StageLoadError or RuntimeError."""
        self.spec = spec
        self.library_digest = library.digest
        self.shape = library.shape(spec)
        self.fused = False
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
        array is a view that the next call overwrites. Raises BadStep or KvFull with nothing changed, or EngineFailed,
        when only the shares and releases are done.
        """
        lengths = lengths_after(shares, release, self._lengths)
        if rows:
            check_step(rows, tensor, self.shape, lengths)
        for row in rows:
            if row.first + row.count > self.spec.context_tokens:
                raise KvFull(
                    f"Stream {row.stream} would hold {row.first + row.count} tokens, more than the "
                    f"{self.spec.context_tokens} this stage was loaded for; end it or load a longer context."
                )
        self._reserve(shares, release, rows)
        self._lengths = lengths
        if not rows or tensor is None:
            return np.zeros((0, self.shape.vocab_size if self.shape.is_tail else self.shape.hidden_size), np.float32)
        try:
            output = self._run(rows, tensor)
        except RuntimeError as error:
            self._failed(rows)
            raise EngineFailed(f"Inference failed: {last_line(error)}; replay the streams of this step.") from error
        for row in rows:
            self._lengths[row.stream] = row.first + row.count
        return output

    def release(self, stream: StreamId) -> None:
        """Forget a stream and free its cache; unknown streams are fine."""
        self.step([], None, release=[stream])

    @abc.abstractmethod
    def close(self) -> None:
        """Free everything; the engine cannot be used afterwards."""

    @abc.abstractmethod
    def _reserve(self, shares: Sequence[Share], release: Sequence[StreamId], rows: Sequence[Row]) -> None:
        """Do the checked shares and releases and make room for the rows, or raise KvFull with nothing changed."""

    @abc.abstractmethod
    def _run(self, rows: Sequence[Row], tensor: npt.NDArray[Any]) -> Floats:
        """Compute a checked and reserved step; RuntimeError when the device fails."""

    @abc.abstractmethod
    def _failed(self, rows: Sequence[Row]) -> None:
        """Put the cache back into a known state after `_run` raised."""


class Library:
    """A library folder as an engine needs it: its manifest, digest and graph."""

    def __init__(self, folder: Path) -> None:
        """Read the manifest. Raises StageLoadError `damaged` or `mismatch`."""
        self.folder = folder
        try:
            self.manifest = load_manifest(folder)
            self.digest = sha256_of(folder / MANIFEST_NAME)
        except LibraryTooNew as error:
            raise StageLoadError("mismatch", str(error)) from error
        except LibraryError as error:
            raise StageLoadError("damaged", str(error)) from error
        except OSError as error:
            raise StageLoadError(
                "damaged", f"The manifest cannot be read ({error.strerror}); fetch it again."
            ) from error

    def shape(self, spec: StageSpec) -> StageShape:
        """Say what a stage of this library accepts."""
        manifest = self.manifest
        return StageShape(
            takes_ids=spec.first == 0,
            is_tail=spec.last == manifest.layer_count,
            hidden_size=manifest.hidden_size,
            vocab_size=manifest.vocab_size,
            context_tokens=spec.context_tokens,
        )

    def cached_token_bytes(self, spec: StageSpec, cache: str) -> float:
        """Estimate what one token takes in the caches of the range, with elements of that type."""
        attention = [unit.attention for unit in map(self.manifest.layer, range(spec.first, spec.last))]
        # Quantized rows carry their scale and zero point, in f32 each.
        element, row = ELEMENT_BYTES.get(cache, 4), 8 if cache in {"u8", "i8", "u4"} else 0
        return sum(a.kv_heads * ((a.k_head_size + a.v_head_size) * element + 2 * row) for a in attention if a)

    def graph(self, spec: StageSpec) -> ov.Model:
        """Assemble the stage's graph. Raises StageLoadError."""
        if not 0 <= spec.first < spec.last <= self.manifest.layer_count:
            raise StageLoadError(
                "mismatch",
                f"Layers {spec.first} to {spec.last} are not a range of a model with {self.manifest.layer_count} of "
                "them; plan again.",
            )
        is_tail = spec.last == self.manifest.layer_count
        core = ov.Core()
        try:
            split = has_minima(self.manifest, spec.first, spec.last) and quantizes_activations(
                core, spec.device, compile_options(spec, core)
            )
            return assemble(self.folder, self.manifest, spec.first, spec.last, wanted_rows=is_tail, split=split)
        except LibraryError as error:
            raise StageLoadError("damaged", str(error)) from error


def last_line(error: BaseException) -> str:
    """Return the informative end of a native error, without its source locations."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:200].rstrip(".")
