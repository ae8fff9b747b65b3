"""A library folder as an engine needs it: its manifest, its digest and the graphs of a stage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openvino as ov

from agent.stage.checks import StageShape
from agent.stage.engines.options import compile_options
from agent.stage.errors import StageLoadError
from agent.stage.types import CacheChoice, Numerics, StageSpec
from shard_export.library.errors import LibraryError, LibraryTooNew
from shard_export.library.graph import assemble
from shard_export.library.manifest import MANIFEST_NAME
from shard_export.library.minima import has_minima, quantizes_activations
from shard_export.library.packed_graph import assemble_packed
from shard_export.library.store import load_manifest, sha256_of

_ELEMENT_BYTES = {"u4": 0.5, "u8": 1, "i8": 1, "bf16": 2, "f16": 2, "f32": 4}


class Library:
    """A library folder as an engine needs it: its manifest, digest and graph."""

    def __init__(self, folder: Path) -> None:
        """Read the manifest. Raises StageLoadError `damaged` or `mismatch`."""
        self.folder = folder
        self._quantizing: dict[tuple[str, Numerics, CacheChoice], bool] = {}
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
        element, row = _ELEMENT_BYTES.get(cache, 4), 8 if cache in {"u8", "i8", "u4"} else 0
        return sum(a.kv_heads * ((a.k_head_size + a.v_head_size) * element + 2 * row) for a in attention if a)

    def graph(self, spec: StageSpec) -> ov.Model:
        """Assemble the stage's stateful graph. Raises StageLoadError."""
        with self._understood(spec):
            wanted_rows, split = self.shape(spec).is_tail, self._splits(spec)
            return assemble(self.folder, self.manifest, spec.first, spec.last, wanted_rows=wanted_rows, split=split)

    def packed_graph(self, spec: StageSpec, *, places: int, columns: int, cache_type: ov.Type) -> ov.Model:
        """Assemble the stage's static graph; logits for at most as many places as streams. Raises StageLoadError."""
        with self._understood(spec):
            return assemble_packed(
                self.folder,
                self.manifest,
                spec.first,
                spec.last,
                places=places,
                columns=columns,
                wanted=min(places, spec.streams),
                cache_type=cache_type,
                split=self._splits(spec),
            )

    def _splits(self, spec: StageSpec) -> bool:
        if not has_minima(self.manifest, spec.first, spec.last):
            return False
        # Tried once: a load assembles several graphs, those of its self-test too.
        key = (spec.device, spec.numerics, spec.cache)
        if key not in self._quantizing:
            core = ov.Core()
            self._quantizing[key] = quantizes_activations(core, spec.device, compile_options(spec, core))
        return self._quantizing[key]

    @contextmanager
    def _understood(self, spec: StageSpec) -> Iterator[None]:
        """Check the range, and turn the library's errors into the stage's."""
        layers = self.manifest.layer_count
        if not 0 <= spec.first < spec.last <= layers:
            raise StageLoadError(
                "mismatch",
                f"Layers {spec.first} to {spec.last} are not a range of a model with {layers} of them; plan again.",
            )
        try:
            yield
        except LibraryError as error:
            raise StageLoadError("damaged", str(error)) from error
