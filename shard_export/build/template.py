"""One trace for all layers of a shape: the graph of a layer with its tensors as named, replaceable constants.

Tracing takes a second a layer, putting other constants into a clone a few milliseconds. The trace is made with marker
values, so that every constant can be told apart, also where torch added one to it (norms that store their distance to
one); where a tensor was folded into something else no template is made and the layers are traced one by one. The parity
gate judges both the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from openvino import opset13 as op

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import openvino as ov

_FIRST = 64

Array = np.ndarray[Any, Any]


class LayerTemplate:
    """A traced layer with a Parameter for each of its tensors, so that it holds no weights itself."""

    def __init__(self, model: ov.Model, offsets: Mapping[str, float]) -> None:
        self._model, self._offsets = model, offsets

    def instantiate(self, tensors: Mapping[str, torch.Tensor]) -> ov.Model:
        """Return a float32 unit with these tensors, whose memory it shares."""
        model = self._model.clone()
        for node in model.get_parameters():
            name = node.get_friendly_name()
            if name in self._offsets:
                values = tensors[name].numpy().reshape(list(node.get_output_shape(0)))
                if self._offsets[name]:
                    values = values + np.float32(self._offsets[name])
                constant = op.constant(values, shared_memory=True)
                constant.set_friendly_name(name)
                _put(constant, node)
                model.remove_parameter(node)
        return model


def make_template(layer: torch.nn.Module, trace: Callable[[], ov.Model]) -> LayerTemplate | None:
    """Trace `layer` with markers, whatever it holds (it may be empty, and is put back); None when one got lost."""
    real = dict(layer.state_dict())
    random = torch.Generator().manual_seed(0)
    markers = {
        name: torch.rand(tuple(tensor.shape), generator=random).mul_(0.01).add_(0.01) for name, tensor in real.items()
    }
    layer.load_state_dict(markers, assign=True)
    layer.requires_grad_(False)
    try:
        model = trace()
    finally:
        layer.load_state_dict(real, assign=True)
        layer.requires_grad_(False)
    constants = [node for node in model.get_ordered_ops() if node.get_type_name() == "Constant"]
    offsets: dict[str, float] = {}
    for name, marker in markers.items():
        values = marker.numpy().reshape(-1)
        for offset in (0.0, 1.0):
            offsets[name] = offset
            if matching := [node for node in constants if _holds(node, values, offset)]:
                break
        if len(matching) != 1:
            return None
        place = op.parameter(list(matching[0].get_output_shape(0)), np.float32)
        place.set_friendly_name(name)
        _put(place, matching[0])
        model.add_parameters([place])
    return LayerTemplate(model, offsets)


def _put(new: Any, old: Any) -> None:
    for target in list(old.output(0).get_target_inputs()):
        target.replace_source_output(new.output(0))


def layer_key(layer: torch.nn.Module) -> tuple[Any, ...]:
    """Describe what decides a layer's graph: class, tensor shapes and the plain settings of all its modules."""
    shapes = tuple((name, tuple(tensor.shape)) for name, tensor in layer.state_dict().items())
    settings = tuple(
        (path, name, value)
        for path, module in layer.named_modules()
        for name, value in sorted(vars(module).items())
        if isinstance(value, str | int | float | bool) and name != "layer_idx"
    )
    return type(layer), shapes, settings


def _holds(node: Any, marker: Array, offset: float) -> bool:
    if node.get_element_type().get_type_name() != "f32" or int(np.prod(node.get_output_shape(0))) != marker.size:
        return False
    values = node.data.reshape(-1)
    # A look at the first ones spares other matrices a whole copy.
    return _is_moved(values[:_FIRST], marker[:_FIRST], offset) and _is_moved(values, marker, offset)


def _is_moved(values: Array, marker: Array, offset: float) -> bool:
    return np.array_equal(values, marker + np.float32(offset) if offset else marker)
