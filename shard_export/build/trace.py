"""From transformers modules to OpenVINO units in float32, with the ports the library format promises."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import openvino as ov
import torch
from transformers.cache_utils import Cache

from shard_export.build.advice import quiet
from shard_export.build.probe import cache_argument
from shard_export.build.skeleton import BATCHED_EXPERTS
from shard_export.library.counts import counted
from shard_export.library.errors import UnknownFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shard_export.build.skeleton import Skeleton

_EXPERTS = "_experts_implementation"


class ConcatCache(Cache):  # type: ignore[misc]  # not followed by mypy
    """A cache for one layer that only concatenates: that is all the traced graph may see."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.keys, self.values = keys, values
        self.layers: list[Any] = []

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys = torch.cat([self.keys, key_states], 2)
        self.values = torch.cat([self.values, value_states], 2)
        return self.keys, self.values

    def get_seq_length(self, *_args: Any, **_kwargs: Any) -> int:
        return int(self.keys.shape[2])


class _FirstCache(ConcatCache):
    """An empty cache that keeps the keys and values of the only call."""

    def __init__(self) -> None:
        super().__init__(torch.zeros(0), torch.zeros(0))

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys, self.values = key_states, value_states
        return key_states, value_states

    def get_seq_length(self, *_args: Any, **_kwargs: Any) -> int:
        return 0


