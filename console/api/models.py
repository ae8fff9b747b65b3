"""What the HTTP surface sees of the rest of the console: who asks, and which models answer."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from console.pipeline.types import Generator


class ServedModel(msgspec.Struct, frozen=True):
    """A deployed model: `created_s` is the Unix time of its deployment.

    `ready`: a token came through all its stages since they last changed.
    """

    model_id: str
    created_s: int
    context_tokens: int
    ready: bool


class ModelCard(msgspec.Struct, frozen=True):
    """A model as `/v1/models` lists it. `ready` and `context_tokens` are extensions."""

    id: str
    created: int
    ready: bool
    context_tokens: int
    object: Literal["model"] = "model"
    owned_by: str = "fallow"

    @classmethod
    def of(cls, model: ServedModel) -> ModelCard:
        """Describe a deployed model."""
        return cls(model.model_id, model.created_s, model.ready, model.context_tokens)


class ModelList(msgspec.Struct, frozen=True):
    """The deployed models that a key may use."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


class ModelDirectory(Protocol):
    """The deployed models. Calls on the service's event loop; nothing here waits."""

    def served(self) -> list[ServedModel]:
        """List the models that answer or will answer again by themselves."""
        ...

    def generator(self, model_id: str) -> Generator:
        """Return what answers for a model. Raises KeyError (never deployed) or ModelUnavailable (not now)."""
        ...
