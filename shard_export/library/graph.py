"""Units of a layer library spliced into one stateful stage graph.

The graph has the interface of a monolithic OpenVINO language model::

    input_ids [B,n] i64 (first stage) or hidden_states [B,n,H] f32, attention_mask [B,T] i64, position_ids [B,n] i64,
    beam_idx [B] i32   ->   logits [B,n,V] (last stage) or hidden_out [B,n,H]

with two states per layer. Three properties decide whether the runtime fuses attention with its cache (two to three
times faster) and each was found by measurement: no Result may be left on a unit's outputs, not even one held by a
Python variable; every consumer of a state sits behind one `beam_idx` Gather; each ReadValue has an initial value of
zero length. `fused_layers` reads from a compiled model whether it worked.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as op
from openvino._offline_transformations import apply_make_stateful_transformation

from shard_export.library.counts import counted
from shard_export.library.errors import LibraryDamaged, LibraryIncomplete
from shard_export.library.manifest import Attention, Manifest, Unit
from shard_export.library.minima import split_minima

WANTED = "wanted"
"""Optional input of a last stage: flat indices i64 [W] of the tokens the head runs for; logits are then [1,W,V]."""

MASKED = np.float32(-65504)
"""Added to the score of a key that must not be seen; finite, so that a fully masked row is no NaN."""

Ports = dict[str, Any]


class UnitMissing(LibraryIncomplete):
    """The manifest or the folder lacks a unit that the stage needs."""


class UnitDamaged(LibraryDamaged):
    """A unit cannot be read, or its ports are not those the manifest promises."""


def assemble(
    folder: Path, manifest: Manifest, first: int, last: int, *, wanted_rows: bool = False, split: bool = False
) -> ov.Model:
    """Build the stateful graph of layers `first <= i < last`, with embed and head where the range reaches the ends.

    With `wanted_rows` a last stage gets the input `wanted` and computes logits of those tokens only. With `split`
    fractional zero points become integer ones and a correction (`minima.split_minima`). The returned
    model keeps its units alive through its attribute `units`. Raises UnitMissing or UnitDamaged; ValueError for a
    range outside the model. Blocking (0.3 s for 30 layers); call it off the event loop.
    """
    if not 0 <= first < last <= manifest.layer_count:
        raise ValueError(
            f"Layers {first} to {last} are not a range of a model with {counted(manifest.layer_count, 'layer')}."
        )
    assembly = Assembly(folder, manifest, split=split)
    chain = assembly.chain(first, last, wanted_rows=wanted_rows)
    return assembly.stateful(chain)


def fused_layers(compiled: ov.CompiledModel) -> int:
    """Count attention nodes that the runtime fused with their cache; 0 when any attention was left in pieces.

    A stage is fused when the count equals its layers. A Softmax over rank 4 is attention in pieces (the router of a
    mixture of experts has a lower rank).
    """
    count = 0
    for node in compiled.get_runtime_model().get_ops():
        kind = node.get_rt_info()["layerType"].astype(str)
        if kind in {"ScaledDotProductAttention", "PagedAttentionExtension", "PagedAttention"}:
            count += 1
        elif kind == "Softmax" and node.get_output_partial_shape(0).rank.get_length() >= 4:
            return 0
    return count


def mask_model(window_tokens: int) -> ov.Model:
    """Return the mask a stage builds for layers with that window (0: none), alone, so that a build can check it."""
    mask, positions = (
        parameter("attention_mask", [-1, -1], ov.Type.i64),
        parameter("position_ids", [-1, -1], ov.Type.i64),
    )
    return ov.Model([op.result(_mask_4d(mask, positions, window_tokens))], [mask, positions], "mask")


@dataclasses.dataclass
class Chain:
    """Spliced units that keep nothing yet: each layer's `past_*` is a parameter, each `present_*` an output.

    `states` maps the friendly name of a past parameter to the output that continues it, `sizes` to its shape
    [Hkv,0,D] when it is empty.
    """

    result: Any
    parameters: list[Any]
    states: dict[str, Any] = dataclasses.field(default_factory=dict)
    sizes: dict[str, list[int]] = dataclasses.field(default_factory=dict)


class Assembly:
    """One run of `assemble`: the unit models read so far and the parameters made so far."""

    def __init__(self, folder: Path, manifest: Manifest, *, split: bool) -> None:
        self._folder, self._manifest, self._split = folder, manifest, split
        self._core = ov.Core()
        self._units: list[ov.Model] = []
        self._ropes: dict[str, Ports] = {}
        self._masks: dict[int, Any] = {}
        self._mask = parameter("attention_mask", [-1, -1], ov.Type.i64)
        self._positions = parameter("position_ids", [-1, -1], ov.Type.i64)
        self._beam = parameter("beam_idx", [-1], ov.Type.i32)

    def chain(self, first: int, last: int, *, wanted_rows: bool) -> Chain:
        """Splice the layers, and embed and head where the range reaches the ends."""
        is_tail = last == self._manifest.layer_count
        source, hidden = self._entry(embeds=first == 0)
        chain = Chain(None, [source, self._positions])
        for index in range(first, last):
            hidden = self._layer(index, hidden, chain)
        if is_tail:
            hidden = self._head(hidden, chain.parameters, wanted_rows=wanted_rows)
        chain.result = op.result(hidden)
        chain.result.output(0).set_names({"logits" if is_tail else "hidden_out"})
        return chain

    def stateful(self, chain: Chain) -> ov.Model:
        """Let the runtime keep what the chain takes and gives."""
        chain.parameters[1:2] = [self._mask, self._positions, self._beam]
        model = _stateful(chain, self._beam)
        _set_initial_values(model, chain.parameters[0], chain.sizes)
        return self.finished(model)

    def finished(self, model: ov.Model) -> ov.Model:
        """Check the shapes of the whole and keep what its constants lie in."""
        model.validate_nodes_and_infer_types()
        # The spliced nodes read their constants from the memory of the unit models.
        model.units = self._units
        return model

    def _entry(self, *, embeds: bool) -> tuple[Any, Any]:
        hidden_size = self._manifest.hidden_size
        if not embeds:
            source = parameter("hidden_states", [-1, -1, hidden_size], ov.Type.f32)
            return source, source.output(0)
        source = parameter("input_ids", [-1, -1], ov.Type.i64)
        unit, model = self._read("embed")
        outputs = _splice(unit, model, {"input_ids": source.output(0)}, {"hidden": [-1, -1, hidden_size]})
        return source, outputs["hidden"]

    def _layer(self, index: int, hidden: Any, chain: Chain) -> Any:
        try:
            unit = self._manifest.layer(index)
        except KeyError:
            raise UnitMissing(f"The manifest has no layer {index}; build the library again.") from None
        attention = unit.attention
        if attention is None:
            raise UnitDamaged(f"The manifest says nothing about the attention of {unit.name}; build the library again.")
        window = attention.window_tokens if attention.kind == "sliding" else 0
        ports = {"hidden": hidden, "mask": self.mask_for(window), **self._rope_for(attention)}
        for letter, head_size in (("k", attention.k_head_size), ("v", attention.v_head_size)):
            past = parameter(f"past_{letter}.{index}", [-1, attention.kv_heads, -1, head_size], ov.Type.f32)
            chain.parameters.append(past)
            ports[f"past_{letter}"] = past.output(0)
            chain.sizes[past.get_friendly_name()] = [attention.kv_heads, 0, head_size]
        shapes = {
            "out": [-1, -1, self._manifest.hidden_size],
            "present_k": [-1, attention.kv_heads, -1, attention.k_head_size],
            "present_v": [-1, attention.kv_heads, -1, attention.v_head_size],
        }
        outputs = _splice(*self._read(unit.name), ports, shapes)
        for letter in "kv":
            chain.states[f"past_{letter}.{index}"] = outputs[f"present_{letter}"]
        return outputs["out"]

    def _head(self, hidden: Any, parameters: list[Any], *, wanted_rows: bool) -> Any:
        hidden_size = self._manifest.hidden_size
        if wanted_rows:
            wanted = parameter(WANTED, [-1], ov.Type.i64)
            parameters.append(wanted)
            # Flattened first: the same Gather then serves [1,n,H] here and the token axis of the paged graph.
            flat = op.reshape(hidden, i64([-1, hidden_size]), special_zero=False)
            hidden = op.unsqueeze(op.gather(flat, wanted, i64(0)), i64([0])).output(0)
        unit, model = self._read("head")
        shapes = {"logits": [-1, -1, self._manifest.vocab_size]}
        return _splice(unit, model, {"hidden": hidden}, shapes)["logits"]

    def mask_for(self, window_tokens: int) -> Any:
        """Return the additive mask [B,1,n,T] of the layers with that window (0: none)."""
        if window_tokens not in self._masks:
            self._masks[window_tokens] = _mask_4d(self._mask, self._positions, window_tokens).output(0)
        return self._masks[window_tokens]

    def _rope_for(self, attention: Attention) -> Ports:
        name = attention.rope
        if not name:
            return {}
        if name not in self._ropes:
            unit, model = self._read(name)
            shapes: dict[str, list[int]] = {"cos": [-1, -1, -1], "sin": [-1, -1, -1]}
            self._ropes[name] = _splice(unit, model, {"position_ids": self._positions.output(0)}, shapes)
        return self._ropes[name]

    def _read(self, name: str) -> tuple[Unit, ov.Model]:
        try:
            unit = self._manifest.unit(name)
        except KeyError:
            raise UnitMissing(f"The manifest has no unit {name}; build the library again.") from None
        for record in (unit.xml, unit.bin):
            path = self._folder / record.path
            if not path.is_file():
                raise UnitMissing(f"{record.path} is missing from the library; fetch or build it again.")
            if path.stat().st_size != record.size_bytes:
                raise UnitDamaged(f"{record.path} does not have its {record.size_bytes} bytes; fetch it again.")
        try:
            model = self._core.read_model(self._folder / unit.xml.path)
        except RuntimeError as error:
            raise UnitDamaged(f"{unit.xml.path} cannot be read ({_brief(error)}); fetch or build it again.") from error
        if self._split:
            split_minima(model)
        self._units.append(model)
        return unit, model


def _splice(unit: Unit, model: ov.Model, ports: Ports, shapes: dict[str, list[int]]) -> Ports:
    """Wire outputs into a unit's parameters and hand back its results by name, the Result nodes removed."""
    outputs: Ports = {}
    for result in model.get_results():
        for name in result.input_value(0).get_names() | result.output(0).get_names():
            outputs[name] = result.input_value(0)
    for name, shape in shapes.items():
        if name not in outputs:
            raise UnitDamaged(f"{unit.xml.path} has no output {name}; build the library again.")
        _check_shape(unit, name, outputs[name].get_partial_shape(), ov.PartialShape(shape))
    for result in list(model.get_results()):
        model.remove_result(result)
    for entry in model.get_parameters():
        names = entry.output(0).get_names() | {entry.get_friendly_name()}
        name = next((name for name in names if name in ports), None)
        if name is None:
            raise UnitDamaged(f"{unit.xml.path} has an input {sorted(names)} that nothing feeds; build it again.")
        _check_shape(unit, name, entry.get_partial_shape(), ports[name].get_partial_shape())
        for target in list(entry.output(0).get_target_inputs()):
            target.replace_source_output(ports[name])
    return {name: outputs[name] for name in shapes}


