"""Names and shapes on disk against those of the model: transformers' own conversion rules, one tensor at a time.

Many checkpoints store each expert of a mixture of experts by itself, and older ones use older names. transformers
knows how these become the model's parameters; here its rules are applied to one parameter when it is asked for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from shard_export.checkpoint.source import Blocks, Checkpoint
from shard_export.library.errors import TensorMismatch

if TYPE_CHECKING:
    import torch


class _Recipe(NamedTuple):
    """How a group of stored tensors becomes one or several parameters: by a converter's operations."""

    converter: Any
    target: str
    sources: dict[str, list[str]]


class ConvertedCheckpoint(Checkpoint):
    """A checkpoint whose tensors are renamed, merged or split into the parameters of `model`."""

    def __init__(self, stored: Checkpoint, model: Any) -> None:
        self._stored, self._model = stored, model
        self.path, self.model_id, self.revision = stored.path, stored.model_id, stored.revision
        self._plain: dict[str, str] = {}
        self._made: dict[str, _Recipe] = {}
        self._plan()

    def config(self) -> Any:
        return self._stored.config()

    def tokenizer(self) -> Any:
        return self._stored.tokenizer()

    def bind(self, model: torch.nn.Module) -> None:
        """Nothing to learn: the constructor was given the model."""

    def names(self) -> frozenset[str]:
        return frozenset(self._plain) | frozenset(self._made)

    def stored_format(self, name: str) -> str:
        return self._stored.stored_format(self._plain[name]) if name in self._plain else ""

    def blocks(self, name: str) -> Blocks | None:
        return self._stored.blocks(self._plain[name]) if name in self._plain else None

    def tensor(self, name: str) -> torch.Tensor:
        if name in self._plain:
            return self._stored.tensor(self._plain[name])
        recipe = self._made[name]
        counts = {len(sources) for sources in recipe.sources.values()}
        if not _is_a_stack(recipe.converter) or len(counts) > 1:
            return self._convert(recipe, name, recipe.sources)
        # One expert at a time: all of them at once would be there twice.
        made = self._expert(recipe, name, 0)
        result = made.new_empty((count := counts.pop(), *made.shape))
        for expert in range(count):
            made = self._expert(recipe, name, expert) if expert else made
            if made.shape != result.shape[1:]:
                raise self._misfit(name, "experts of unlike shapes")
            result[expert] = made
        return result

    def _expert(self, recipe: _Recipe, name: str, expert: int) -> torch.Tensor:
        return self._convert(recipe, name, {key: [found[expert]] for key, found in recipe.sources.items()})[0]

    def _convert(self, recipe: _Recipe, name: str, sources: dict[str, list[str]]) -> torch.Tensor:
        values: Any = {pattern: [self._stored.tensor(source) for source in found] for pattern, found in sources.items()}
        converter = recipe.converter
        try:
            for operation in converter.operations:
                values = operation.convert(
                    values,
                    source_patterns=converter.source_patterns,
                    target_patterns=converter.target_patterns,
                    full_layer_name=recipe.target,
                    model=self._model,
                    config=self._model.config,
                    missing_keys=None,
                )
        except (RuntimeError, ValueError) as error:
            raise self._misfit(name, str(error).splitlines()[0][:200]) from error
        for key, tensor in values.items():
            if _sibling(recipe, key) == name:
                return tensor[0] if isinstance(tensor, list) else tensor
        raise TensorMismatch(f"The tensors of {self.path} do not give the parameter {name}; download the model again.")

    def _misfit(self, name: str, why: str) -> TensorMismatch:
        return TensorMismatch(
            f"The tensors of {self.path} that make {name} do not fit together ({why}); download the model again."
        )

    def same(self, one: str, other: str) -> bool:
        if one in self._plain and other in self._plain:
            return self._stored.same(self._plain[one], self._plain[other])
        return super().same(one, other)

    def rope_factors(self) -> torch.Tensor | None:
        return self._stored.rope_factors()

    def notes(self) -> list[str]:
        return self._stored.notes()

    def forget(self) -> None:
        self._stored.forget()

    def close(self) -> None:
        self._stored.close()

    def _plan(self) -> None:
        """Find for each stored tensor the parameter it belongs to, without reading any."""
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

        rules = get_model_conversion_mapping(self._model)
        renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
        converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
        by_pattern = {pattern: converter for converter in converters for pattern in converter.source_patterns}
        expected, prefix = self._model.state_dict(), self._model.base_model_prefix
        for stored in sorted(self._stored.names(), key=_natural):
            name, pattern = rename_source_key(stored, renamings, converters, prefix, expected)
            if name not in expected:
                # Rules may fit by chance; what the model has no place for keeps its name, and the ledger judges it.
                name, pattern = rename_source_key(stored, [], [], prefix, expected)
            if pattern is None:
                if name in self._plain:
                    raise TensorMismatch(
                        f"{self.path} has two tensors for the parameter {name}, {self._plain[name]} and {stored}; "
                        "download the model again."
                    )
                self._plain[name] = stored
                continue
            recipe = self._made.get(name) or _Recipe(by_pattern[pattern], name, {})
            recipe.sources.setdefault(pattern, []).append(stored)
            for target in recipe.converter.target_patterns:
                self._made[_sibling(recipe, target)] = recipe


def converted(checkpoint: Checkpoint, model: Any) -> Checkpoint:
    """Return the checkpoint under the model's names; itself when they are those already."""
    return checkpoint if checkpoint.names() <= model.state_dict().keys() else ConvertedCheckpoint(checkpoint, model)


def _is_a_stack(converter: Any) -> bool:
    """Tell whether a rule treats each expert alike and puts the results on top of one another."""
    from transformers.core_model_loading import Concatenate, MergeModulelist

    first, *others = converter.operations
    is_stack = isinstance(first, MergeModulelist) and first.dim == 0
    return is_stack and all(isinstance(other, Concatenate) and other.dim > 0 for other in others)


def _sibling(recipe: _Recipe, target: str) -> str:
    """Name the parameter that a rule's target pattern means, next to the first of them."""
    prefix, found, suffix = recipe.target.partition(recipe.converter.target_patterns[0])
    return f"{prefix}{target}{suffix}" if found else recipe.target


def _natural(name: str) -> list[tuple[int, str]]:
    """Order experts by number: 2 before 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
