"""Which matrices of a layer suffer most from four bits, and which of them therefore get eight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from shard_export.build.quantize import pack_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from shard_export.library.manifest import Unit

Array = np.ndarray[Any, Any]


def measure_damage(layer: torch.nn.Module, run: Callable[[], torch.Tensor], group_size: int | None) -> dict[str, float]:
    """Round one matrix of a filled layer at a time and see what it does to the layer's output.

    `run` runs the layer on some real text. Returns the sum of squared differences by the matrix's name in the layer,
    which is left as it was.
    """
    wanted = run()
    damage = {}
    for path, module in layer.named_modules():
        if not isinstance(module, torch.nn.Linear):
            continue
        name, real = f"{path}.weight", module.weight
        packed = pack_plain(real.detach().numpy(), name, "int4_asym", group_size)
        module.weight = torch.nn.Parameter(torch.from_numpy(packed.dequantized()), requires_grad=False)
        try:
            damage[name] = float((run() - wanted).double().square().sum())
        finally:
            module.weight = real
    return damage


def choose_for_eight_bits(damage: Mapping[str, float], sizes: Mapping[str, int], room: float) -> frozenset[str]:
    """Choose the matrices whose damage is largest for their size, as many as `room` weights hold."""
    chosen = []
    for name in sorted(damage, key=lambda name: (-damage[name] / sizes[name], name)):
        if sizes[name] <= room:
            chosen.append(name)
            room -= sizes[name]
    return frozenset(chosen)


def room_for_eight_bits(ratio: float, weights: Mapping[int, int], index: int, finished: Iterable[Unit]) -> float:
    """Return how many weights of layer `index` may have eight bits.

    `weights` counts each layer's matrices; what earlier layers left of their share goes to later ones. It follows from
    the finished units alone, so that a build that goes on chooses as one that was never interrupted.
    """
    used = sum(unit.compression.int8_share * weights[unit.index] for unit in finished if unit.kind == "layer")
    return ratio * sum(weights[layer] for layer in range(index + 1)) - used + 0.5
