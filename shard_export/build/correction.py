"""The correction product: what a packed matrix lacks per group, added to its product at the cost of half a bit.

A group of weights with scale d and minimum m is `q * d + m`. With an integer zero point z it is stored as
`(q - z) * d`, which lacks `r = m + z * d` at every weight of the group. So ::

    y = x W'  +  s R      s[.., groups] = sums of x over each group,  R[out, groups] = r in float16

The sums are made once for all matrices that read the same x (q, k and v; gate and up). A fractional zero point would
need no product, but runtimes that quantize activations do not take it and fall to a third of their speed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as op

Array = np.ndarray[Any, Any]


class Corrections:
    """Adds corrections to the products of one unit."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, int, int], Any] = {}

    def add(self, product: Any, residual: Array, group_size: int, name: str) -> None:
        """Add `sums of x * residual` to the MatMul with a packed W[out, in]; `residual` is [out, groups]."""
        stored = op.constant(residual.astype(np.float16))
        stored.set_friendly_name(name)
        consumers = list(product.output(0).get_target_inputs())
        small = op.matmul(
            self._group_sums(product.input_value(0), group_size), op.convert(stored, ov.Type.f32), False, True
        )
        total = op.add(product, small)
        for target in consumers:
            target.replace_source_output(total.output(0))

    def _group_sums(self, rows: Any, group_size: int) -> Any:
        key = rows.get_node().get_name(), rows.get_index(), group_size
        if key not in self._sums:
            rank = rows.get_partial_shape().rank.get_length()
            shape = np.array([0] * (rank - 1) + [-1, group_size], np.int64)
            grouped = op.reshape(rows, op.constant(shape), True)
            self._sums[key] = op.reduce_sum(grouped, op.constant(np.array([-1], np.int64)), False)
        return self._sums[key]