class LayerCall(torch.nn.Module):  # type: ignore[misc]  # not followed by mypy
    """Calls a decoder layer the way its model does, with mask, rotary tables and cache as plain tensors."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self._cache_name = cache_argument(layer)

    def forward(  # noqa: PLR0917 - the tracer passes by position
        self,
        hidden: torch.Tensor,
        mask: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        past_k: torch.Tensor,
        past_v: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        cache = ConcatCache(past_k, past_v)
        return self._call(hidden, mask, cos, sin, cache), cache.keys, cache.values

    def run(self, hidden: torch.Tensor, mask: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Run the layer itself without a cache: transformers' plain forward, the reference for parity."""
        with _experts_one_by_one(self.layer):
            return self._call(hidden, mask, cos, sin, None)

    def run_with_cache(
        self, hidden: torch.Tensor, mask: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run the layer itself on an empty cache: hidden states, keys and values."""
        cache = _FirstCache()
        with _experts_one_by_one(self.layer):
            return self._call(hidden, mask, cos, sin, cache), cache.keys, cache.values

    def cache_shapes(self, hidden_size: int, rotary_size: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return (heads, head size) of keys and of values."""
        table = torch.zeros(1, 1, rotary_size)
        _, keys, values = self.run_with_cache(torch.zeros(1, 1, hidden_size), torch.zeros(1, 1, 1, 1), table, table)
        (_, k_heads, _, k_size), (_, v_heads, _, v_size) = keys.shape, values.shape
        return (k_heads, k_size), (v_heads, v_size)

    def _call(
        self, hidden: torch.Tensor, mask: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: Cache | None
    ) -> torch.Tensor:
        arguments = {self._cache_name: cache, "use_cache": cache is not None}
        result = self.layer(hidden, attention_mask=mask, position_embeddings=(cos, sin), **arguments)
        return result[0] if isinstance(result, tuple) else result


@contextlib.contextmanager
def _experts_one_by_one(layer: torch.nn.Module) -> Iterator[None]:
    """Let a layer run its experts in a loop: in the form that is traced each token copies the experts it picks.

    It is transformers' own code for experts, too, and so another witness than the traced one.
    """
    found = [module.config for module in layer.modules() if hasattr(getattr(module, "config", None), _EXPERTS)]
    configs = [config for config in found if getattr(config, _EXPERTS) == BATCHED_EXPERTS]
    for config in configs:
        setattr(config, _EXPERTS, "eager")
    try:
        yield
    finally:
        for config in configs:
            setattr(config, _EXPERTS, BATCHED_EXPERTS)


class _Embed(torch.nn.Module):  # type: ignore[misc]  # not followed by mypy
    def __init__(self, skeleton: Skeleton) -> None:
        super().__init__()
        self.model, self._skeleton = skeleton.model, skeleton

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self._skeleton.embed(input_ids)


class _Head(torch.nn.Module):  # type: ignore[misc]  # not followed by mypy
    def __init__(self, skeleton: Skeleton) -> None:
        super().__init__()
        self.model, self._skeleton = skeleton.model, skeleton

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._skeleton.head(hidden)


class _Rotary(torch.nn.Module):  # type: ignore[misc]  # not followed by mypy
    def __init__(self, skeleton: Skeleton, layer: int) -> None:
        super().__init__()
        self.model, self._skeleton, self._layer = skeleton.model, skeleton, layer

    def forward(self, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._skeleton.rotary(self._layer, position_ids)


def trace_layer(call: LayerCall, hidden_size: int, rotary_size: int) -> ov.Model:
    """Trace one decoder layer into a float32 unit; every port is dynamic in batch and tokens."""
    (k_heads, k_size), (v_heads, v_size) = call.cache_shapes(hidden_size, rotary_size)
    table = torch.rand(2, 3, rotary_size)
    example = (
        torch.rand(2, 3, hidden_size),
        torch.zeros(2, 1, 3, 5),
        table,
        table + 0.1,
        torch.rand(2, k_heads, 2, k_size),
        torch.rand(2, v_heads, 2, v_size),
    )
    inputs = {
        "hidden": [-1, -1, hidden_size],
        "mask": [-1, 1, -1, -1],
        "cos": [-1, -1, rotary_size],
        "sin": [-1, -1, rotary_size],
        "past_k": [-1, k_heads, -1, k_size],
        "past_v": [-1, v_heads, -1, v_size],
    }
    return _convert(call, example, inputs, ["out", "present_k", "present_v"])


def trace_embed(skeleton: Skeleton) -> ov.Model:
    """Trace what the model does before its first layer."""
    example = (torch.ones(2, 3, dtype=torch.long),)
    return _convert(_Embed(skeleton), example, {"input_ids": [-1, -1]}, ["hidden"])


def trace_head(skeleton: Skeleton) -> ov.Model:
    """Trace what the model does after its last layer."""
    size = skeleton.hidden_size
    return _convert(_Head(skeleton), (torch.rand(2, 3, size),), {"hidden": [-1, -1, size]}, ["logits"])


def trace_rope(skeleton: Skeleton, layer: int) -> ov.Model:
    """Trace the rotary tables as that layer gets them."""
    example = (torch.ones(2, 3, dtype=torch.long),)
    return _convert(_Rotary(skeleton, layer), example, {"position_ids": [-1, -1]}, ["cos", "sin"])


def _convert(
    module: torch.nn.Module, example: tuple[torch.Tensor, ...], inputs: dict[str, list[int]], outputs: list[str]
) -> ov.Model:
    try:
        with torch.no_grad(), quiet():
            model = ov.convert_model(module.eval(), example_input=example)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UnknownFamily(
            f"OpenVINO cannot convert {type(module).__name__} of this model ({str(error).splitlines()[0][:200]}); "
            "update Fallow or export another model."
        ) from error
    if len(model.inputs) != len(inputs) or len(model.outputs) != len(outputs):
        raise UnknownFamily(
            f"The traced unit has {counted(len(model.inputs), 'input')} instead of {len(inputs)}; this "
            "model cannot be exported."
        )
    for port in [port for node in model.get_ordered_ops() for port in node.outputs()]:
        port.get_tensor().set_names(set())
    for port, (name, shape) in zip(model.inputs, inputs.items(), strict=True):
        port.get_tensor().set_names({name})
        port.get_node().set_partial_shape(ov.PartialShape(shape))
        port.get_node().set_friendly_name(name)
    model.validate_nodes_and_infer_types()
    for port, name in zip(model.outputs, outputs, strict=True):
        port.get_tensor().set_names({name})
    return model
