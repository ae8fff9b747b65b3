"""A transformers model without weights, whose layers are filled and traced one at a time.

The model is made on the `meta` device, so nothing is ever random-initialised and a 70B model costs nothing. Its
decoder layers are replaced by *taps*, which record what the model's own `forward` hands to a layer: the embedded
hidden states, the rotary tables, the mask. That is how embedding multipliers, logit scales, softcaps, rotary kinds
and sliding windows are found without a line of code per family.
"""

from __future__ import annotations

import copy
import inspect
import re
from typing import TYPE_CHECKING, Any

import torch

from shard_export.checkpoint.families import SUPPORTED, unknown_family
from shard_export.checkpoint.ledger import KeyLedger
from shard_export.library.errors import CheckpointError, TensorMismatch

if TYPE_CHECKING:
    from shard_export.checkpoint.source import Checkpoint

# Long enough to show a window, short enough to cost nothing.
_PROBE_WINDOW, _PROBE_TOKENS = 5, 12
MASKED = -65504.0
"""What a unit's mask input holds for a key that must not be seen: the lowest finite float16."""


class Tap(torch.nn.Module):  # type: ignore[misc]  # torch is not followed by mypy
    """Stands in for a decoder layer: remembers its arguments and hands the hidden states on unchanged."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.hidden: torch.Tensor | None = None
        self.arguments: dict[str, Any] = {}
        for name, value in vars(layer).items():
            # Models choose masks and rotary tables by such marks of the layer (attention_type and the like).
            if not name.startswith("_") and isinstance(value, str | int | float | bool):
                setattr(self, name, value)

    def forward(self, hidden_states: torch.Tensor, **arguments: Any) -> torch.Tensor:
        self.hidden, self.arguments = hidden_states, arguments
        return hidden_states


class Skeleton:
    """The model of a checkpoint with its embedding, norm and head loaded and its layers tapped.

    `kinds[i]` is (rope index, window tokens) of layer i; a window of 0 is full attention, a rope index of -1 none.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.config = checkpoint.config()
        self.family = str(self.config.model_type)
        if self.family not in SUPPORTED:
            raise unknown_family(self.family)
        self.model = self._empty_model()
        checkpoint.bind(self.model)
        self._prefix, layers = _decoder_layers(self.model, self.config, self.family)
        self._layers: list[torch.nn.Module] = list(layers)
        self.ledger = KeyLedger(
            checkpoint,
            {name: tuple(tensor.shape) for name, tensor in self.model.state_dict().items()},
            dict(getattr(self.model, "all_tied_weights_keys", None) or {}),
            getattr(self.model, "_keys_to_ignore_on_load_unexpected", None) or (),
        )
        self.rope_factors = checkpoint.rope_factors()
        self._scale_rotary(self.rope_factors)
        self.taps = [Tap(layer) for layer in self._layers]
        parent = self.model.get_submodule(self._prefix.rpartition(".")[0])
        parent.layers = torch.nn.ModuleList(self.taps)
        self._load_rest()
        self.ropes: list[int] = []
        self.kinds = self._probe_kinds()

    @property
    def hidden_size(self) -> int:
        return int(self.config.hidden_size)

    @property
    def vocab_size(self) -> int:
        return int(self.model.get_output_embeddings().weight.shape[0])

    @property
    def context_tokens(self) -> int:
        return int(self.config.max_position_embeddings)

    def weight_count(self) -> tuple[int, int]:
        """Return how many weights the layers hold, and how many the embedding and the head."""
        layers = sum(tensor.numel() for layer in self._layers for tensor in layer.state_dict().values())
        return layers, 2 * self.vocab_size * self.hidden_size

    def matrix_shapes(self) -> dict[str, tuple[int, int]]:
        """List the layers' matrices with (output rows, input columns)."""
        return {
            f"{self._prefix}.{index}.{name}": (int(tensor.shape[0]), int(tensor.shape[1]))
            for index, layer in enumerate(self._layers)
            for name, tensor in layer.state_dict().items()
            if tensor.ndim == 2
        }

    def rope_name(self, rope: int) -> str:
        """Name a rope unit after the layers that use it."""
        windows = [window for kind, window in self.kinds if kind == rope]
        if rope == 0:
            return "rope-full" if len(self.ropes) == 1 or not all(windows) else "rope-sliding"
        name = "rope-sliding" if all(windows) else "rope-full"
        return name if name != self.rope_name(0) and len(self.ropes) == 2 else f"{name}-{rope}"

    def fill_layer(self, index: int) -> torch.nn.Module:
        """Load one layer's tensors (float32) and return the layer; call `drop_layer` when done with it."""
        layer = self._layers[index]
        names = layer.state_dict().keys()
        tensors = {name: self.ledger.take(f"{self._prefix}.{index}.{name}") for name in names}
        layer.load_state_dict(tensors, strict=True, assign=True)
        _check_filled(layer, f"{self._prefix}.{index}")
        return layer.requires_grad_(False).eval()

    def drop_layer(self, index: int) -> None:
        """Give a layer's memory back."""
        self._layers[index] = torch.nn.Identity()

    def embed(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Run what the model does before its first layer: ids [B,n] -> hidden [B,n,H]."""
        self._run(input_ids=input_ids, position_ids=torch.zeros_like(input_ids))
        hidden = self.taps[0].hidden
        if hidden is None:
            raise unknown_family(self.family, "its first layer was not reached")
        return hidden

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Run what the model does after its last layer: hidden [B,n,H] -> logits [B,n,V]."""
        logits: torch.Tensor = self._run(
            inputs_embeds=hidden, position_ids=torch.zeros(1, 1, dtype=torch.long), tapped=False
        ).logits
        return logits

    def rotary(self, layer: int, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cos and sin [B,n,R] as the model hands them to a layer."""
        self._run(inputs_embeds=torch.zeros(1, 1, self.hidden_size), position_ids=position_ids)
        cos, sin = self.taps[layer].arguments["position_embeddings"]
        return cos, sin

    def _run(self, *, tapped: bool = True, **inputs: torch.Tensor) -> Any:
        # A ready 4D mask keeps the model from building one; the taps ignore it.
        runner = self.model.get_submodule(self._prefix.rpartition(".")[0]) if tapped else self.model
        return runner(attention_mask=torch.zeros(1, 1, 1, 1), use_cache=False, **inputs)

    def _empty_model(self) -> Any:
        from accelerate import init_empty_weights
        from transformers import AutoModelForCausalLM

        try:
            with init_empty_weights(include_buffers=False):
                model = AutoModelForCausalLM.from_config(self.config, attn_implementation="sdpa", dtype=torch.float32)
        except (ValueError, TypeError, ZeroDivisionError, RuntimeError) as error:
            raise CheckpointError(
                f"transformers cannot make a {self.family} model of this config ({error}); check config.json."
            ) from error
        return model.eval()

    def _load_rest(self) -> None:
        tensors = {name: self.ledger.take(name) for name in self.model.state_dict()}
        self.model.load_state_dict(tensors, strict=True, assign=True)
        _check_filled(self.model, "the model")
        self.model.requires_grad_(False)

    def _scale_rotary(self, factors: torch.Tensor | None) -> None:
        if factors is None:
            return
        for module in self.model.modules():
            if isinstance(getattr(module, "inv_freq", None), torch.Tensor):
                module.inv_freq = module.inv_freq / factors

    def _probe_kinds(self) -> list[tuple[int, int]]:
        windows = self._probe_windows()
        positions = torch.arange(0, max(2, min(self.context_tokens, 512)), 7)[None]
        seen: list[tuple[torch.Tensor, torch.Tensor]] = []
        kinds = []
        for index, window in enumerate(windows):
            tables = self.rotary(index, positions) if index == 0 else self._tables(index)
            same = [rope for rope, known in enumerate(seen) if _equal(tables, known)]
            if not same:
                same = [len(seen)]
                seen.append(tables)
                self.ropes.append(index)
            kinds.append((same[0], window))
        return kinds

    def _tables(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = self.taps[index].arguments["position_embeddings"]
        return cos, sin

    def _probe_windows(self) -> list[int]:
        """Let the model build its masks with a short window and read from them which layers use it."""
        real = self.model.config
        window = int(getattr(real, "sliding_window", None) or 0)
        probe = copy.deepcopy(real)
        probe._attn_implementation = "eager"  # noqa: SLF001 - the only switch that makes the model build full masks
        if window:
            probe.sliding_window = _PROBE_WINDOW
        decoder = self.model.get_submodule(self._prefix.rpartition(".")[0])
        self.model.config = decoder.config = probe
        try:
            decoder(inputs_embeds=torch.zeros(1, _PROBE_TOKENS, self.hidden_size), use_cache=False)
        finally:
            self.model.config = decoder.config = real
        windows = []
        for tap in self.taps:
            mask, positions = tap.arguments["attention_mask"], tap.arguments.get("position_embeddings")
            if mask is None or not isinstance(positions, tuple):
                raise unknown_family(self.family, "its layers are not driven by a mask and rotary tables")
            windows.append(window if self._is_windowed(mask[0, 0]) else 0)
        return windows

    def _is_windowed(self, mask: torch.Tensor) -> bool:
        visible = mask if mask.dtype == torch.bool else mask > MASKED / 2
        if torch.equal(visible, visible_keys(_PROBE_TOKENS, 0)):
            return False
        if torch.equal(visible, visible_keys(_PROBE_TOKENS, _PROBE_WINDOW)):
            return True
        raise unknown_family(self.family, "its attention mask is neither causal nor a sliding window")


def _equal(ours: tuple[torch.Tensor, ...], theirs: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def visible_keys(tokens: int, window: int) -> torch.Tensor:
    """Return which keys each query sees, [n,n] bool; a window counts the query itself, 0 means no window."""
    position = torch.arange(tokens)
    distance = position[:, None] - position[None, :]
    return (distance >= 0) & (distance < (window or tokens))


def causal_mask(tokens: int, window: int) -> torch.Tensor:
    """Return the additive mask [1,1,n,n] of a layer with that window (0: none)."""
    return torch.where(visible_keys(tokens, window), 0.0, MASKED)[None, None]


def cache_argument(layer: torch.nn.Module) -> str:
    """Tell what a decoder layer calls its cache: transformers renamed it in 5.24."""
    parameters = inspect.signature(layer.forward).parameters
    for name in ("cache", "past_key_values", "past_key_value"):
        if name in parameters:
            return name
    raise unknown_family(type(layer).__name__, "its layers take no cache")


def _decoder_layers(model: Any, config: Any, family: str) -> tuple[str, torch.nn.ModuleList]:
    count = getattr(config, "num_hidden_layers", None)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and re.search(r"\.layers$", name) and len(module) == count:
            return name, module
    raise unknown_family(family, "no list of decoder layers was found")


def _check_filled(module: torch.nn.Module, where: str) -> None:
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_meta:
            raise TensorMismatch(f"Tensor {name} of {where} got no value; this is a fault of the exporter, report it.")
