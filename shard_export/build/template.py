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
    """Trace `layer` (filled; its tensors are put back) with markers; None when a tensor did not survive the trace."""
    real = dict(layer.state_dict())
    random = np.random.default_rng(0)
    markers = {
        name: torch.from_numpy(random.uniform(0.01, 0.02, tuple(tensor.shape)).astype(np.float32))
        for name, tensor in real.items()
    }
    layer.load_state_dict(markers, assign=True)
    try:
        model = trace()
    finally:
        layer.load_state_dict(real, assign=True)
        layer.requires_grad_(False)
    constants = [node for node in model.get_ordered_ops() if node.get_type_name() == "Constant"]
    offsets: dict[str, float] = {}
    for name, marker in markers.items():
        matching = [node for node in constants if _holds(node, marker.numpy())]
        offsets[name] = 0.0
        if not matching:
            matching = [node for node in constants if _holds(node, marker.numpy() + np.float32(1))]
            offsets[name] = 1.0
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


def _holds(node: Any, marker: np.ndarray[Any, Any]) -> bool:
    shape = list(node.get_output_shape(0))
    if int(np.prod(shape)) != marker.size or node.get_element_type().get_type_name() != "f32":
        return False
    return bool(np.array_equal(node.get_data().reshape(-1), marker.reshape(-1)))
