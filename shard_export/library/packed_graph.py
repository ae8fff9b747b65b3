"""Units of a layer library spliced into a static graph without state: what an NPU compiles.

Many streams lie side by side on one token axis of N places, over one shared set of C cached columns; masks say which
token sees which column. The caller keeps the columns and writes the new ones into them::

    input_ids [1,N] i64 (first stage) or hidden_states [1,N,H] f32, position_ids [1,N] i64,
    mask.<w> [1,1,N,C+N] f32, additive, for every attention window w of the range (0: full attention),
    past_k.<i> [1,Hkv,C,Dk] and past_v.<i> [1,Hkv,C,Dv] of each layer, at a last stage also wanted [W] i64
    ->  logits [1,W,V] (last stage) or hidden_out [1,N,H], new_k.<i> [1,Hkv,N,Dk] and new_v.<i> [1,Hkv,N,Dv]

The keys of a mask are the C cached columns, then the N new ones. A place without a token must see at least its own
column, or the softmax of its row is not a number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openvino as ov
from openvino import opset13 as op

from shard_export.library.counts import counted
from shard_export.library.graph import WANTED, Assembly, Chain, i64, parameter
from shard_export.library.manifest import Manifest


def assemble_packed(
    folder: Path,
    manifest: Manifest,
    first: int,
    last: int,
    *,
    places: int,
    columns: int,
    wanted: int,
    cache_type: ov.Type = ov.Type.f32,
    split: bool = False,
) -> ov.Model:
    """Build the static graph of layers `first <= i < last` for N = `places`, C = `columns` and W = `wanted`.

    Cached columns enter and leave as `cache_type` (f32 or f16). Units and errors as in `graph.assemble`.
    """
    if not 0 <= first < last <= manifest.layer_count:
        raise ValueError(
            f"Layers {first} to {last} are not a range of a model with {counted(manifest.layer_count, 'layer')}."
        )
    assembly = _PackedAssembly(folder, manifest, split=split)
    chain = assembly.chain(first, last, wanted_rows=last == manifest.layer_count)
    model = assembly.packed(chain, places, columns, cache_type)
    model.reshape(_static_shapes(model, places=places, columns=columns, wanted=wanted))
    return model


class _PackedAssembly(Assembly):
    """Masks come from outside, and new columns go out."""

    def mask_for(self, window_tokens: int) -> Any:
        if window_tokens not in self._masks:
            self._masks[window_tokens] = parameter(mask_name(window_tokens), [-1, 1, -1, -1], ov.Type.f32)
        return self._masks[window_tokens].output(0)

    def packed(self, chain: Chain, places: int, columns: int, cache_type: ov.Type) -> ov.Model:
        results = [chain.result]
        for past, present in chain.states.items():
            # Only the new columns: handing out the old ones again would copy the whole cache at every call.
            new = op.slice(present, i64([columns]), i64([columns + places]), i64([1]), i64([2]))
            results.append(op.result(op.convert(new, cache_type) if cache_type != ov.Type.f32 else new))
            results[-1].output(0).set_names({past.replace("past", "new")})
        parameters = [*chain.parameters, *self._masks.values()]
        if cache_type != ov.Type.f32:
            parameters = [_typed(node, cache_type) if node.get_friendly_name() in chain.states else node
                          for node in parameters]  # fmt: skip
        return self.finished(ov.Model(results, parameters, "packed"))


def mask_name(window_tokens: int) -> str:
    """Name the mask input of the layers with that window."""
    return f"mask.{window_tokens}"


def _typed(past: Any, cache_type: ov.Type) -> Any:
    """Replace a cache input by one of another type, converted where it is read."""
    readers = list(past.output(0).get_target_inputs())
    typed = parameter(past.get_friendly_name(), past.get_partial_shape(), cache_type)
    past.output(0).set_names(set())
    converted = op.convert(typed, ov.Type.f32)
    for reader in readers:
        reader.replace_source_output(converted.output(0))
    return typed


def _static_shapes(model: ov.Model, *, places: int, columns: int, wanted: int) -> dict[str, list[int]]:
    shapes = {}
    for port in model.inputs:
        name, shape = port.get_any_name(), port.get_partial_shape()
        if name == WANTED:
            shapes[name] = [wanted]
        elif name.startswith("mask."):
            shapes[name] = [1, 1, places, columns + places]
        elif name.startswith("past_"):
            shapes[name] = [1, shape[1].get_length(), columns, shape[3].get_length()]
        else:
            shapes[name] = [1, places, *(dimension.get_length() for dimension in list(shape)[2:])]
    return shapes
