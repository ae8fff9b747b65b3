"""Units in exact numerics, with their float32 matrices handed in instead of packed: no second copy of a layer.

Compiled as constants, matrices are packed anew by the runtime, which doubles a layer of a large model. As inputs of the
same graph they are read where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov
from openvino import opset13 as op

from shard_export.library.counts import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
BYTES_AT_ONCE = 1 << 29
_LEAST_ELEMENTS = 1 << 12

Array = np.ndarray[Any, Any]


class ExactRun:
    """One unit, ready to run; `unit` must live as long as this does. Use from one thread."""

    def __init__(self, core: ov.Core, unit: ov.Model) -> None:
        model, matrices = _with_ports(unit)
        self._inputs, self._outputs = len(unit.inputs), len(unit.outputs)
        compiled = core.compile_model(model, "CPU", EXACT)
        self._request = compiled.create_infer_request()
        for port, matrix in zip(compiled.inputs[self._inputs :], matrices, strict=True):
            self._request.set_tensor(port, matrix.get_tensor_view())
        self._matrices = matrices

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the unit on its inputs in the order of its ports; returns its outputs in theirs."""
        if len(inputs) != self._inputs:
            raise ValueError(f"the unit has {counted(self._inputs, 'input')}, not {len(inputs)}")
        result = self._request.infer({index: np.ascontiguousarray(part) for index, part in enumerate(inputs)})
        return [result[index] for index in range(self._outputs)]


def _with_ports(unit: ov.Model) -> tuple[ov.Model, list[Any]]:
    """Return a copy of a unit with an input for each float32 matrix, and the matrices."""
    model = unit.clone()
    matrices, places = [], []
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Constant" or (shape := _open_shape(node)) is None:
            continue
        place = op.parameter(shape, np.float32)
        for target in list(node.output(0).get_target_inputs()):
            target.replace_source_output(place.output(0))
        matrices.append(node)
        places.append(place)
    model.add_parameters(places)
    model.validate_nodes_and_infer_types()
    return model, matrices


def _open_shape(node: Any) -> list[int] | None:
    """Return the shape of the input that stands for a constant; None for one that stays.

    One side is left open, for the runtime keeps room of its own for inputs whose size it knows: the side that is summed
    over, because products with a bias want to know their columns, or how many rows or experts can be picked.
    """
    shape = list(node.get_output_shape(0))
    if len(shape) < 2 or int(np.prod(shape)) < _LEAST_ELEMENTS or node.get_element_type() != ov.Type.f32:
        return None
    sides = {_open_side(target.get_node(), target.get_index()) for target in node.output(0).get_target_inputs()}
    if len(sides) != 1 or (side := sides.pop()) is None:
        return None
    shape[side] = -1
    return shape


def _open_side(reader: Any, port: int) -> int | None:
    if reader.get_type_name() == "Gather" and port == 0:
        return 0
    if reader.get_type_name() == "MatMul" and port == 1:
        return -1 if reader.get_attributes()["transpose_b"] else -2
    return None


class LayerRun(ExactRun):
    """A layer unit, run over a text in chunks through its cache.

    `token_bytes` is what a token takes while its experts are picked: so many tokens run at once as memory allows.
    """

    def __init__(self, core: ov.Core, unit: ov.Model, token_bytes: int = 0) -> None:
        super().__init__(core, unit)
        self._shapes, self._token_bytes = cache_shapes(unit), token_bytes

    def in_chunks(self, hidden: Array, mask: Array, tables: tuple[Array, Array], chunks: int) -> list[Array]:
        """Run hidden [rows,n,H] with mask [1,1,n,n] and cos, sin [rows,n,R] in at least so many chunks.

        Returns out [rows,n,H] and the keys and values [rows,heads,n,size] of the whole text.
        """
        rows, tokens = hidden.shape[:2]
        step = -(-tokens // chunks)
        at_once = max(1, BYTES_AT_ONCE // max(1, self._token_bytes))
        if rows * step > at_once:
            rows, step = 1, min(step, at_once)
        parts = [
            self._row_part(hidden[part], mask, (tables[0][part], tables[1][part]), step)
            for part in (slice(first, first + rows) for first in range(0, len(hidden), rows))
        ]
        return [np.concatenate(outputs) for outputs in zip(*parts, strict=True)]

    def _row_part(self, hidden: Array, mask: Array, tables: tuple[Array, Array], step: int) -> list[Array]:
        rows, tokens = hidden.shape[:2]
        full = np.broadcast_to(mask, (rows, 1, tokens, tokens))
        past = [np.zeros((rows, heads, 0, size), np.float32) for heads, size in self._shapes]
        outputs = []
        for first in range(0, tokens, step):
            last = min(first + step, tokens)
            turned = [table[:, first:last] for table in tables]
            out, *past = self([hidden[:, first:last], full[:, :, first:last, :last], *turned, *past])
            outputs.append(out)
        return [np.concatenate(outputs, 1), *past]


def cache_shapes(unit: ov.Model) -> list[tuple[int, int]]:
    """Read (heads, head size) of keys and values from a layer unit's ports."""
    shapes = [unit.input(name).get_partial_shape() for name in ("past_k", "past_v")]
    return [(shape[1].get_length(), shape[3].get_length()) for shape in shapes]


def experts_bytes(unit: ov.Model) -> int:
    """Return how large the largest matrix of one expert of a float32 unit is; 0 without experts."""
    picked = [node.input_value(0).get_node() for node in unit.get_ordered_ops() if node.get_type_name() == "Gather"]
    shapes = [list(node.get_output_shape(0)) for node in picked if node.get_type_name() == "Constant"]
    return max((4 * shape[1] * shape[2] for shape in shapes if len(shape) == 3), default=0)
