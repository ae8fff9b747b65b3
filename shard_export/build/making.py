"""Making the units of a library one after the other: trace, gate, compress, write, gate again, let go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from shard_export.build.exact import cache_shapes
from shard_export.build.template import LayerTemplate, layer_key, make_template
from shard_export.build.trace import LayerCall, trace_embed, trace_head, trace_layer, trace_rope
from shard_export.build.units import write_unit
from shard_export.library.manifest import Attention, EndToEnd, Parity, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import openvino as ov
    import torch

    from shard_export.build.parity import Chains, Gate
    from shard_export.build.recipes import Recipe
    from shard_export.build.skeleton import End, Skeleton


class UnitMaker:
    """Writes units into the folder `library`; what is loaded for one is gone before the next."""

    def __init__(self, skeleton: Skeleton, recipe: Recipe, gate: Gate, library: Path) -> None:
        self._skeleton, self._recipe, self._gate, self._library = skeleton, recipe, gate, library
        self._templates: dict[object, LayerTemplate | None] = {}

    def embed(self) -> tuple[Unit, Chains]:
        """Make the embedding; the chains start behind it."""
        self._skeleton.fill_end("embed")
        plain = trace_embed(self._skeleton)
        behind = self._recipe.first_inputs()
        written: list[Unit] = []
        parity, chains = self._gate.embed(plain, self._end_store(plain, "embed", written))
        return msgspec.structs.replace(written[0], parity=parity), chains._replace(calibration=behind)

    def rope(self, rope: int) -> Unit:
        """Make the rotary tables of one kind."""
        name = self._skeleton.rope_name(rope)
        stored, unit = write_unit(
            trace_rope(self._skeleton, self._skeleton.ropes[rope]), self._library, name, compressed=False
        )
        error = self._gate.rope(stored, rope)
        return msgspec.structs.replace(unit, name=name, kind="rope", parity=Parity(error, error))

    def layer(self, index: int, chains: Chains, finished: Sequence[Unit]) -> tuple[Unit, Chains]:
        """Make one layer and take the chains through it; `finished` are the units before it."""
        kind = self._skeleton.kinds[index]
        call = LayerCall(self._skeleton.layer(index))
        self._prepare(call.layer, call, kind[0])
        self._skeleton.fill_layer(index)
        plain = self._trace(call.layer, call, kind[0])
        attention, name = self._attention(plain, *kind), f"layer-{index:03d}"
        seen = self._recipe.look_at(call, chains.calibration, kind)
        written: list[Unit] = []

        def store() -> ov.Model:
            compress = self._recipe.for_layer(index, seen, finished)
            self._skeleton.drop_layer(index)
            return self._write(plain, name, "layer", compress, written)

        parity, chains = self._gate.layer(name, call, plain, store, chains=chains, kind=kind)
        unit = msgspec.structs.replace(written[0], index=index, attention=attention, parity=parity)
        return unit, chains._replace(calibration=seen.behind)

    def head(self, chains: Chains) -> tuple[Unit, EndToEnd]:
        """Make the head and judge the logits at the end of the chains."""
        self._skeleton.fill_end("head")
        plain = trace_head(self._skeleton)
        written: list[Unit] = []
        parity, end_to_end = self._gate.head(plain, self._end_store(plain, "head", written), chains)
        return msgspec.structs.replace(written[0], parity=parity), end_to_end

    def _prepare(self, layer: torch.nn.Module, call: LayerCall, rope: int) -> None:
        """Trace a layer that is not filled yet, once for all of its shape: markers and weights need room each."""
        key = layer_key(layer), rope
        if key not in self._templates:
            self._templates[key] = make_template(layer, lambda: self._traced(call, rope))

    def _trace(self, layer: torch.nn.Module, call: LayerCall, rope: int) -> ov.Model:
        template = self._templates[layer_key(layer), rope]
        return template.instantiate(layer.state_dict()) if template is not None else self._traced(call, rope)

    def _traced(self, call: LayerCall, rope: int) -> ov.Model:
        return trace_layer(call, self._skeleton.hidden_size, self._gate.rotary_size(rope))

    def _attention(self, plain: ov.Model, rope: int, window: int) -> Attention:
        (k_heads, k_size), (_, v_size) = cache_shapes(plain)
        return Attention(
            kind="sliding" if window else "full",
            kv_heads=k_heads,
            k_head_size=k_size,
            v_head_size=v_size,
            rope=self._skeleton.rope_name(rope),
            window_tokens=window,
        )

    def _end_store(self, plain: ov.Model, end: End, written: list[Unit]) -> Callable[[], ov.Model]:
        def store() -> ov.Model:
            compress = self._recipe.for_end(end)
            self._skeleton.drop_end(end)
            return self._write(plain, end, end, compress, written)

        return store

    def _write(
        self,
        model: ov.Model,
        name: str,
        kind: Literal["layer", "embed", "head"],
        compress: Callable[[ov.Model], None],
        written: list[Unit],
    ) -> ov.Model:
        """Compress a unit in place, write it and return what was read back; `written` gets its record."""
        compress(model)
        stored, unit = write_unit(model, self._library, name.removeprefix("layer-"), compressed=True)
        written.append(msgspec.structs.replace(unit, name=name, kind=kind))
        return stored