def _check_shape(unit: Unit, name: str, found: ov.PartialShape, expected: ov.PartialShape) -> None:
    if not found.compatible(expected):
        raise UnitDamaged(f"{unit.xml.path}: port {name} is {found}, expected {expected}; build the library again.")


def _mask_4d(attention_mask: Any, positions: Any, window_tokens: int) -> Any:
    """Additive mask [B,1,n,T]: causal by column, masked columns hidden, optionally only the last `window_tokens`.

    Columns may have holes (rejected drafts), so the window is measured between logical positions, not columns.
    """
    new = op.gather(op.shape_of(positions, "i64"), i64(1), i64(0))
    total = op.gather(op.shape_of(attention_mask, "i64"), i64(1), i64(0))
    query = op.unsqueeze(op.range(op.subtract(total, new), total, i64(1), "i64"), i64([1]))
    key = op.unsqueeze(op.range(i64(0), total, i64(1), "i64"), i64([0]))
    valid = op.unsqueeze(op.convert(attention_mask, "boolean"), i64([1, 2]))
    allowed = op.logical_and(op.unsqueeze(op.less_equal(key, query), i64([0, 1])), valid)
    if window_tokens:
        key_position = op.subtract(op.cum_sum(attention_mask, i64(1)), i64(1))
        distance = op.subtract(op.unsqueeze(positions, i64([2])), op.unsqueeze(key_position, i64([1])))
        near = op.unsqueeze(op.less(distance, i64(window_tokens)), i64([1]))
        allowed = op.logical_and(allowed, near)
    return op.select(allowed, op.constant(np.float32(0)), op.constant(MASKED))


