"""A transformers model without weights, whose layers are filled and traced one at a time.

The model is made on the `meta` device, so nothing is ever random-initialised and a 70B model costs nothing. Its
decoder layers are replaced by *taps*, which record what the model's own `forward` hands to a layer: the embedded
hidden states, the rotary tables, the mask. That is how embedding multipliers, logit scales, softcaps, rotary kinds
and sliding windows are found without a line of code per family.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

from shard_export.build.probe import Tap, decoder_layers, group_tables, probe_windows
from shard_export.checkpoint.conversion import converted
from shard_export.checkpoint.families import (
    attention_for,
    check_family,
    experts_per_token,
    rope_kinds,
    unknown_family,
)
from shard_export.checkpoint.ledger import KeyLedger
from shard_export.library.errors import CheckpointError, TensorMismatch

if TYPE_CHECKING:
    from shard_export.checkpoint.source import Checkpoint

End = Literal["embed", "head"]

LEAST_CONTEXT_TOKENS = 32
BATCHED_EXPERTS = "batched_mm"
"""Experts picked by index are a Gather and a MatMul, which OpenVINO can convert and run."""


class Skeleton:
    """The model of a checkpoint with all but its layers, embedding and output matrix loaded, and its layers tapped.

    `kinds[i]` is (rope index, window tokens) of layer i; a window of 0 is full attention, a rope index of -1 none.
    `shapes[i]` are the shapes of its matrices by their names in the layer; experts are one [experts, rows, columns].
    `context_tokens` shortens the context (0: the model's own).
    """

    def __init__(self, checkpoint: Checkpoint, context_tokens: int = 0) -> None:
        self.config = checkpoint.config()
        self.family = str(self.config.model_type)
        check_family(self.config)
        self.context_tokens = _context(self.config, context_tokens)
        self.model = self._empty_model()
        checkpoint.bind(self.model)
        self._prefix, layers = decoder_layers(self.model, self.config, self.family)
        self._layers: list[torch.nn.Module] = [layer.requires_grad_(False).eval() for layer in layers]
        self.shapes = [_matrix_shapes(layer) for layer in self._layers]
        self.experts_per_token = experts_per_token(self.config)
        self.ledger = KeyLedger(
            converted(checkpoint, self.model),
            {name: tuple(tensor.shape) for name, tensor in self.model.state_dict().items()},
            dict(getattr(self.model, "all_tied_weights_keys", None) or {}),
            getattr(self.model, "_keys_to_ignore_on_load_unexpected", None) or (),
        )
        self.rope_factors = checkpoint.rope_factors()
        self._scale_rotary(self.rope_factors)
        self.taps = [Tap(layer) for layer in self._layers]
        parent, _, attribute = self._prefix.rpartition(".")
        setattr(self.model.get_submodule(parent), attribute, torch.nn.ModuleList(self.taps))
        self.vocab_size = int(self.model.get_output_embeddings().weight.shape[0])
        self._ends = self._end_names()
        self._load_rest()
        self._freeze_rotary()
        self.ropes: list[int] = []
        self.kinds = self._probe_kinds()

    @property
    def hidden_size(self) -> int:
        return int(self.config.hidden_size)

    def notes(self) -> list[str]:
        """Say where the library will differ from what transformers does, and why."""
        if "longrope" not in rope_kinds(self.config):
            return []
        note = (
            f"longrope: one set of rotary factors for all texts, the one for {self.context_tokens} tokens; "
            "transformers changes factors with the length of a text, which a cache cannot follow."
        )
        return [note]

    def weight_count(self) -> tuple[int, int]:
        """Return how many weights the layers hold, and how many the embedding and the head."""
        layers = sum(tensor.numel() for layer in self._layers for tensor in layer.state_dict().values())
        return layers, 2 * self.vocab_size * self.hidden_size

    def largest_unit(self) -> int:
        """Return how many weights the largest unit holds."""
        layers = [sum(int(tensor.numel()) for tensor in layer.state_dict().values()) for layer in self._layers]
        return max(*layers, self.vocab_size * self.hidden_size)

    def full_name(self, index: int, name: str) -> str:
        """Name a tensor of a layer as the checkpoint does."""
        return f"{self._prefix}.{index}.{name}"

    def matrices(self, unit: int | End) -> dict[str, torch.Tensor]:
        """Return the matrices of a layer, or of an end, by their names in the checkpoint; `fill_*` loads them."""
        if isinstance(unit, int):
            named = {self.full_name(unit, name): part for name, part in self._layers[unit].state_dict().items()}
        else:
            state = self.model.state_dict()
            named = {name: state[name] for name in self._ends[unit]}
        return {name: tensor for name, tensor in named.items() if tensor.ndim == 2}

    def rope_name(self, rope: int) -> str:
        """Name a rope unit after the layers that use it."""
        windows = [window for kind, window in self.kinds if kind == rope]
        if rope == 0:
            return "rope-full" if len(self.ropes) == 1 or not all(windows) else "rope-sliding"
        name = "rope-sliding" if all(windows) else "rope-full"
        return name if name != self.rope_name(0) and len(self.ropes) == 2 else f"{name}-{rope}"

    def layer(self, index: int) -> torch.nn.Module:
        """Return a layer as it is, filled or not."""
        return self._layers[index]

    def fill_layer(self, index: int) -> torch.nn.Module:
        """Load one layer's tensors (float32) and return the layer; call `drop_layer` when done with it."""
        layer = self._layers[index]
        names = layer.state_dict().keys()
        tensors = {name: self.ledger.take(self.full_name(index, name)) for name in names}
        layer.load_state_dict(tensors, strict=True, assign=True)
        _check_filled(layer, f"{self._prefix}.{index}")
        return layer.requires_grad_(False)

    def drop_layer(self, index: int) -> None:
        """Give a layer's memory back, as far as nobody else holds on to its tensors."""
        for name in self._layers[index].state_dict():
            _put(self._layers[index], name, torch.empty(0))
        self._layers[index] = torch.nn.Identity()

    def skip_layer(self, index: int) -> None:
        """Account for a layer that an earlier build finished."""
        for name in self._layers[index].state_dict():
            self.ledger.skip(self.full_name(index, name))
        self.drop_layer(index)

    def fill_end(self, end: End) -> None:
        """Load the tensors that only `embed` or only `head` needs; call `drop_end` when done with them."""
        for name in self._ends[end]:
            _put(self.model, name, self.ledger.take(name))

    def skip_end(self, end: End) -> None:
        """Account for an end that an earlier build finished."""
        for name in self._ends[end]:
            self.ledger.skip(name)

    def drop_end(self, end: End) -> None:
        """Give the memory of an end back."""
        for name in self._ends[end]:
            _put(self.model, name, torch.empty(0))  # not `meta`: a graph cannot be traced beside such tensors

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
        return self.taps[layer].tables()

    def _run(self, *, tapped: bool = True, **inputs: torch.Tensor) -> Any:
        # A ready 4D mask keeps the model from building one; the taps ignore it.
        runner = self._decoder if tapped else self.model
        return runner(attention_mask=torch.zeros(1, 1, 1, 1), use_cache=False, **inputs)

    def _empty_model(self) -> Any:
        from accelerate import init_empty_weights
        from transformers import AutoModelForCausalLM

        try:
            with init_empty_weights(include_buffers=False):
                model = AutoModelForCausalLM.from_config(
                    self.config,
                    attn_implementation=attention_for(self.config),
                    experts_implementation=BATCHED_EXPERTS,
                    dtype=torch.float32,
                )
        except (ValueError, TypeError, ZeroDivisionError, RuntimeError) as error:
            raise CheckpointError(
                f"transformers cannot make a {self.family} model of this config ({error}); check config.json."
            ) from error
        return model.eval()

    def _end_names(self) -> dict[End, list[str]]:
        """Name the tensors of the embedding and of the output matrix: often the largest of all."""
        names = {module: name for name, module in self.model.named_modules()}
        ends: dict[End, Any] = {"embed": self.model.get_input_embeddings(), "head": self.model.get_output_embeddings()}
        return {end: [f"{names[module]}.{key}" for key in module.state_dict()] for end, module in ends.items()}

    def _load_rest(self) -> None:
        for end in self._ends:
            self.drop_end(end)
        late = {name for names in self._ends.values() for name in names}
        tensors = {name: self.ledger.take(name) for name in self.model.state_dict() if name not in late}
        self.model.load_state_dict(tensors, strict=False, assign=True)
        _check_filled(self.model, "the model")
        self.model.requires_grad_(False)

    def _scale_rotary(self, factors: torch.Tensor | None) -> None:
        if factors is None:
            return
        for module in self.model.modules():
            if isinstance(getattr(module, "inv_freq", None), torch.Tensor):
                module.inv_freq = module.inv_freq / factors

    def _freeze_rotary(self) -> None:
        """Choose for good between frequencies that a model would choose by the length of each call.

        Keys stay in the cache, so a stream's frequencies must not change on its way: they are those of a text as long
        as the context. For longrope that is the long factors when the context passes the original one; dynamic NTK
        keeps the plain frequencies, which hold up to `max_position_embeddings`, the context.
        """
        last = torch.tensor([[self.context_tokens - 1]])
        self._run(inputs_embeds=torch.zeros(1, 1, self.hidden_size), position_ids=last)
        for module in self.model.modules():
            kind = getattr(module, "rope_type", None)
            if isinstance(kind, str):
                module.rope_type = "default"
            elif isinstance(kind, dict):
                module.rope_type = dict.fromkeys(kind, "default")

    def _probe_kinds(self) -> list[tuple[int, int]]:
        windows = probe_windows(self.model, self._decoder, self.taps, self.family)
        positions = torch.arange(0, max(2, min(self.context_tokens, 512)), 7)[None]
        self._run(inputs_embeds=torch.zeros(1, 1, self.hidden_size), position_ids=positions)
        kinds, self.ropes = group_tables(self.taps)
        return list(zip(kinds, windows, strict=True))

    @property
    def _decoder(self) -> torch.nn.Module:
        return self.model.get_submodule(self._prefix.rpartition(".")[0])


def _context(config: Any, wanted: int) -> int:
    """Return the context of a library; raises CheckpointError for a wish that the model cannot fulfil."""
    longest = int(config.max_position_embeddings)
    if not wanted:
        return longest
    if not LEAST_CONTEXT_TOKENS <= wanted <= longest:
        raise CheckpointError(
            f"The model has a context of {longest} tokens, so the library's cannot be {wanted}; choose a --context "
            f"from {LEAST_CONTEXT_TOKENS} to {longest}."
        )
    return wanted


def _matrix_shapes(layer: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in layer.state_dict().items() if tensor.ndim > 1}


def _put(root: torch.nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Replace a tensor by its name; one that somebody still reads stays where it is."""
    path, _, attribute = name.rpartition(".")
    module = root.get_submodule(path)
    if attribute in module._buffers:  # noqa: SLF001 - a buffer cannot be assigned a Parameter
        setattr(module, attribute, tensor)
    else:
        setattr(module, attribute, torch.nn.Parameter(tensor, requires_grad=False))


def _check_filled(module: torch.nn.Module, where: str) -> None:
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_meta:
            raise TensorMismatch(f"Tensor {name} of {where} got no value; this is a fault of the exporter, report it.")