def _stateful(chain: Chain, beam: Any) -> ov.Model:
    """Turn `past_*` parameters into states, each behind one Gather by `beam_idx`."""
    presents, states = [], chain.states
    for past, present in states.items():
        presents.append(op.result(present))
        presents[-1].output(0).set_names({past.replace("past", "present")})
    model = ov.Model([chain.result, *presents], chain.parameters, "stage")
    for node in chain.parameters:
        if node.get_friendly_name() not in states:
            continue
        consumers = list(node.output(0).get_target_inputs())
        gather = op.gather(node, beam, op.constant(np.int32(0)))
        for consumer in consumers:
            consumer.replace_source_output(gather.output(0))
    apply_make_stateful_transformation(model, {past: past.replace("past", "present") for past in states})
    # The Results of the states must die here: one that is still referenced blocks the attention fusion, silently.
    presents.clear()
    return model


def _set_initial_values(model: ov.Model, source: Any, sizes: dict[str, list[int]]) -> None:
    batch = op.gather(op.shape_of(source, "i64"), i64([0]), i64(0))
    empty: dict[tuple[int, ...], Any] = {}
    for node in model.get_ops():
        if node.get_type_name() != "ReadValue":
            continue
        shape = tuple(sizes[node.get_attributes()["variable_id"].partition("present")[0]])
        if shape not in empty:
            target = op.concat([batch, i64(list(shape))], 0)
            empty[shape] = op.broadcast(op.constant(np.float32(0)), target).output(0)
        node.set_arguments([empty[shape]])


def parameter(name: str, shape: list[int], element_type: ov.Type) -> Any:
    """Make a named input."""
    node = op.parameter(shape, element_type)
    node.output(0).set_names({name})
    node.set_friendly_name(name)
    return node


def i64(value: int | list[int]) -> Any:
    """Make a constant of shapes and indices."""
    return op.constant(np.array(value, np.int64))


def _brief(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else type(error).__name__
